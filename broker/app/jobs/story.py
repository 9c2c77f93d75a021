"""The events of a job in words: one sentence per event, for the command line and the page."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import reduce
from itertools import groupby

from broker.app.jobs import reasons
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
    ResourcesUsed,
    ResourceUse,
    Restored,
    StandsBy,
    TokensServed,
    add_use,
)
from broker.core.events.events import Event
from broker.core.events.outcomes import OUTCOMES, AttemptState, Cause, JobState
from broker.core.job.placements import Placement
from broker.core.values import figures
from broker.core.values.figures import gigabytes

_HOURLY = (ResourcesUsed, TokensServed)
TimeFormatter = Callable[[datetime], str]
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
    Cause.NOT_NEEDED: "not needed, the job did not move to it",
}


def cause_text(cause: Cause | None) -> str:
    """The cause of an attempt's end in a few words."""
    return _CAUSES[cause] if cause else ""


def placement_text(placement: Placement) -> str:
    """``8 × H100:8 spot at aws/us-east-1a (p5.48xlarge), $12.30/h``."""
    offer = placement.offer
    nodes = f"{placement.nodes} × " if placement.nodes > 1 else ""
    kind = offer.capacity_type.value.replace("_", "-")
    price = f", {figures.rate(placement.rate)}/h" if placement.rate else ""
    simulated_note = ", simulated" if offer.money == "sandbox" else ""
    return (
        f"{nodes}{offer.machine} {kind} at {offer.provider}/{offer.zone or offer.region} "
        f"({offer.instance_type}{price}{simulated_note})"
    )


@dataclass(frozen=True, slots=True)
class MachineContext:
    """The context of the sentences about machines. ``free``: attempts on capacity without extra cost. ``launched``:
    whether any launch was requested; ``paid``: whether one of billed capacity was."""

    free: frozenset[int] = frozenset()
    launched: bool = True
    paid: bool = True


def machine_context(events: Sequence[Event]) -> MachineContext:
    """The course of a job, from all its events so far."""
    rates = {e.attempt or 0: e.body.placement.rate for e in events if isinstance(e.body, ev.LaunchRequested)}
    return MachineContext(frozenset(n for n, rate in rates.items() if not rate), bool(rates), any(rates.values()))


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One line of a story. ``after``: time since the start of the story."""

    at: datetime
    after: timedelta
    text: str
    tone: Tone


def story_lines(all_events: Sequence[Event], start: datetime, moment: TimeFormatter) -> list[StoryLine]:
    """All events from ``start`` on, one line each; consecutive checkpoints, and consecutive reports, share a line."""
    course, lines = machine_context(all_events), list[StoryLine]()
    shown_events = [event for event in all_events if event_sentence(event, course, moment) is not None]
    for _, group in groupby(
        shown_events, lambda e: (_HOURLY if isinstance(e.body, _HOURLY) else type(e.body), e.attempt)
    ):
        events = list(group)
        last_event, text = events[-1], ""
        if len(events) > 1 and isinstance(last_event.body, CheckpointSaved):
            text = f"{len(events)} checkpoints, the last{_checkpoint_name(last_event.body)}"
        elif len(events) > 1 and isinstance(last_event.body, MetricsReported):
            text = f"the program reports {len(events)} times, the last {_metrics_text(last_event.body)}"
        elif len(events) > 1 and isinstance(last_event.body, _HOURLY):
            text = _figures_text([e.body for e in events])
        if text:
            lines.append(
                StoryLine(last_event.at, last_event.at - start, f"attempt {last_event.attempt}: {text}", Tone.PLAIN)
            )
        else:
            lines += [line for event in events if (line := story_line(event, start, moment, course)) is not None]
    return lines


def story_line(
    event: Event, start: datetime, moment: TimeFormatter, course: MachineContext | None = None
) -> StoryLine | None:
    """One event; None for those that are not shown."""
    sentence_and_tone = event_sentence(event, course, moment)
    return None if sentence_and_tone is None else StoryLine(event.at, event.at - start, *sentence_and_tone)


def event_sentence(event: Event, course: MachineContext | None, moment: TimeFormatter) -> tuple[str, Tone] | None:
    """The event's sentence and its tone; None for events that are not shown."""
    context = course or MachineContext()
    if event.attempt is None:
        return _job_sentence(event.body, context, moment)
    return _numbered_sentence(event.attempt, event.body, moment, free=event.attempt in context.free)


