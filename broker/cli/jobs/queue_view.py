"""The queue as a table, and the plan of several jobs in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from broker.app.jobs import reasons
from broker.app.jobs.queue_documents import PlannedTogether, QueueResult, ReachedTurn, SharedMachine, WaitingJob
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, indent_text, table_parts
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.events.wait_reasons import AwaitsJobs, QueueTurn
from broker.core.market.offers import CapacityType
from broker.core.values.figures import estimate
from broker.core.values.money import Money

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.core.job.jobs import Job

_MAX_REACHED = 5  # jobs for which the effect of recorded capacity is shown
_NAME = re.compile(rf"([^/]+/[^/]+)/(.+)/([^/]+)/({'|'.join(CapacityType)})")


def queue_table(console: Console, queue_result: QueueResult) -> list[RenderableType]:
    """The waiting jobs in order, and the meaning of the order."""
    notes = [free_line(item) for item in queue_result.machines]
    notes += [
        Text(f"{item.id} {reasons.wait_text(AwaitsJobs(jobs=tuple(item.after)))}", style="dim")
        for item in queue_result.later
    ]
    if not queue_result.waiting:
        return [Text(f"no job is waiting; {formats.plural(queue_result.running, 'job')} running"), *notes]
    order = "order: priority, deadline, team with the fewest turns; starts and costs are estimates"
    summary = f"{len(queue_result.waiting):,} waiting, {queue_result.running:,} running; {order}"
    unreached_notes = dict.fromkeys(note for item in queue_result.waiting for note in item.out_of_reach)
    notes += [Text(note, style="dim") for note in unreached_notes]
    notes += _reached_lines(queue_result)
    columns: tuple[ValueColumn[WaitingJob], ...] = (
        ValueColumn("#", lambda item: str(item.turn), align="right"),
        ValueColumn("job", lambda row: Text(row.id, style="bold" if row.planned else ""), folds=True),
        ValueColumn("team", lambda row: row.team or "", 3),
        ValueColumn("priority", lambda row: row.priority.value, 2),
        ValueColumn(
            "waiting",
            lambda row: "planned" if row.planned else formats.age(queue_result.as_of - row.submitted_at),
            4,
            "right",
        ),
        ValueColumn("placement", lambda row: _location_and_type(row)[0], folds=True),
        ValueColumn("machine type", lambda row: _location_and_type(row)[1], 4),
        ValueColumn(
            "starts in",
            lambda row: formats.text_or_dash(row.start, lambda start: _start_text(start, queue_result)),
            0,
            "right",
        ),
        ValueColumn("cost", lambda row: formats.text_or_dash(row.expected_cost, lambda _: _cost(row)), 1, "right"),
        ValueColumn("finish", lambda row: formats.moment(row.finish), 5),
        ValueColumn("note", lambda row: _note(row, queue_result), folds=True),
    )
    return [*table_parts(console, columns, queue_result.waiting, summary), *notes]


def _start_text(start: datetime, queue_result: QueueResult) -> str:
    return "now" if start <= queue_result.as_of else formats.length(start - queue_result.as_of)


def _cost(turn: WaitingJob | ReachedTurn) -> str:
    """``$4.20``; of work of unknown length ``$4.20 /h``."""
    return f"{formats.money(turn.expected_cost)}{'' if turn.finish else ' /h'}"


def _reached_lines(queue_result: QueueResult) -> list[Text]:
    """The start and cost that recorded capacity would bring the first jobs if an engine reached it."""
    lines = [
        Text(
            f"{waiting_job.id}: {_turn_text(waiting_job.reached, queue_result)} there; without it "
            f"{_turn_text(waiting_job, queue_result)}",
            "dim",
        )
        for waiting_job in queue_result.waiting
        if waiting_job.reached is not None
    ]
    overflow = [Text(f"and {len(lines) - _MAX_REACHED} more jobs", "dim")] if len(lines) > _MAX_REACHED else []
    return [*lines[:_MAX_REACHED], *overflow]


def _turn_text(turn: WaitingJob | ReachedTurn, queue_result: QueueResult) -> str:
    """``starts in 3h, $4.20 /h``."""
    if turn.start is None:
        return "no capacity for it"
    return (
        f"starts {'' if turn.start <= queue_result.as_of else 'in '}{_start_text(turn.start, queue_result)}, "
        f"{_cost(turn)}"
    )


def free_line(machine: SharedMachine) -> Text:
    """``box: 3 of 8 CPUs, 12 of 32 GiB and 1 of 4 L4 free; 2 jobs here``."""
    resources = [
        f"{machine.free_cpus:g} of {machine.cpus:g} CPUs",
        f"{machine.free_memory_gib:.3g} of {machine.memory_gib:.3g} GiB",
        *(f"{machine.free_gpus[name]} of {count} {name}" for name, count in machine.gpus.items()),
    ]
    name = machine.name.rpartition("/")[2]
    text = f"{name}: {', '.join(resources[:-1])} and {resources[-1]} free; {formats.plural(machine.jobs, 'job')} here"
    return Text(text, style="dim")


def _note(waiting_job: WaitingJob, queue_result: QueueResult) -> Text:
    if waiting_job.offer is None:
        return Text(waiting_job.waiting_because or "no offer matches", style="yellow")
    is_later = waiting_job.limited and waiting_job.start is not None and waiting_job.start > queue_result.as_of
    notes = ["late" * waiting_job.late, "waits for a free machine" * is_later, _room_text(waiting_job)]
    return Text(", ".join(filter(None, notes)), style="red")


def _room_text(waiting_job: WaitingJob) -> str:
    """Who makes room for the job, or why it takes nobody's place; empty if it may not."""
    places, reason = waiting_job.preemption, waiting_job.wait_reason
    if places is None:
        jobs = reasons.jobs_text(reason.leaving, reason.others) if isinstance(reason, QueueTurn) else ""
        return f"asked to make room: {jobs}" if jobs else ""
    jobs = reasons.jobs_text(places.jobs, places.others)
    costs = f"{estimate(places.lost)} of work repeated, {estimate(places.worth)} for the wait"
    return f"takes the place of {jobs}: {costs}" if places.pays else f"too costly to take the place of {jobs}: {costs}"


