"""The events of a job in words: one sentence per event, for the command line and the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby

from broker.app.results import reasons
from broker.core.events import events as ev
from broker.core.events.agent_events import (
    CheckpointSaved,
    CheckpointsMissing,
    CheckpointTrouble,
    Claimed,
    CommandStarted,
    MetricsReported,
    NoticeReceived,
    NoticeTooShort,
    OutputsSaved,
    OutputTrouble,
    Restored,
)
from broker.core.events.events import Event
from broker.core.events.outcomes import OUTCOMES, AttemptState, Cause, JobState
from broker.core.job.placements import Placement
from broker.core.values import figures
from broker.core.values.figures import gigabytes

Moments = Callable[[datetime], str]
"""Formats a point in time, in the user's time zone or in UTC."""


class Tone(StrEnum):
    """The severity of an event, for the color of its line."""

    GOOD = "good"
    BAD = "bad"
    ODD = "odd"
    PLAIN = "plain"


_TONES = {JobState.SUCCEEDED: Tone.GOOD}
_CAUSES: dict[Cause, str] = {
    Cause.COMPLETED: "finished",
    Cause.EXIT_STATUS: "the command failed",
    Cause.KILLED_BY_SIGNAL: "the command was killed",
    Cause.CANNOT_START: "the command could not be started",
    Cause.PREEMPTED: "interrupted by the provider",
    Cause.MACHINE_LOST: "the machine was lost",
    Cause.AGENT_DIED: "the agent on the machine died",
    Cause.FENCED: "a newer attempt took over",
    Cause.NO_CAPACITY: "no capacity was left",
    Cause.LAUNCH_FAILED: "the launch failed",
    Cause.LAUNCH_REFUSED: "the launch was refused",
    Cause.REQUEST_EXPIRED: "the request to launch it expired",
    Cause.DENIED_BEFORE_LAUNCH: "a policy denied it before it was launched",
    Cause.CANCELLED_BY_USER: "cancelled",
    Cause.MAX_COST: "stopped at its max_cost",
    Cause.MAX_DURATION: "stopped at its max_duration",
    Cause.PAID_UNTIL: "stopped when its held money was used up",
    Cause.MONEY_REFUSED: "stopped because more money was refused",
    Cause.STOPPED_BY_POLICY: "stopped by a policy",
    Cause.IDLE: "stopped because it was idle",
    Cause.MOVED: "moved to other capacity",
    Cause.UNATTENDED: "stopped after too long without a broker",
}


def cause_words(cause: Cause | None) -> str:
    """The cause of an attempt's end in a few words."""
    return _CAUSES[cause] if cause else ""


def where(placement: Placement) -> str:
    """``8 × H100:8 spot at aws/us-east-1a (p5.48xlarge), $12.30/h``."""
    offer = placement.offer
    nodes = f"{placement.nodes} × " if placement.nodes > 1 else ""
    kind = offer.capacity_type.value.replace("_", "-")
    price = f", {figures.rate(placement.rate)}/h" if placement.rate else ""
    simulated = ", simulated" if offer.money == "sandbox" else ""
    return (
        f"{nodes}{offer.machine} {kind} at {offer.provider}/{offer.zone or offer.region} "
        f"({offer.instance_type}{price}{simulated})"
    )


@dataclass(frozen=True, slots=True)
class MachineContext:
    """The context of the sentences about machines. ``free``: attempts on capacity without extra cost. ``launched``:
    whether any launch was requested; ``paid``: whether one of billed capacity was."""

    free: frozenset[int] = frozenset()
    launched: bool = True
    paid: bool = True


def course_of(happened: Sequence[Event]) -> MachineContext:
    """The course of a job, from all its events so far."""
    rates = {e.attempt or 0: e.body.placement.rate for e in happened if isinstance(e.body, ev.LaunchRequested)}
    return MachineContext(frozenset(n for n, rate in rates.items() if not rate), bool(rates), any(rates.values()))


@dataclass(frozen=True, slots=True)
class ToldEvent:
    """One line of a story. ``after``: time since the start of the story."""

    at: datetime
    after: timedelta
    text: str
    tone: Tone


def in_words(happened: Sequence[Event], start: datetime, moment: Moments) -> list[ToldEvent]:
    """All events from ``start`` on, one line each; consecutive checkpoints, and consecutive reports, share a line."""
    course, found = course_of(happened), list[ToldEvent]()
    shown = [event for event in happened if sentence(event, course, moment) is not None]
    for _, group in groupby(shown, lambda e: (type(e.body), e.attempt)):
        events = list(group)
        last, text = events[-1], ""
        if len(events) > 1 and isinstance(last.body, CheckpointSaved):
            text = f"{len(events)} checkpoints, the last{_saved(last.body)}"
        elif len(events) > 1 and isinstance(last.body, MetricsReported):
            text = f"the program reports {len(events)} times, the last {_metrics(last.body)}"
        if text:
            found.append(ToldEvent(last.at, last.at - start, f"attempt {last.attempt}: {text}", Tone.PLAIN))
        else:
            found += [one for event in events if (one := tell(event, start, moment, course)) is not None]
    return found


