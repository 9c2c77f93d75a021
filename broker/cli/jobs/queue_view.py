"""The queue as a table, and the plan of several jobs in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results import reasons
from broker.app.results.queue import SharedMachine
from broker.cli.render import formats
from broker.cli.render.tables import Column, fitted, hanging
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType
from broker.core.values.money import Money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.jobs.preview import Preview
    from broker.app.jobs.queue import Queue, QueuedJob
    from broker.app.wiring import Broker
    from broker.cli.terminal import Terminal
    from broker.core.job.jobs import Job

_COLUMNS = (
    Column("#", align="right"),
    Column("job", folds=True),
    Column("team", 3),
    Column("priority", 2),
    Column("waiting", 4, align="right"),
    Column("placement", folds=True),
    Column("machine type", 4),
    Column("starts in", align="right"),
    Column("cost", 1, align="right"),
    Column("finish", 5),
    Column("note", folds=True),
)
_REACHED = 5  # jobs for which the effect of recorded capacity is shown
_NAME = re.compile(rf"([^/]+/[^/]+)/(.+)/([^/]+)/({'|'.join(CapacityType)})")


def table(console: Console, found: Queue) -> list[RenderableType]:
    """The waiting jobs in order, and the meaning of the order."""
    free = [free_line(SharedMachine.of(one)) for one in found.machines]
    free += [Text(f"{view.id} {reasons.waits(view.waiting)}", style="dim") for view in found.later]
    if not found.waiting:
        return [Text(f"no job is waiting; {formats.plural(found.running, 'job')} running"), *free]
    told = (
        f"{len(found.waiting):,} waiting, {found.running:,} running; order: priority, deadline, team with the fewest "
        "turns; starts and costs are estimates"
    )
    cells = [_cells(n, one, found) for n, one in enumerate(found.waiting, 1)]
    unused = dict.fromkeys(note for one in found.waiting for note in one.out_of_reach)
    free += [Text(note, style="dim") for note in unused]
    free += _reached(found)
    return [*fitted(console, _COLUMNS, cells, told), *free]


def _reached(found: Queue) -> list[Text]:
    """The start and cost that recorded capacity would bring the first jobs if an engine reached it."""
    there = [(one, one.reached) for one in found.waiting if one.reached is not None]
    lines = [
        Text(f"{one.view.id}: {_turn(then, found)} there; without it {_turn(one, found)}", "dim") for one, then in there
    ]
    more = [Text(f"and {len(lines) - _REACHED} more jobs", "dim")] if len(lines) > _REACHED else []
    return [*lines[:_REACHED], *more]


def _turn(one: QueuedJob, found: Queue) -> str:
    """``starts in 3h, $4.20 /h``."""
    if one.start is None or one.turn.option is None:
        return "nothing serves it"
    starts = "now" if one.start <= found.now else f"in {formats.length(one.start - found.now)}"
    return f"starts {starts}, {formats.money(_usd(one.turn.option.cost))}{'' if one.finish else ' /h'}"


def free_line(one: SharedMachine) -> Text:
    """``box: 3 of 8 CPUs, 12 of 32 GiB and 1 of 4 L4 free; 2 jobs here``."""
    parts = [
        f"{one.free_cpus:g} of {one.cpus:g} CPUs",
        f"{one.free_memory_gib:.3g} of {one.memory_gib:.3g} GiB",
        *(f"{one.free_gpus[name]} of {count} {name}" for name, count in one.gpus.items()),
    ]
    name = one.name.rpartition("/")[2]
    told = f"{name}: {', '.join(parts[:-1])} and {parts[-1]} free; {formats.plural(one.jobs, 'job')} here"
    return Text(told, style="dim")


def _cells(number: int, one: QueuedJob, found: Queue) -> list[str | Text]:
    view, option = one.view, one.turn.option
    what, kind = (formats.NOTHING, "") if option is None else _offer(option.name)
    note = Text("late", style="red") if one.turn.late and option else Text("")
    if option is None:
        note = Text(reasons.waits(view.waiting) or "no offer matches", style="yellow")
    elif option.pool is not None and one.turn.start > 0:
        note.append(", waits for a free machine" if note else "waits for a free machine")
    return [
        str(number),
        Text(view.id, style="bold" if one.planned else ""),
        view.job.team or "",
        view.job.priority.value,
        "planned" if one.planned else formats.age(found.now - view.submitted_at),
        what,
        kind,
        formats.NOTHING
        if one.start is None
        else "now"
        if one.start <= found.now
        else formats.length(one.start - found.now),
        formats.NOTHING if option is None else formats.money(_usd(option.cost)) + ("" if one.finish else " /h"),
        formats.NOTHING if one.finish is None else formats.moment(one.finish),
        note,
    ]


def _offer(name: str) -> tuple[str, str]:
    """The location and machine of an option, as words that may wrap, and the machine type."""
    found = _NAME.match(name)
    if found is None:
        return name, ""
    place, kind, machine, how = found.groups()
    return f"{place} {machine} {how.replace('_', '-')}", kind


def _usd(amount: float) -> Money:
    return Money(round(amount * 1e6))


def plan_together(
    terminal: Terminal, broker: Broker, jobs: Sequence[Job], alone: Mapping[str, object], *, as_json: bool
) -> int:
    """Show the plan of several jobs, placed together with the waiting jobs, and why some could not be submitted.

    Returns the exit code: 4 if one of them has no placement or would be late, else that of submitting the first one
    that is refused. ``alone``: values of the options that apply to a single job only."""
    if given := [option for option, value in alone.items() if value]:
        raise InvalidInput("applies to a single job only", where=given[0], hint="plan the jobs one by one")
    if unsized := [job.name for job in jobs if job.model is not None and not job.resources]:
        raise InvalidInput(
            f"{unsized[0]} names a model but no machines", where="JOB.yaml", hint="plan it alone, which sizes it"
        )
    from broker.app.jobs.preview import preview
    from broker.app.jobs.queue import as_if_submitted, explained  # slow to import

    found = explained(broker, as_if_submitted(broker, jobs, by=terminal.actor))
    refused = [seen for job in jobs if (seen := preview(broker, job, by=terminal.actor)).exit_code]
    if as_json:
        from broker.app.results.queue import PlannedTogether

        terminal.answer(PlannedTogether.of_plan(found, refused))
    else:
        terminal.show(*table(terminal.out, found))
        others = sum(not one.planned for one in found.waiting)
        beside = f" with {formats.plural(others, 'waiting job')}" if others else ""
        terminal.show(Text(f"{len(jobs)} jobs planned together{beside}: {_cost_of(found)}; no money is held"))
        for seen in refused:
            terminal.show(*_refusal(seen))
    failed = any(one.planned and (one.turn.option is None or one.turn.late) for one in found.waiting)
    return 4 if failed else next((seen.exit_code for seen in refused), 0)


def _refusal(seen: Preview) -> Iterator[RenderableType]:
    """Why a job cannot be submitted, and what would pass."""
    from broker.app.jobs.preview import refusal

    error = refusal(seen)
    label = "Approval needed" if seen.exit_code == 6 else "Refused"
    yield Text.assemble((f"{label}: ", "bold red"), (seen.job.name, "bold"), f" alone: {error.message}")
    if error.hint:
        yield hanging(Text(error.hint, style="cyan"), 2)


def _cost_of(found: Queue) -> str:
    """The total cost of the planned jobs; the hourly cost of jobs of unknown length is shown separately."""
    placed = [(one.turn.option.cost, one.finish) for one in found.waiting if one.planned and one.turn.option]
    whole = f"{formats.money(_usd(sum(cost for cost, finish in placed if finish)))} in total"
    hourly = [cost for cost, finish in placed if not finish]
    if not hourly:
        return whole
    an_hour = f"{formats.money(_usd(sum(hourly)))} per hour for {formats.plural(len(hourly), 'job')} of unknown length"
    return an_hour if len(hourly) == len(placed) else f"{whole} and {an_hour}"
