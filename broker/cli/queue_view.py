"""The queue on the screen and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from broker.cli import words
from broker.cli.tables import Column, fitting, left_out
from broker.core.money import Money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.queue import Queue, Waiting

_COLUMNS = (
    Column("#", align="right"),
    Column("job"),
    Column("team", 3),
    Column("priority", 2),
    Column("waits", 4, align="right"),
    Column("would get"),
    Column("starts in", align="right"),
    Column("cost", 1, align="right"),
    Column("finish", 5),
    Column("note"),
)


def table(console: Console, found: Queue) -> list[RenderableType]:
    """Who waits, in turn, and what the columns mean."""
    if not found.waiting:
        return [Text(f"nobody waits for a machine; {words.plural(found.running, 'job')} running")]
    built, hidden = fitting(console, _COLUMNS, [_cells(n, one, found) for n, one in enumerate(found.waiting, 1)])
    told = (
        f"{len(found.waiting):,} waiting, {found.running:,} running; by priority, then deadline, then the team with "
        "fewest turns; starts and costs are what is expected now"
    )
    return [built, Text("; ".join(filter(None, [told, left_out(hidden)])), style="dim")]


def _cells(number: int, one: Waiting, found: Queue) -> list[str | Text]:
    view, option = one.view, one.turn.option
    note = Text("late", style="red") if one.turn.late and option else Text("")
    if option is None:
        note = Text(view.waiting_because or "nothing can serve it", style="yellow")
    elif option.pool is not None and one.turn.start > 0:
        note.append(" for a free machine" if note else "waits for a free machine")
    return [
        str(number),
        view.id,
        view.job.team or "",
        view.job.priority.value,
        words.age(found.now - view.submitted_at),
        words.NOTHING if option is None else option.name.rpartition("@")[0],
        words.NOTHING
        if one.start is None
        else "now"
        if one.start <= found.now
        else words.length(one.start - found.now),
        words.NOTHING if option is None else words.money(_money(option.cost)),
        words.NOTHING if one.finish is None else words.moment(one.finish),
        note,
    ]


def _money(usd: float) -> Money:
    return Money(round(usd * 1e6))


def document(found: Queue) -> dict[str, Any]:
    """The document of `gpubroker jobs queue --json`: the jobs that wait, the next one first."""
    return {
        "as_of": found.now,
        "running": found.running,
        "waiting": [
            {
                "turn": number,
                "id": one.view.id,
                "name": one.view.job.name,
                "team": one.view.job.team,
                "priority": one.view.job.priority,
                "nodes": one.view.job.num_nodes,
                "submitted_at": one.view.submitted_at,
                "deadline": one.view.deadline,
                "offer": one.turn.option.name if one.turn.option else None,
                "limited": one.turn.option is not None and one.turn.option.pool is not None,
                "start": one.start,
                "finish": one.finish,
                "expected_cost": _money(one.turn.option.cost) if one.turn.option else None,
                "late": one.turn.late,
                "waiting_because": one.view.waiting_because,
            }
            for number, one in enumerate(found.waiting, 1)
        ],
    }