def tell(event: Event, start: datetime, moment: Moments, course: MachineContext | None = None) -> ToldEvent | None:
    """One event; None for those that are not shown."""
    found = sentence(event, course, moment)
    return None if found is None else ToldEvent(event.at, event.at - start, *found)


def sentence(event: Event, course: MachineContext | None, moment: Moments) -> tuple[str, Tone] | None:
    """The event's sentence and its tone; None for events that are not shown."""
    seen = course or MachineContext()
    if event.attempt is None:
        return _about_the_job(event.body, seen, moment)
    return _about_an_attempt(event.attempt, event.body, moment, free=event.attempt in seen.free)


def _about_the_job(body: ev.EventBody, course: MachineContext, moment: Moments) -> tuple[str, Tone] | None:
    match body:
        case ev.Submitted():
            by = f", deadline {moment(body.deadline)}" if body.deadline else ""
            return f"submitted by {body.user}{by}", Tone.PLAIN
        case ev.TasksStarted(count=0):
            return "its tasks continue", Tone.PLAIN
        case ev.TasksStarted():
            which = "1 task" if body.count == 1 else f"{body.count:,} tasks"
            return f"{which} started; others follow as they end", Tone.PLAIN
        case ev.PredecessorsEnded():
            return "the jobs before it have ended: it begins", Tone.PLAIN
        case ev.NothingFeasible():
            return f"waiting, nothing can be launched now: {reasons.waits(body.reason)}", Tone.ODD
        case ev.DeadlineAtRisk():
            late = f": expected to finish {moment(body.expected_finish)}" if body.expected_finish else ""
            return f"the deadline is at risk{late}", Tone.ODD
        case ev.DeadlineMissed():
            return "the deadline has passed; the job continues", Tone.BAD
        case ev.Paused():
            return f"paused: {reasons.waits(body.reason)}", Tone.ODD
        case ev.JobEnded():
            told = reasons.beside_state(body.reason)
            because = f": {told}" if told else ""
            return f"{body.state.value}{because}", _TONES.get(body.state, Tone.BAD)
        case ev.JobClosed():
            if not course.launched:
                return None
            settled = "; bill settled, remaining hold released" if course.paid else ""
            return f"all machines are gone{settled}", Tone.PLAIN
        case _:
            return _of_request(body)


def _of_request(body: ev.EventBody) -> tuple[str, Tone]:
    """Requests about the job, and the answers."""
    match body:
        case ev.ApprovalAsked():
            whom = f" by {', '.join(body.approvers)}" if body.approvers else ""
            more = f" of up to {figures.money(body.max_cost)} in total" if body.extension and body.max_cost else ""
            return f"waiting for approval{more}{whom}: {body.because}", Tone.ODD
        case ev.ApprovalGiven():
            rules = f" ({', '.join(body.rules)})" if body.rules else ""
            who = f"approved by {body.by}" if body.by else "no approval needed"
            return f"{who}{rules}{_note(body.note)}", Tone.GOOD
        case ev.ApprovalRefused():
            return f"refused by {body.by}{_note(body.note)}" if body.by else "the approval request expired", Tone.BAD
        case ev.CancelRequested():
            return f"cancellation requested by {body.by}", Tone.ODD
        case ev.Extended():
            given = []
            if body.max_cost is not None:
                given.append(f"{figures.money(body.max_cost)} in total")
            if body.max_duration_seconds is not None:
                given.append(f"{figures.length(timedelta(seconds=body.max_duration_seconds))} in total")
            return f"extended by {body.by} to {' and '.join(given)}" if given else f"resumed by {body.by}", Tone.GOOD
        case _:
            return body.kind.replace("_", " "), Tone.PLAIN


def _about_an_attempt(number: int, body: ev.EventBody, moment: Moments, *, free: bool) -> tuple[str, Tone] | None:
    found = _of_attempt(body, moment, free=free)
    return None if found is None else (f"attempt {number}: {found[0]}", found[1])


def _of_attempt(body: ev.EventBody, moment: Moments, *, free: bool) -> tuple[str, Tone] | None:
    match body:
        case ev.LaunchRequested():
            resumes = ", resuming from the newest checkpoint" if body.resume_from else ""
            why = f" ({body.why})" if body.why else ""
            return f"launch on {where(body.placement)}{resumes}{why}", Tone.PLAIN
        case ev.Launched() | Claimed():
            return None
        case ev.LaunchDelayed():
            return f"launch delayed, the broker retries: {reasons.waits(body.reason)}", Tone.ODD
        case ev.ToppedUp():
            return f"{figures.money(body.amount)} more held: may run until {moment(body.until)}", Tone.PLAIN
        case ev.Queued():
            return "waiting in the queue of its engine" + (f": {body.because}" if body.because else ""), Tone.PLAIN
        case ev.HoldDated():
            because = f" ({reasons.judged_again(body.trigger)})" if body.trigger else ""
            held = f"{figures.money(body.amount)} held, used at up to {figures.rate(body.rate)}/h"
            return f"{held}: may run until {moment(body.until)}{because}", Tone.PLAIN
        case ev.MachineUp() | ev.MachineGone() | ev.RemovalDelayed():
            return _of_machine(body, moment, free=free)
        case ev.Entered():
            return f"{body.by} ran {body.program} inside the job", Tone.PLAIN
        case ev.StopRequested():
            who = f" by {body.by}" if body.by else ""
            return f"stop requested{who}: {reasons.stops(body.reason) or cause_words(body.cause)}", Tone.ODD
        case ev.AttemptEnded():
            return _ended(body)
        case _:
            return _reported(body)


