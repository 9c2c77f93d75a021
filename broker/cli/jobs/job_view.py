"""A job as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from textwrap import shorten
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results import reasons
from broker.app.results.money import shares_of as budget_shares
from broker.app.results.program_name import program
from broker.app.results.story import cause_words, where
from broker.cli.jobs.held_view import covers, shares_of
from broker.cli.render import formats
from broker.cli.render.event_format import lines
from broker.cli.render.tables import Column, fitted, hanging
from broker.core.events.events import Event
from broker.core.events.outcomes import AttemptState, Cause, JobState
from broker.core.events.views import AttemptView, JobView
from broker.core.policy.coverage_words import covered
from broker.core.values.clock import Clock
from broker.reconciler.progress import billed_time, machine_time

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.jobs.bills import Bill
    from broker.app.jobs.jobs import Progress
    from broker.core.job.arrays import JobArray
    from broker.core.job.jobs import Job
    from broker.ledger.journal import TaskCounts

_STATES = {
    JobState.SUCCEEDED: "green",
    JobState.RUNNING: "green",
    JobState.FAILED: "red",
    JobState.CANCELLED: "yellow",
    JobState.STOPPED: "yellow",
    JobState.PAUSED_BUDGET: "yellow",
    JobState.AWAITING_APPROVAL: "yellow",
    JobState.INTERRUPTED: "yellow",
}


def state_text(view: JobView) -> Text:
    """The state in its colour."""
    return Text(_state_words(view), style=_STATES.get(view.state, ""))


def _state_words(view: JobView) -> str:
    if view.cancel_requested and not view.state.final:
        return "stopping"
    if view.state is JobState.PAUSED_BUDGET:  # used for every pause that needs a person
        if view.failed_launches >= view.job.retry.launches:
            return "paused: launches failed"
        if view.latest is not None and view.latest.cause is Cause.STOPPED_BY_POLICY:
            return "paused by policy"
    return view.state.value.replace("_", " ")


def come_back(job_id: str) -> str:
    """The commands to show, follow and stop a job that continues in the background."""
    return (
        f"The job continues in the background. To follow or stop it:\n  {program()} jobs show {job_id}\n"
        f"  {program()} jobs logs {job_id} -f\n  {program()} jobs cancel {job_id}"
    )


def spent_words(bill: Bill) -> str:
    """``$1.20 cash, $0.10 amortised``."""
    parts = [f"{formats.money(amount)} {kind.value}" for kind, amount in bill.spent.items() if amount]
    return ", ".join(parts) or "$0.00"


def step_words(view: JobView, progress: Progress | None) -> str:
    """``step 120 of 400``, from the last heartbeat or the last checkpoint; empty if neither has a step."""
    if progress is not None and progress.step is not None:
        total = f" of {progress.total:,}" if progress.total else ""
        return f"step {progress.step:,}{total}"
    from broker.app.jobs.jobs import last_step  # slow to import

    step = last_step(view)
    return "" if step is None else f"step {step:,}"


def about_time(clock: Clock) -> list[Text]:
    """A note that times are simulated; empty for a store in real time."""
    if clock.scale == 1:
        return []
    return [Text(f"times are simulated: {clock.scale:g} times as fast as real time", style="dim")]


# --- list -----------------------------------------------------------------------------------------------------------

_LIST = (
    Column("job"),
    Column("state"),
    Column("team", 6),
    Column("user", 7),
    Column("submitted", 4, align="right"),
    Column("machine", 2),
    Column("attempts", 5, align="right"),
    Column("cost", align="right"),
    Column("deadline", 8),
    Column("wait reason", 3, folds=True),
)


_REASON = 60  # characters of a wait reason in a file or pipe


def job_table(console: Console, listed: Sequence[tuple[JobView, Bill]], now: datetime) -> list[RenderableType]:
    """One row per job."""
    cells = [_list_cells(view, bill, now) for view, bill in listed]
    if not console.is_terminal:  # one line per job, for grep and less; `jobs show` prints the whole reason
        cells = [[*row[:-1], shorten(str(row[-1]), _REASON, placeholder=" …")] for row in cells]
    return fitted(console, _LIST, cells, formats.plural(len(listed), "job"))


def _list_cells(view: JobView, bill: Bill, now: datetime) -> list[str | Text]:
    latest = view.latest
    place = f"{latest.placement.offer.provider} {latest.placement.offer.machine}" if latest else ""
    state = state_text(view)
    if view.job.array is not None and bill.tasks is not None:
        state.append(f" {_done(view.job.array, bill.tasks)}")
    left = ""
    if view.deadline is not None and not view.state.final:
        left = "missed" if view.deadline_missed else f"in {formats.length(view.deadline - now)}"
    return [
        view.id,
        state,
        view.job.team or "",
        view.user,
        f"{formats.age(now - view.submitted_at)} ago",
        place,
        str(view.attempt_count),
        formats.money(bill.so_far),
        left,
        reasons.waits(view.waiting),
    ]


def _done(array: JobArray, tasks: TaskCounts) -> str:
    """``12/100``: ended tasks of all tasks."""
    return f"{sum(count for state, count in tasks.states.items() if state.final):,}/{array.count:,}"


# --- show -----------------------------------------------------------------------------------------------------------


def story(
    view: JobView, bill: Bill, progress: Progress | None, happened: Sequence[Event], now: datetime, *, watched: bool
) -> list[RenderableType]:
    """The job's state, cost and events. ``watched``: a reconciler is running."""
    job, latest = view.job, view.latest
    parts: list[RenderableType] = [Text.assemble((view.id, "bold"), "  ", state_text(view))]
    if latest is not None:
        parts.append(Text(f"  {'runs' if not latest.state.final else 'ran'} on {where(latest.placement)}"))
    parts += _relations(job, bill)
    parts += _progress(view, progress, now)
    parts += _obstacles(view, watched=watched)
    parts.append(Text("\nMoney", style="bold"))
    parts += _money_lines(view, bill, now)
    parts.append(Text(f"\nEvents (time since {formats.moment(view.submitted_at)})", style="bold"))
    parts += lines(happened, view.submitted_at)
    if job.max_cost is None and not view.state.final:
        parts.append(Text(f"\nstops after {formats.length(view.max_duration)} of billed time", style="dim"))
    return parts


