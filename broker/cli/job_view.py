"""A job on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.text import Text

from broker.cli import words
from broker.cli.story import cause_words, lines, where
from broker.cli.tables import Column, fitting, left_out
from broker.cli.waiting import because
from broker.core.clock import Clock
from broker.core.events import Event
from broker.core.outcomes import AttemptState, Cause, JobState
from broker.core.views import AttemptView, JobView
from broker.launch.progress import billed_time, machine_time

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.jobs import Bill, Progress

_STATES = {
    JobState.SUCCEEDED: "green",
    JobState.RUNNING: "green",
    JobState.FAILED: "red",
    JobState.CANCELLED: "yellow",
    JobState.PAUSED_BUDGET: "yellow",
    JobState.AWAITING_APPROVAL: "yellow",
    JobState.INTERRUPTED: "yellow",
}


def state_text(view: JobView) -> Text:
    """The state in its colour."""
    stopping = view.cancel_requested and not view.state.final
    return Text("stopping" if stopping else view.state.value.replace("_", " "), style=_STATES.get(view.state, ""))


def come_back(view: JobView) -> str:
    """How to see, follow and stop a job that goes on by itself."""
    return (
        f"It goes on by itself. Come back with:\n  {words.program()} jobs show {view.id}\n"
        f"  {words.program()} jobs logs {view.id}\n  {words.program()} jobs cancel {view.id}"
    )


def spent_words(bill: Bill) -> str:
    """``$1.20 cash, $0.10 amortised``."""
    parts = [f"{words.money(amount)} {kind.value}" for kind, amount in bill.spent.items() if amount]
    return ", ".join(parts) or "$0.00"


def step_words(view: JobView, progress: Progress | None) -> str:
    """``step 120 of 400``, from the last sign of life or the last checkpoint; empty when neither tells."""
    if progress is not None and progress.step is not None:
        total = f" of {progress.total:,}" if progress.total else ""
        return f"step {progress.step:,}{total}"
    step = last_step(view)
    return "" if step is None else f"step {step:,}"


def last_step(view: JobView) -> int | None:
    """The step the last attempt ended at, or the one of the last checkpoint."""
    latest, checkpoint = view.latest, view.checkpoint
    if latest is not None and latest.last_step is not None:
        return latest.last_step
    return checkpoint.step if checkpoint else None


def about_time(clock: Clock) -> list[Text]:
    """That the times of a simulated store are its own; nothing for any other."""
    if clock.scale == 1:
        return []
    return [Text(f"times are simulated: they run {clock.scale:g} times as fast", style="dim")]


# --- list -----------------------------------------------------------------------------------------------------------

_LIST = (
    Column("job"),
    Column("state"),
    Column("team", 6),
    Column("user", 7),
    Column("submitted", 4, align="right"),
    Column("runs on", 2),
    Column("tries", 5, align="right"),
    Column("cost", align="right"),
    Column("deadline", 8),
    Column("waiting because", 3, folds=True),
)


def job_table(console: Console, listed: Sequence[tuple[JobView, Bill]], now: datetime) -> list[RenderableType]:
    """One row a job."""
    built, hidden = fitting(console, _LIST, [_list_cells(view, bill, now) for view, bill in listed])
    footer = "; ".join(filter(None, [words.plural(len(listed), "job"), left_out(hidden)]))
    return [built, Text(footer, style="dim")]


def _list_cells(view: JobView, bill: Bill, now: datetime) -> list[str | Text]:
    latest = view.latest
    place = f"{latest.placement.offer.provider} {latest.placement.offer.machine}" if latest else ""
    left = ""
    if view.deadline is not None and not view.state.final:
        left = "missed" if view.deadline_missed else f"in {words.length(view.deadline - now)}"
    return [
        view.id,
        state_text(view),
        view.job.team or "",
        view.user,
        f"{words.age(now - view.submitted_at)} ago",
        place,
        str(len(view.attempts)),
        words.money(bill.so_far),
        left,
        because(view.waiting_because),
    ]


# --- show -----------------------------------------------------------------------------------------------------------


def story(
    view: JobView, bill: Bill, progress: Progress | None, happened: Sequence[Event], now: datetime, *, watched: bool
) -> list[RenderableType]:
    """What the job is, what happened, what it cost. ``watched``: a reconciler is running."""
    job, latest = view.job, view.latest
    parts: list[RenderableType] = [Text.assemble((view.id, "bold"), "  ", state_text(view))]
    if latest is not None:
        parts.append(Text(f"  {'runs' if not latest.state.final else 'ran'} on {where(latest.placement)}"))
    if steps := step_words(view, progress):
        eta = ""
        if progress is not None and progress.finish is not None and not view.state.final:
            eta = f", finish expected {words.moment(progress.finish)} (in {words.length(progress.finish - now)})"
        parts.append(Text(f"  {steps}{eta}"))
    if view.checkpoint is not None:
        saved = view.checkpoint
        which = f"at step {saved.step:,}" if saved.step is not None else saved.id
        parts.append(Text(f"  last checkpoint {which}, {words.age(now - saved.at)} ago"))
    if view.deadline is not None:
        risk = " (missed)" if view.deadline_missed else " (at risk)" if view.deadline_at_risk else ""
        parts.append(Text(f"  deadline {words.moment(view.deadline)}{risk}"))
    if view.waiting_because:
        parts.append(Text.assemble(("  waiting because ", "yellow"), because(view.waiting_because)))
    elif view.asked is not None:
        parts.append(Text("  more for it was asked, and waits for approval; meanwhile it goes on", style="yellow"))
    if view.waiting_because or view.asked is not None:
        parts += [Text(f"  {hint}") for hint in _what_helps(view)]
    if not view.closed and not watched and view.state not in (JobState.PAUSED_BUDGET, JobState.AWAITING_APPROVAL):
        parts.append(Text("  no reconciler runs: nothing is re-placed until one does", style="yellow"))
    parts.append(Text("\nMoney", style="bold"))
    parts += _money_lines(view, bill, now)
    parts.append(Text(f"\nWhat happened (time since {words.moment(view.submitted_at)})", style="bold"))
    parts += lines(happened, view.submitted_at)
    if job.max_cost is None and not view.state.final:
        parts.append(Text(f"\nstops after {words.length(view.max_duration)} of billed time", style="dim"))
    return parts


def _what_helps(view: JobView) -> list[str]:
    if view.asked is not None:
        until = f" before {words.moment(view.asked.expires_at)}" if view.asked.expires_at else ""
        who = view.asked.whom(view.user)
        return [f"{who} may type{until}: {words.program()} approvals grant {view.id} (or refuse)"]
    if view.state is not JobState.PAUSED_BUDGET:
        return []
    if view.latest is not None and view.latest.cause is Cause.STOPPED_BY_POLICY:
        return [
            f"once the rule lets it, or asks somebody, it goes on with: {words.program()} jobs extend {view.id}",
            f"or give it up: {words.program()} jobs cancel {view.id}",
        ]
    return [
        f"give it more: {words.program()} jobs extend {view.id} --max-cost USD (or --max-duration TIME)",
        f"or give it up: {words.program()} jobs cancel {view.id}",
    ]


def _money_lines(view: JobView, bill: Bill, now: datetime) -> list[Text]:
    final = "" if view.closed else " settled so far"
    estimate = f" (about {words.money(bill.so_far)} until now)" if not view.closed and bill.so_far else ""
    lines = [f"  spent     {spent_words(bill)}{final}{estimate}"]
    if bill.held:
        lines.append("  held      " + ", ".join(f"{words.money(a)} {kind.value}" for kind, a in bill.held.items()))
    limit = f"max_cost {words.money(view.max_cost)}, " if view.max_cost is not None else ""
    used = words.length(billed_time(view, now))
    lines.append(f"  limits    {limit}max_duration {words.length(view.max_duration)} (used {used})")
    if bill.on_demand is not None and bill.savings is not None:
        share = f" ({bill.savings.micros / bill.on_demand.micros:.0%})" if bill.on_demand else ""
        lines.append(
            f"  on-demand {words.money(bill.on_demand)} for the same work; saved {words.money(bill.savings)}{share}"
        )
    return [Text(text) for text in lines]


def ending(view: JobView, bill: Bill) -> list[RenderableType]:
    """The last words of a job that was followed."""
    tries = words.plural(len(view.attempts), "attempt")
    lost = f", {words.plural(view.interruptions, 'interruption')}" if view.interruptions else ""
    heading = Text.assemble(("\n" + view.id, "bold"), "  ", state_text(view), f" after {tries}{lost}")
    if view.because not in ("", view.state.value):
        heading.append(f": {view.because}")
    if view.waiting_because:
        heading.append(f": {because(view.waiting_because)}")
    settled = "" if view.closed else " (the bill is not final yet)"
    parts: list[RenderableType] = [heading, Text(f"cost {spent_words(bill)}{settled}")]
    if bill.on_demand and bill.savings is not None:
        share = bill.savings.micros / bill.on_demand.micros
        more = f"saved {words.money(bill.savings)} ({share:.0%})" if share >= 0 else f"{-share:.0%} more than that"
        parts.append(Text(f"on-demand would have been {words.money(bill.on_demand)}; {more}"))
    parts += [Text(hint) for hint in _what_helps(view)]
    if view.state is JobState.FAILED:
        parts.append(Text(f"what it printed: {words.program()} jobs logs {view.id}"))
    return parts


# --- attempts -------------------------------------------------------------------------------------------------------

_ATTEMPTS = (
    Column("#", align="right"),
    Column("state"),
    Column("where"),
    Column("machine", 4),
    Column("had as", 5),
    Column("machine time", 1, align="right"),
    Column("from step", 3, align="right"),
    Column("to step", 2, align="right"),
    Column("checkpoints", 7, align="right"),
    Column("why it ended", 6, folds=True),
)


def attempt_table(console: Console, view: JobView, now: datetime) -> list[RenderableType]:
    """One row an attempt."""
    if not view.attempts:
        return [Text(f"{view.id} has not been launched yet; it is {view.state.value.replace('_', ' ')}")]
    built, hidden = fitting(console, _ATTEMPTS, [_attempt_cells(attempt, now) for attempt in view.attempts])
    footer = "; ".join(filter(None, [words.plural(len(view.attempts), "attempt"), left_out(hidden)]))
    return [built, Text(footer, style="dim")]


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
        offer.capacity_type.value.replace("_", "-"),
        words.length(machine_time(attempt, now)),
        "" if attempt.resumed_step is None else f"{attempt.resumed_step:,}",
        "" if last is None else f"{last:,}",
        str(len(attempt.checkpoints)),
        "; ".join(filter(None, [cause_words(attempt.cause), attempt.evidence])),
    ]