def _of_machine(
    body: ev.MachineUp | ev.MachineGone | ev.RemovalDelayed, moment: Moments, *, free: bool
) -> tuple[str, Tone] | None:
    match body:
        case ev.MachineUp():
            return "machine up" if free else "machine up, billing started", Tone.PLAIN
        case ev.MachineGone():
            if body.outside and body.gone_at:
                since = moment(min(one.since for one in body.outside))
                ids = ", ".join(one.id for one in body.outside)
                billed = f"billed at the price on demand from {since} to {moment(body.gone_at)}"
                return f"machine gone; outside of the bought capacity, {billed}: {ids}", Tone.BAD
            return ("machine gone" if free else "machine gone, billing ended", Tone.PLAIN) if body.gone_at else None
        case ev.RemovalDelayed():
            retries = f"the machine could not be terminated and is still billed; the broker retries: {body.because}"
            return retries, Tone.BAD


def _reported(body: ev.EventBody) -> tuple[str, Tone]:
    """Reports of the agent."""
    match body:
        case Restored():
            passed = "".join(f"; skipped {p.checkpoint}: {p.because}" for p in body.passed_over)
            style = Tone.ODD if body.passed_over else Tone.GOOD if body.checkpoint else Tone.PLAIN
            if body.checkpoint is None:
                return f"starts from the beginning{passed}", style
            which = body.checkpoint if body.step is None else f"at step {body.step:,}"
            return f"resumed from the checkpoint {which}{passed}", style
        case CommandStarted():
            return "command running", Tone.GOOD
        case CheckpointSaved():
            return f"checkpoint{_saved(body)} saved", Tone.PLAIN
        case CheckpointTrouble():
            return f"a checkpoint could not be saved: {body.because}", Tone.ODD
        case CheckpointsMissing():
            return checkpoints_missing(body), Tone.ODD
        case OutputsSaved():
            return f"{figures.plural(body.files, 'result')} saved, {gigabytes(body.size)}", Tone.PLAIN
        case MetricsReported():
            return f"the program reports {_metrics(body)}", Tone.PLAIN
        case OutputTrouble():
            return f"results could not be saved: {body.because}", Tone.ODD
        case NoticeTooShort():
            needed = f"a checkpoint of {gigabytes(body.size)} takes {body.seconds:.0f} s to upload"
            given = f"{body.source} gives {body.notice_seconds:.0f} s of notice"
            return f"{needed}, but {given}: after an interruption, the checkpoint before it is used", Tone.ODD
        case NoticeReceived():
            return f"interruption notice ({body.source}); saving a checkpoint", Tone.ODD
        case _:
            return body.kind.replace("_", " "), Tone.PLAIN


def checkpoints_missing(body: CheckpointsMissing) -> str:
    """Which checkpoints are missing, and what the program must do."""
    ran, every = timedelta(seconds=body.seconds), timedelta(seconds=body.every)
    when = "ended" if body.ended else "is running"
    seen = f"; present but unfinished: {', '.join(body.unfinished)}" if body.unfinished else ""
    return (
        f"{when} without a checkpoint after {figures.length(ran)}, although the job file promises one every"
        f" {figures.length(every)}: an interruption loses all of it. The program has to write each checkpoint into"
        f" $GPUBROKER_CHECKPOINT_DIR under a temporary name, and rename it{seen}"
    )


def _ended(body: ev.AttemptEnded) -> tuple[str, Tone]:
    state = OUTCOMES[body.cause].state
    evidence = f" ({body.evidence})" if body.evidence and state is not AttemptState.SUCCEEDED else ""
    named = evidence and body.cause is Cause.EXIT_STATUS  # the evidence begins with the status
    status = f" with exit status {body.exit_status}" if body.exit_status and not named else ""
    style = {AttemptState.SUCCEEDED: Tone.GOOD, AttemptState.FAILED: Tone.BAD}.get(state, Tone.ODD)
    return f"{cause_words(body.cause)}{status}{_step(body.step)}{evidence}", style


def _metrics(body: MetricsReported) -> str:
    return ", ".join(f"{name} {value:,g}" for name, value in sorted(body.metrics.items()))


def _saved(body: CheckpointSaved) -> str:
    return _step(body.step) or f" {body.checkpoint}"


def _step(step: int | None) -> str:
    return "" if step is None else f" at step {step:,}"


def _note(note: str) -> str:
    return f": {note}" if note else ""