def _relations(job: Job, bill: Bill) -> list[RenderableType]:
    """Lines on the job's tasks, its array, and the jobs that it comes after."""
    parts: list[RenderableType] = []
    if job.array is not None and bill.tasks is not None:
        parts.append(Text(f"  tasks {tasks_words(job.array, bill.tasks)}"))
        if job.stop_when is not None:
            parts.append(hanging(Text(reasons.stop_when(job.stop_when)), 2))
    if job.task is not None:
        parts.append(Text(f"  task {job.task.index:,} of {job.task.count:,} of the array {job.task.array}"))
    if job.after:
        parts.append(Text(f"  comes after {', '.join(one.job for one in job.after)}"))
    return parts


def _progress(view: JobView, progress: Progress | None, now: datetime) -> list[RenderableType]:
    """Steps, last checkpoint, deadline."""
    parts: list[RenderableType] = []
    if steps := step_words(view, progress):
        eta = ""
        if progress is not None and progress.finish is not None and not view.state.final:
            eta = f", finish expected {formats.moment(progress.finish)} (in {formats.length(progress.finish - now)})"
        parts.append(Text(f"  {steps}{eta}"))
    if view.checkpoint is not None:
        saved = view.checkpoint
        which = f"at step {saved.step:,}" if saved.step is not None else saved.id
        parts.append(Text(f"  last checkpoint {which}, {formats.age(now - saved.at)} ago"))
    if view.deadline is not None:
        risk = " (missed)" if view.deadline_missed else " (at risk)" if view.deadline_at_risk else ""
        parts.append(Text(f"  deadline {formats.moment(view.deadline)}{risk}"))
    return parts


def _obstacles(view: JobView, *, watched: bool) -> list[RenderableType]:
    """Why the job does not run, and what to do."""
    parts: list[RenderableType] = []
    if view.waiting is not None:
        parts.append(Text.assemble(("  waiting: ", "yellow"), reasons.waits(view.waiting)))
    elif view.asked is not None:
        parts.append(
            Text("  an extension awaits approval; the job continues within its current limits", style="yellow")
        )
    if view.waiting is not None or view.asked is not None:
        parts += [Text(f"  {hint}") for hint in _what_helps(view)]
    if not view.closed and not watched and view.state not in (JobState.PAUSED_BUDGET, JobState.AWAITING_APPROVAL):
        parts.append(Text("  no reconciler is running: the job is not re-placed until one runs", style="yellow"))
    return parts