def _job_sentence(body: ev.EventBody, course: MachineContext, moment: TimeFormatter) -> tuple[str, Tone] | None:
    match body:
        case ev.Submitted():
            by = f", deadline {moment(body.deadline)}" if body.deadline else ""
            return f"submitted by {body.user}{by}", Tone.PLAIN
        case ev.TasksStarted(count=0):
            return "its tasks continue", Tone.PLAIN
        case ev.TasksStarted():
            count_text = "1 task" if body.count == 1 else f"{body.count:,} tasks"
            return f"{count_text} started; others follow as they end", Tone.PLAIN
        case ev.PredecessorsEnded():
            return "the jobs before it have ended: it begins", Tone.PLAIN
        case ev.NothingFeasible():
            return f"waiting, nothing can be launched now: {reasons.wait_text(body.reason)}", Tone.ODD
        case ev.DeadlineAtRisk():
            late = f": expected to finish {moment(body.expected_finish)}" if body.expected_finish else ""
            return f"the deadline is at risk{late}", Tone.ODD
        case ev.DeadlineMissed():
            return "the deadline has passed; the job continues", Tone.BAD
        case ev.Paused():
            return f"paused: {reasons.wait_text(body.reason)}", Tone.ODD
        case ev.JobEnded():
            end_text = reasons.end_text_after_state(body.reason)
            reason_text = f": {end_text}" if end_text else ""
            return f"{body.state.value}{reason_text}", _TONES.get(body.state, Tone.BAD)
        case ev.JobClosed():
            if not course.launched:
                return None
            settled_note = "; bill settled, remaining hold released" if course.paid else ""
            return f"all machines are gone{settled_note}", Tone.PLAIN
        case _:
            return _request_sentence(body)


def _request_sentence(body: ev.EventBody) -> tuple[str, Tone]:
    """Requests about the job, and the answers."""
    match body:
        case ev.ApprovalAsked():
            approvers_text = f" by {', '.join(body.approvers)}" if body.approvers else ""
            limit_text = (
                f" of up to {figures.money(body.max_cost)} in total" if body.extension and body.max_cost else ""
            )
            return f"waiting for approval{limit_text}{approvers_text}: {body.because}", Tone.ODD
        case ev.ApprovalGiven():
            rules = f" ({', '.join(body.rules)})" if body.rules else ""
            approval_text = f"approved by {body.by}" if body.by else "no approval needed"
            return f"{approval_text}{rules}{_note_text(body.note)}", Tone.GOOD
        case ev.ApprovalRefused():
            return (
                f"refused by {body.by}{_note_text(body.note)}" if body.by else "the approval request expired",
                Tone.BAD,
            )
        case ev.CancelRequested():
            return f"cancellation requested by {body.by}", Tone.ODD
        case ev.Extended():
            limits = []
            if body.max_cost is not None:
                limits.append(f"{figures.money(body.max_cost)} in total")
            if body.max_duration_seconds is not None:
                limits.append(f"{figures.length(timedelta(seconds=body.max_duration_seconds))} in total")
            return f"extended by {body.by} to {' and '.join(limits)}" if limits else f"resumed by {body.by}", Tone.GOOD
        case _:
            return body.kind.replace("_", " "), Tone.PLAIN


def _numbered_sentence(
    number: int, body: ev.EventBody, moment: TimeFormatter, *, free: bool
) -> tuple[str, Tone] | None:
    sentence_and_tone = _attempt_sentence(body, moment, free=free)
    return None if sentence_and_tone is None else (f"attempt {number}: {sentence_and_tone[0]}", sentence_and_tone[1])


