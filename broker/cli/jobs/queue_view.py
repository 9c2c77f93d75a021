"""The queue as a table, and the plan of several jobs in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results import reasons
from broker.app.results.queue import PlannedTogether, QueueResult, ReachedTurn, SharedMachine, WaitingJob
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, hanging, listed
from broker.core.errors import InvalidInput
from broker.core.events.wait_reasons import AwaitsJobs
from broker.core.market.offers import CapacityType
from broker.core.values.money import Money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.wiring import Broker
    from broker.cli.terminal import Terminal
    from broker.core.job.jobs import Job

_REACHED = 5  # jobs for which the effect of recorded capacity is shown
_NAME = re.compile(rf"([^/]+/[^/]+)/(.+)/([^/]+)/({'|'.join(CapacityType)})")


def table(console: Console, found: QueueResult) -> list[RenderableType]:
    """The waiting jobs in order, and the meaning of the order."""
    notes = [free_line(one) for one in found.machines]
    notes += [Text(f"{one.id} {reasons.waits(AwaitsJobs(jobs=tuple(one.after)))}", style="dim") for one in found.later]
    if not found.waiting:
        return [Text(f"no job is waiting; {formats.plural(found.running, 'job')} running"), *notes]
    told = (
        f"{len(found.waiting):,} waiting, {found.running:,} running; order: priority, deadline, team with the fewest "
        "turns; starts and costs are estimates"
    )
    unused = dict.fromkeys(note for one in found.waiting for note in one.out_of_reach)
    notes += [Text(note, style="dim") for note in unused]
    notes += _reached(found)
    columns: tuple[ValueColumn[WaitingJob], ...] = (
        ValueColumn("#", lambda one: str(one.turn), align="right"),
        ValueColumn("job", lambda one: Text(one.id, style="bold" if one.planned else ""), folds=True),
        ValueColumn("team", lambda one: one.team or "", 3),
        ValueColumn("priority", lambda one: one.priority.value, 2),
        ValueColumn(
            "waiting",
            lambda one: "planned" if one.planned else formats.age(found.as_of - one.submitted_at),
            4,
            "right",
        ),
        ValueColumn("placement", lambda one: _place(one)[0], folds=True),
        ValueColumn("machine type", lambda one: _place(one)[1], 4),
        ValueColumn("starts in", lambda one: formats.known(one.start, lambda start: _until(start, found)), 0, "right"),
        ValueColumn("cost", lambda one: formats.known(one.expected_cost, lambda _: _cost(one)), 1, "right"),
        ValueColumn("finish", lambda one: formats.moment(one.finish), 5),
        ValueColumn("note", lambda one: _note(one, found), folds=True),
    )
    return [*listed(console, columns, found.waiting, told), *notes]


def _until(start: datetime, found: QueueResult) -> str:
    return "now" if start <= found.as_of else formats.length(start - found.as_of)


def _cost(one: WaitingJob | ReachedTurn) -> str:
    """``$4.20``; of work of unknown length ``$4.20 /h``."""
    return f"{formats.money(one.expected_cost)}{'' if one.finish else ' /h'}"


def _reached(found: QueueResult) -> list[Text]:
    """The start and cost that recorded capacity would bring the first jobs if an engine reached it."""
    lines = [
        Text(f"{one.id}: {_turn(one.reached, found)} there; without it {_turn(one, found)}", "dim")
        for one in found.waiting
        if one.reached is not None
    ]
    more = [Text(f"and {len(lines) - _REACHED} more jobs", "dim")] if len(lines) > _REACHED else []
    return [*lines[:_REACHED], *more]


def _turn(one: WaitingJob | ReachedTurn, found: QueueResult) -> str:
    """``starts in 3h, $4.20 /h``."""
    if one.start is None:
        return "no capacity for it"
    return f"starts {'' if one.start <= found.as_of else 'in '}{_until(one.start, found)}, {_cost(one)}"


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


def _note(one: WaitingJob, found: QueueResult) -> Text:
    if one.offer is None:
        return Text(one.waiting_because or "no offer matches", style="yellow")
    note = Text("late" if one.late else "", style="red")
    if one.limited and one.start is not None and one.start > found.as_of:
        note.append(", waits for a free machine" if note else "waits for a free machine")
    return note


def _place(one: WaitingJob) -> tuple[str, str]:
    """The location and machine of the offer, as words that may wrap, and the machine type."""
    found = _NAME.match(one.offer) if one.offer else None
    if found is None:
        return one.offer or formats.NOTHING, ""
    place, kind, machine, how = found.groups()
    return f"{place} {machine} {how.replace('_', '-')}", kind


def plan_together(terminal: Terminal, broker: Broker, jobs: Sequence[Job], alone: Mapping[str, object]) -> int:
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
    from broker.app.jobs.queue import as_if_submitted, explained

    queue = explained(broker, as_if_submitted(broker, jobs, by=terminal.actor))
    refused = [seen for job in jobs if (seen := preview(broker, job, by=terminal.actor)).exit_code]
    found = PlannedTogether.of_plan(queue, refused)
    terminal.result(found, lambda: _planned(terminal.out, found))
    failed = any(one.planned and (one.offer is None or one.late) for one in found.waiting)
    return 4 if failed else next((seen.exit_code for seen in refused), 0)


def _planned(console: Console, found: PlannedTogether) -> Iterator[RenderableType]:
    yield from table(console, found)
    planned = [one for one in found.waiting if one.planned]
    others = len(found.waiting) - len(planned)
    beside = f" with {formats.plural(others, 'waiting job')}" if others else ""
    yield Text(f"{len(planned)} jobs planned together{beside}: {_cost_of(planned)}; no money is held")
    for seen in found.refused:
        label = "Approval needed" if seen.exit_code == 6 else "Refused"
        yield Text.assemble((f"{label}: ", "bold red"), (seen.name, "bold"), f" alone: {seen.error.message}")
        if seen.error.hint:
            yield hanging(Text(seen.error.hint, style="cyan"), 2)


def _cost_of(planned: Sequence[WaitingJob]) -> str:
    """The total cost of the planned jobs; the hourly cost of jobs of unknown length is shown separately."""

    def total(jobs: Sequence[WaitingJob]) -> str:
        return formats.money(sum((one.expected_cost or Money.ZERO for one in jobs), Money.ZERO))

    placed = [one for one in planned if one.offer]
    hourly = [one for one in placed if one.finish is None]
    whole = f"{total([one for one in placed if one.finish])} in total"
    if not hourly:
        return whole
    an_hour = f"{total(hourly)} per hour for {formats.plural(len(hourly), 'job')} of unknown length"
    return an_hour if len(hourly) == len(placed) else f"{whole} and {an_hour}"