def tasks_words(array: JobArray, counts: TaskCounts) -> str:
    """``40 of 100 over: 39 succeeded, 1 failed; 8 running, 52 to come``."""
    from broker.app.results.jobs import TaskStates  # slow to import

    tasks = TaskStates.of(array, counts)
    ended = {
        "succeeded": tasks.succeeded,
        "stopped early": tasks.stopped,
        "failed": tasks.failed,
        "cancelled": tasks.cancelled,
    }
    others = {"running": tasks.running, "waiting": tasks.waiting, "paused": tasks.paused, "to come": tasks.not_started}
    told = [", ".join(f"{count:,} {what}" for what, count in some.items() if count) for some in (ended, others)]
    over = f"{sum(ended.values()):,} of {tasks.count:,} over"
    return "; ".join(filter(None, [": ".join(filter(None, [over, told[0]])), told[1]]))


def failed_tasks(view: JobView, failed: Sequence[JobView]) -> list[RenderableType]:
    """A line for each of these tasks of an array: its number, its parameters, and why it failed."""
    from broker.app.results.jobs import FailedTask  # slow to import

    if view.job.array is None or not failed:
        return []
    parts: list[RenderableType] = [Text("\nTasks that failed (the first ones)", style="bold")]
    for one in (FailedTask.of(view.job.array, task) for task in failed):
        given = " ".join(f"{name}={value}" for name, value in one.parameters.items())
        parts.append(hanging(Text("  ".join(filter(None, [f"  {one.id}", given, one.because]))), 4))
    return parts


def _what_helps(view: JobView) -> list[str]:
    if view.asked is not None:
        until = f" before {formats.moment(view.asked.expires_at)}" if view.asked.expires_at else ""
        who = view.asked.whom(view.user)
        return [
            f"{who} can decide{until}: {program()} approvals grant {view.id} (or refuse)",
            f"an approval covers: {covered(view.asked)}",
        ]
    if view.state is not JobState.PAUSED_BUDGET:
        return []
    if view.failed_launches >= view.job.retry.launches:
        return [
            f"to see why they failed: {program()} jobs attempts {view.id}",
            f"to resume once that is corrected: {program()} jobs extend {view.id}",
            f"to end it: {program()} jobs cancel {view.id}",
        ]
    if view.latest is not None and view.latest.cause is Cause.STOPPED_BY_POLICY:
        return [
            f"to resume once the rule allows it or asks for approval: {program()} jobs extend {view.id}",
            f"to end it: {program()} jobs cancel {view.id}",
        ]
    return [
        f"to raise its limit: {program()} jobs extend {view.id} --max-cost USD (or --max-duration TIME)",
        f"to end it: {program()} jobs cancel {view.id}",
    ]


def _money_lines(view: JobView, bill: Bill, now: datetime) -> list[RenderableType]:
    final = "" if view.closed else " settled so far"
    estimate = f" (estimated {formats.money(bill.so_far)} until now)" if not view.closed and bill.so_far else ""
    parts: list[RenderableType] = [Text(f"  spent     {spent_words(bill)}{final}{estimate}")]
    if bill.held:
        held = ", ".join(f"{formats.money(a)} {kind}" for kind, a in bill.held.items())
        parts.append(Text(f"  held      {held}"))
        parts += [hanging(Text(covers(bill.quantile)), 12)] if bill.quantile is not None else []
    parts += [hanging(Text(line), 12) for line in shares_of(budget_shares(bill.shares))]
    limit = f"max_cost {formats.money(view.max_cost)}, " if view.max_cost is not None else ""
    used = formats.length(billed_time(view, now))
    parts.append(Text(f"  limits    {limit}max_duration {formats.length(view.max_duration)} (used {used})"))
    if bill.on_demand is not None and bill.savings is not None:
        share = f" ({bill.savings.micros / bill.on_demand.micros:.0%})" if bill.on_demand else ""
        saved = f"saved {formats.money(bill.savings)}{share}"
        parts.append(Text(f"  on-demand {formats.money(bill.on_demand)} for the same work; {saved}"))
    return parts