def _location_and_type(waiting_job: WaitingJob) -> tuple[str, str]:
    """The location and machine of the offer, as words that may wrap, and the machine type."""
    match = _NAME.match(waiting_job.offer) if waiting_job.offer else None
    if match is None:
        return waiting_job.offer or formats.NO_VALUE, ""
    place, kind, machine, capacity_type = match.groups()
    return f"{place} {machine} {capacity_type.replace('_', '-')}", kind


def plan_together(
    terminal: Terminal, broker: Broker, jobs: Sequence[Job], single_job_options: Mapping[str, object]
) -> int:
    """Show the plan of several jobs, placed together with the waiting jobs, and why some could not be submitted.

    Returns the exit code: 4 if one of them has no placement or would be late, else that of submitting the first one
    that is refused. ``single_job_options``: values of the options that apply to a single job only."""
    if used_options := [option for option, value in single_job_options.items() if value]:
        raise InvalidInput("applies to a single job only", where=used_options[0], hint="plan the jobs one by one")
    if unsized_names := [job.name for job in jobs if job.model is not None and not job.resources]:
        raise InvalidInput(
            f"{unsized_names[0]} names a model but no machines", where="JOB.yaml", hint="plan it alone, which sizes it"
        )
    from broker.app.jobs.preview import preview
    from broker.app.jobs.queue import explain_queue, hypothetical_views

    queue = explain_queue(broker, hypothetical_views(broker, jobs, by=terminal.actor))
    refused_previews = [
        job_preview for job in jobs if (job_preview := preview(broker, job, by=terminal.actor)).exit_code
    ]
    plan_result = PlannedTogether.of_plan(queue, refused_previews)
    terminal.result(plan_result, lambda: _plan_lines(terminal.out, plan_result))
    has_failed = any(
        waiting_job.planned and (waiting_job.offer is None or waiting_job.late) for waiting_job in plan_result.waiting
    )
    return 4 if has_failed else next((job_preview.exit_code for job_preview in refused_previews), 0)


def _plan_lines(console: Console, plan_result: PlannedTogether) -> Iterator[RenderableType]:
    yield from queue_table(console, plan_result)
    planned_jobs = [waiting_job for waiting_job in plan_result.waiting if waiting_job.planned]
    other_count = len(plan_result.waiting) - len(planned_jobs)
    others_text = f" with {formats.plural(other_count, 'waiting job')}" if other_count else ""
    yield Text(
        f"{len(planned_jobs)} jobs planned together{others_text}: {_total_cost_text(planned_jobs)}; no money is held"
    )
    for refused_job in plan_result.refused:
        label = "Approval needed" if refused_job.exit_code == 6 else "Refused"
        yield Text.assemble(
            (f"{label}: ", "bold red"), (refused_job.name, "bold"), f" alone: {refused_job.error.message}"
        )
        if refused_job.error.hint:
            yield indent_text(Text(refused_job.error.hint, style="cyan"), 2)


def _total_cost_text(planned_jobs: Sequence[WaitingJob]) -> str:
    """The total cost of the planned jobs; the hourly cost of jobs of unknown length is shown separately."""

    def total(jobs: Sequence[WaitingJob]) -> str:
        return formats.money(sum((waiting_job.expected_cost or Money.ZERO for waiting_job in jobs), Money.ZERO))

    placed_jobs = [waiting_job for waiting_job in planned_jobs if waiting_job.offer]
    hourly = [waiting_job for waiting_job in placed_jobs if waiting_job.finish is None]
    total_text = f"{total([waiting_job for waiting_job in placed_jobs if waiting_job.finish])} in total"
    if not hourly:
        return total_text
    hourly_text = f"{total(hourly)} per hour for {formats.plural(len(hourly), 'job')} of unknown length"
    return hourly_text if len(hourly) == len(placed_jobs) else f"{total_text} and {hourly_text}"