def _attempt_sentence(body: ev.EventBody, moment: TimeFormatter, *, free: bool) -> tuple[str, Tone] | None:
    match body:
        case ev.LaunchRequested():
            resumes = ", resuming from the newest checkpoint" if body.resume_from else ""
            reason_text = f" ({body.why})" if body.why else ""
            beside = ", beside the attempt that runs" if body.standby_until else ""
            return f"launch on {placement_text(body.placement)}{beside}{resumes}{reason_text}", Tone.PLAIN
        case ev.HandedOver() | StandsBy():
            return ("takes over" if isinstance(body, ev.HandedOver) else "ready to take over"), Tone.GOOD
        case ev.Launched() | Claimed():
            return None
        case ev.LaunchDelayed():
            return f"launch delayed, the broker retries: {reasons.wait_text(body.reason)}", Tone.ODD
        case ev.ToppedUp():
            return f"{figures.money(body.amount)} more held: may run until {moment(body.until)}", Tone.PLAIN
        case ev.Queued():
            return "waiting in the queue of its engine" + (f": {body.because}" if body.because else ""), Tone.PLAIN
        case ev.HoldDated():
            because_text = f" ({reasons.hold_trigger_text(body.trigger)})" if body.trigger else ""
            held_text = f"{figures.money(body.amount)} held, used at up to {figures.rate(body.rate)}/h"
            return f"{held_text}: may run until {moment(body.until)}{because_text}", Tone.PLAIN
        case ev.MachineUp() | ev.MachineGone() | ev.RemovalDelayed():
            return _machine_sentence(body, moment, free=free)
        case ev.Entered():
            return f"{body.by} ran {body.program} inside the job", Tone.PLAIN
        case ev.StopRequested():
            requester = f" by {body.by}" if body.by else ""
            return f"stop requested{requester}: {reasons.stop_text(body.reason) or cause_text(body.cause)}", Tone.ODD
        case ev.AttemptEnded():
            return _attempt_end_sentence(body)
        case _:
            return _agent_sentence(body)


def _machine_sentence(
    body: ev.MachineUp | ev.MachineGone | ev.RemovalDelayed, moment: TimeFormatter, *, free: bool
) -> tuple[str, Tone] | None:
    match body:
        case ev.MachineUp():
            return "machine up" if free else "machine up, billing started", Tone.PLAIN
        case ev.MachineGone():
            if body.outside and body.gone_at:
                start_text = moment(min(machine.since for machine in body.outside))
                ids = ", ".join(machine.id for machine in body.outside)
                billed_text = f"billed at the price on demand from {start_text} to {moment(body.gone_at)}"
                return f"machine gone; outside of the bought capacity, {billed_text}: {ids}", Tone.BAD
            return ("machine gone" if free else "machine gone, billing ended", Tone.PLAIN) if body.gone_at else None
        case ev.RemovalDelayed():
            text = f"the machine could not be terminated and is still billed; the broker retries: {body.because}"
            return text, Tone.BAD


def _agent_sentence(body: ev.EventBody) -> tuple[str, Tone]:
    """Reports of the agent."""
    match body:
        case Restored():
            skipped_text = "".join(f"; skipped {p.checkpoint}: {p.because}" for p in body.passed_over)
            style = Tone.ODD if body.passed_over else Tone.GOOD if body.checkpoint else Tone.PLAIN
            if body.checkpoint is None:
                return f"starts from the beginning{skipped_text}", style
            checkpoint_text = body.checkpoint if body.step is None else f"at step {body.step:,}"
            return f"resumed from the checkpoint {checkpoint_text}{skipped_text}", style
        case CommandStarted():
            return "command running", Tone.GOOD
        case CheckpointSaved():
            return f"checkpoint{_checkpoint_name(body)} saved", Tone.PLAIN
        case CheckpointTrouble():
            return f"trouble with a checkpoint: {body.because}", Tone.ODD
        case CheckpointsMissing():
            return checkpoints_missing(body), Tone.ODD
        case OutputsSaved():
            return f"{figures.plural(body.files, 'result')} saved, {gigabytes(body.size)}", Tone.PLAIN
        case MetricsReported() | ResourcesUsed() | TokensServed():
            return _figures_text([body]), Tone.PLAIN
        case OutputTrouble():
            return f"trouble with results: {body.because}", Tone.ODD
        case NoticeTooShort():
            upload_text = f"a checkpoint of {gigabytes(body.size)} takes {body.seconds:.0f} s to upload"
            notice_text = f"{body.source} gives {body.notice_seconds:.0f} s of notice"
            return (
                f"{upload_text}, but {notice_text}: after an interruption, the checkpoint before it is used",
                Tone.ODD,
            )
        case NoticeReceived():
            return f"interruption notice ({body.source}); saving a checkpoint", Tone.ODD
        case _:
            return body.kind.replace("_", " "), Tone.PLAIN