def kept(until: Mapping[str, datetime | None], now: datetime) -> list[RenderableType]:
    """How long the files of an ended job are kept; nothing if it has not ended."""
    if not until:
        return []
    if not any(until.values()):
        return [Text(f"files stay until `{program()} jobs prune` or a policy deletes them", style="dim")]
    words = [
        f"{kind} {'stay' if last is None else 'are deleted' if last < now else f'until {formats.moment(last)}'}"
        for kind, last in until.items()
    ]
    newest = "; the newest checkpoint stays" if until["checkpoints"] else ""
    return [Text(f"by the policy: {', '.join(words)}{newest}", style="dim")]


def ending(view: JobView, bill: Bill) -> list[RenderableType]:
    """The summary of a job that was followed to its end."""
    tries = formats.plural(view.attempt_count, "attempt")
    lost = f", {formats.plural(view.interruptions, 'interruption')}" if view.interruptions else ""
    heading = Text.assemble(("\n" + view.id, "bold"), "  ", state_text(view), f" after {tries}{lost}")
    if told := reasons.beside_state(view.ending) or reasons.waits(view.waiting):
        heading.append(f": {told}")
    settled = "" if view.closed else " (the bill is not final yet)"
    parts: list[RenderableType] = [heading, Text(f"cost {spent_words(bill)}{settled}")]
    if bill.on_demand and bill.savings is not None:
        share = bill.savings.micros / bill.on_demand.micros
        more = (
            f"saved {formats.money(bill.savings)} ({share:.0%})" if share >= 0 else f"this job cost {-share:.0%} more"
        )
        parts.append(Text(f"on-demand would have cost {formats.money(bill.on_demand)}; {more}"))
    parts += [Text(hint) for hint in _what_helps(view)]
    if view.job.outputs:
        parts.append(Text(f"results: {program()} jobs files {view.id}"))
    if view.state is JobState.FAILED:
        parts.append(Text(f"output: {program()} jobs logs {view.id}"))
        if view.checkpoint is not None:
            parts.append(Text(f"to resume from its last checkpoint: {program()} jobs resume {view.id}"))
    return parts


# --- attempts -------------------------------------------------------------------------------------------------------

_ATTEMPTS = (
    Column("#", align="right"),
    Column("state"),
    Column("location"),
    Column("machine", 4),
    Column("purchase type", 5),
    Column("machine time", 1, align="right"),
    Column("from step", 3, align="right"),
    Column("to step", 2, align="right"),
    Column("checkpoints", 7, align="right"),
    Column("end reason", 6, folds=True),
)


def attempt_table(
    console: Console, view: JobView, attempts: Sequence[AttemptView], now: datetime
) -> list[RenderableType]:
    """One row per attempt."""
    if not attempts:
        return [Text(f"{view.id} has not been launched yet; state: {_state_words(view)}")]
    cells = [_attempt_cells(attempt, now) for attempt in attempts]
    return fitted(console, _ATTEMPTS, cells, formats.plural(len(attempts), "attempt"))


def _attempt_cells(attempt: AttemptView, now: datetime) -> list[str | Text]:
    offer = attempt.placement.offer
    last = attempt.last_step
    if last is None and attempt.checkpoints:
        last = attempt.checkpoints[-1].step
    style = {AttemptState.SUCCEEDED: "green", AttemptState.FAILED: "red", AttemptState.RUNNING: "green"}
    return [
        str(attempt.number),
        Text(attempt.state.value, style=style.get(attempt.state, "yellow" if attempt.state.final else "")),
        f"{offer.provider}/{offer.zone or offer.region}",
        offer.machine,
        formats.purchase_type(offer.capacity_type),
        formats.length(machine_time(attempt, now)),
        "" if attempt.resumed_step is None else f"{attempt.resumed_step:,}",
        "" if last is None else f"{last:,}",
        str(len(attempt.checkpoints)),
        "; ".join(filter(None, [cause_words(attempt.cause), attempt.evidence])),
    ]
