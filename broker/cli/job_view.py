"""A job on the screen and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from broker.cli import words
from broker.cli.story import cause_words, line, where
from broker.cli.tables import Column, fitting, left_out
from broker.core.events import AttemptState, Event, JobState
from broker.core.lifecycle import AttemptView, JobView
from broker.core.money import Money
from broker.core.offers import MoneyKind
from broker.launch.progress import billed_time, machine_time, steps_redone

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
        f"It goes on by itself. Come back with:\n  gpubroker jobs show {view.id}\n"
        f"  gpubroker jobs logs {view.id}\n  gpubroker jobs cancel {view.id}"
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
        view.waiting_because,
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
        step = f" at step {saved.step:,}" if saved.step is not None else ""
        parts.append(Text(f"  last checkpoint {saved.id}{step}, {words.age(now - saved.at)} ago"))
    if view.deadline is not None:
        risk = " (missed)" if view.deadline_missed else " (at risk)" if view.deadline_at_risk else ""
        parts.append(Text(f"  deadline {words.moment(view.deadline)}{risk}"))
    if view.waiting_because:
        parts.append(Text.assemble(("  waiting because ", "yellow"), view.waiting_because))
        parts += [Text(f"  {hint}") for hint in _what_helps(view)]
    if not view.closed and not watched and view.state not in (JobState.PAUSED_BUDGET, JobState.AWAITING_APPROVAL):
        parts.append(Text("  no reconciler runs: nothing is re-placed until one does", style="yellow"))
    parts.append(Text("\nMoney", style="bold"))
    parts += _money_lines(view, bill, now)
    parts.append(Text(f"\nWhat happened (time since {words.moment(view.submitted_at)})", style="bold"))
    parts += [told for event in happened if (told := line(event, view.submitted_at)) is not None]
    if job.max_cost is None and not view.state.final:
        parts.append(Text(f"\nstops after {words.length(view.max_duration)} of billed time", style="dim"))
    return parts


def _what_helps(view: JobView) -> list[str]:
    if view.state is JobState.PAUSED_BUDGET:
        return [
            f"give it more: gpubroker jobs extend {view.id} --max-cost USD (or --max-duration TIME)",
            f"or give it up: gpubroker jobs cancel {view.id}",
        ]
    return []


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
    if view.because:
        heading.append(f": {view.because}")
    if view.waiting_because:
        heading.append(f": {view.waiting_because}")
    settled = "" if view.closed else " (the bill is not final yet)"
    parts: list[RenderableType] = [heading, Text(f"cost {spent_words(bill)}{settled}")]
    if bill.on_demand and bill.savings is not None:
        share = bill.savings.micros / bill.on_demand.micros
        more = f"saved {words.money(bill.savings)} ({share:.0%})" if share >= 0 else f"{-share:.0%} more than that"
        parts.append(Text(f"on-demand would have been {words.money(bill.on_demand)}; {more}"))
    parts += [Text(hint) for hint in _what_helps(view)]
    if view.state is JobState.FAILED:
        parts.append(Text(f"what it printed: gpubroker jobs logs {view.id}"))
    return parts


# --- attempts -------------------------------------------------------------------------------------------------------

_ATTEMPTS = (
    Column("#", align="right"),
    Column("state"),
    Column("where"),
    Column("machine", 3),
    Column("had as", 2),
    Column("machine time", 4, align="right"),
    Column("from step", 6, align="right"),
    Column("to step", 5, align="right"),
    Column("saved", 7, align="right"),
    Column("why it ended", 1, folds=True),
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


# --- JSON -----------------------------------------------------------------------------------------------------------


def document(view: JobView, bill: Bill, progress: Progress | None, now: datetime) -> dict[str, Any]:
    """A job as every command tells it. Amounts by kind of money; ``savings`` only once it has ended."""
    percent = None
    if bill.savings is not None and bill.on_demand:
        percent = round(100 * bill.savings.micros / bill.on_demand.micros, 1)
    checkpoint = view.checkpoint
    return {
        "id": view.id,
        "name": view.job.name,
        "state": view.state,
        "user": view.user,
        "team": view.job.team,
        "project": view.job.project,
        "workload": view.job.workload,
        "submitted_at": view.submitted_at,
        "ended_at": view.ended_at,
        "closed": view.closed,
        "because": view.because,
        "waiting_because": view.waiting_because,
        "cancel_requested": view.cancel_requested,
        "deadline": view.deadline,
        "deadline_missed": view.deadline_missed,
        "deadline_at_risk": view.deadline_at_risk,
        "max_cost": view.max_cost,
        "max_duration": view.max_duration,
        "billed_time": billed_time(view, now),
        "step": progress.step if progress and progress.step is not None else last_step(view),
        "total_steps": progress.total if progress else None,
        "phase": progress.phase if progress else None,
        "expected_finish": progress.finish if progress else None,
        "checkpoint": _checkpoint(checkpoint) if checkpoint else None,
        "interruptions": view.interruptions,
        "failures": view.failures,
        "steps_redone": steps_redone(view),
        "attempts": [attempt_json(attempt, now) for attempt in view.attempts],
        "cost": _by_kind(bill.spent),
        "held": _by_kind(bill.held),
        "cost_so_far": bill.so_far,
        "on_demand_cost": bill.on_demand,
        "savings": bill.savings,
        "savings_percent": percent,
    }


def _by_kind(amounts: Mapping[MoneyKind, Money]) -> dict[str, Money]:
    return {kind.value: amounts.get(kind, Money.ZERO) for kind in MoneyKind}


def _checkpoint(saved: Any) -> dict[str, Any]:
    return {"id": saved.id, "step": saved.step, "size_bytes": saved.size, "at": saved.at}


def attempt_json(attempt: AttemptView, now: datetime) -> dict[str, Any]:
    """One attempt of the document."""
    offer = attempt.placement.offer
    return {
        "number": attempt.number,
        "key": attempt.key,
        "state": attempt.state,
        "cause": attempt.cause,
        "evidence": attempt.evidence,
        "exit_status": attempt.exit_status,
        "engine": attempt.engine,
        "placement": {
            "provider": offer.provider,
            "region": offer.region,
            "zone": offer.zone,
            "instance_type": offer.instance_type,
            "accelerator": offer.accelerator,
            "count": offer.count,
            "nodes": attempt.placement.nodes,
            "capacity_type": offer.capacity_type,
            "money": offer.money,
            "rate_per_hour": attempt.placement.rate,
            "price_as_of": offer.as_of,
            "source": offer.source,
            "expected_cost": attempt.placement.expected_cost,
        },
        "requested_at": attempt.requested_at,
        "launched_at": attempt.launched_at,
        "up_since": attempt.up_since,
        "running_at": attempt.running_at,
        "notice_at": attempt.notice_at,
        "ended_at": attempt.ended_at,
        "gone_at": attempt.gone_at,
        "gone": attempt.gone,
        "machine_time": machine_time(attempt, now),
        "resumed_from": attempt.resumed_from,
        "resumed_from_step": attempt.resumed_step,
        "step": attempt.last_step,
        "passed_over": [{"checkpoint": p.checkpoint, "because": p.because} for p in attempt.passed_over],
        "checkpoints": [_checkpoint(saved) for saved in attempt.checkpoints],
    }