def checkpoints_missing(body: CheckpointsMissing) -> str:
    """Which checkpoints are missing, and what the program must do."""
    run_time, interval = timedelta(seconds=body.seconds), timedelta(seconds=body.every)
    state_text = "ended" if body.ended else "is running"
    unfinished_text = f"; present but unfinished: {', '.join(body.unfinished)}" if body.unfinished else ""
    return (
        f"{state_text} without a checkpoint after {figures.length(run_time)}, although the job file promises one every"
        f" {figures.length(interval)}: an interruption loses all of it. The program has to write each checkpoint into"
        f" $GPUBROKER_CHECKPOINT_DIR under a temporary name, and rename it{unfinished_text}"
    )


def _attempt_end_sentence(body: ev.AttemptEnded) -> tuple[str, Tone]:
    state = OUTCOMES[body.cause].state
    evidence = f" ({body.evidence})" if body.evidence and state is not AttemptState.SUCCEEDED else ""
    has_status = evidence and body.cause is Cause.EXIT_STATUS  # the evidence begins with the status
    status = f" with exit status {body.exit_status}" if body.exit_status and not has_status else ""
    style = {AttemptState.SUCCEEDED: Tone.GOOD, AttemptState.FAILED: Tone.BAD}.get(state, Tone.ODD)
    return f"{cause_text(body.cause)}{status}{_step_text(body.step)}{evidence}", style


def _figures_text(bodies: Sequence[ev.EventBody]) -> str:
    """What the program reports last; or the use of the machine and the tokens that it served, in all."""
    if isinstance(bodies[-1], MetricsReported):
        return f"the program reports {_metrics_text(bodies[-1])}"
    uses = [body.figures for body in bodies if isinstance(body, ResourcesUsed)]
    counts = [body for body in bodies if isinstance(body, TokensServed)]
    texts = [use_text(reduce(add_use, uses)) if uses else "", _served_text(counts) if counts else ""]
    return "; ".join(filter(None, texts))


def _served_text(counts: Sequence[TokensServed]) -> str:
    """``served 9,000,000 tokens in and 600,000 out in 60 min``, and why a port was not read."""
    models = [model for count in counts for model in count.models]
    read, generated = (sum(getattr(model, name) for model in models) for name in ("input", "output"))
    text = f"served {read:,} tokens in and {generated:,} out in {figures.length(counts[-1].until - counts[0].since)}"
    return f"{text}; not counted: {counts[-1].trouble}" if counts[-1].trouble else text


def use_text(use: ResourceUse) -> str:
    """``GPU 31 % busy, GPU memory 9 GiB at most, CPU 40 % (peak 98 %), memory 22 GiB at most``"""
    texts = {
        "gpu": "GPU {0.mean:.0f} % busy",
        "gpu_memory": "GPU memory {0.peak:.3g} GiB at most",
        "power": "{0.mean:.0f} W",
        "gpu_waits_cpu": "GPU waits {0.mean:.0f} % for the CPU",
        "gpu_waits_disk": "GPU waits {0.mean:.0f} % for disks",
        "cpu": "CPU {0.mean:.0f} % (peak {0.peak:.0f} %)",
        "memory": "memory {0.peak:.3g} GiB at most",
        "disk_read": "{0.mean:.3g} MB/s from disks",
        "network": "{0.mean:.3g} MB/s received",
    }
    return ", ".join(text.format(use[name]) for name, text in texts.items() if name in use and use[name].peak)


def _metrics_text(body: MetricsReported) -> str:
    return ", ".join(f"{name} {value:,g}" for name, value in sorted(body.metrics.items()))


def _checkpoint_name(body: CheckpointSaved) -> str:
    return _step_text(body.step) or f" {body.checkpoint}"


def _step_text(step: int | None) -> str:
    return "" if step is None else f" at step {step:,}"


def _note_text(note: str) -> str:
    return f": {note}" if note else ""
