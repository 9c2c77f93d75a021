"""The state of one attempt, folded from its events. `broker.core.events.lifecycle` does the same for a job. Pure."""

from dataclasses import replace
from datetime import datetime

from broker.core.events import events as ev
from broker.core.events.agent_events import (
    FROM_AGENT,
    CheckpointSaved,
    Claimed,
    CommandStarted,
    NoticeReceived,
    ResourcesUsed,
    Restored,
    StandsBy,
    add_use,
)
from broker.core.events.events import Event
from broker.core.events.outcomes import OUTCOMES, AttemptState
from broker.core.events.views import AttemptView, SavedCheckpoint


class ImpossibleSequence(ValueError):
    """An event that cannot follow the ones before it."""

    def __init__(self, event: Event, reason: str) -> None:
        subject = f"attempt {event.attempt}" if event.attempt is not None else "job"
        super().__init__(f"{event.job_id} #{event.seq}: {event.body.kind} on {subject}: {reason}")


_LIVE_ORDER = (
    AttemptState.REQUESTED,
    AttemptState.LAUNCHED,
    AttemptState.STARTING,
    AttemptState.RUNNING,
    AttemptState.STOPPING,
)


def _later_state(attempt: AttemptView, to: AttemptState) -> AttemptState:
    """States only move forward: a late report of an earlier stage changes nothing."""
    return to if _LIVE_ORDER.index(to) > _LIVE_ORDER.index(attempt.state) else attempt.state


def _late_effect(attempt: AttemptView, event: Event) -> AttemptView | None:
    """The effect of an event that counts even after the attempt's end; None for other events."""
    body, at = event.body, event.at
    if isinstance(body, ev.MachineGone):
        if not attempt.state.final:
            raise ImpossibleSequence(event, "the attempt has not ended; record its end first")
        if attempt.gone:
            raise ImpossibleSequence(event, "already known to be gone")
        gone_at = body.gone_at
        if gone_at is not None and attempt.up_since is not None:
            gone_at = max(gone_at, attempt.up_since)
        return replace(
            attempt,
            gone=True,
            gone_at=gone_at,
            interrupted=body.interrupted,
            own_end=body.own_end,
            never_existed=body.never_existed,
            outside=body.outside,
        )
    if isinstance(body, ev.RemovalDelayed):
        return replace(attempt, removal_delayed=True)
    if isinstance(body, ev.MachineUp) and not attempt.gone and attempt.up_since is None:
        # The start of billing may become known late, even after the attempt's end.
        state = attempt.state if attempt.state.final else _later_state(attempt, AttemptState.STARTING)
        return replace(attempt, up_since=body.since, state=state)
    if isinstance(body, CheckpointSaved):
        # A late report counts: a machine that was considered lost may have saved a checkpoint. A repeated one counts
        # once.
        if any(checkpoint.id == body.checkpoint for checkpoint in attempt.checkpoints):
            return attempt
        saved = SavedCheckpoint(body.checkpoint, body.step, body.size, at)
        return replace(attempt, checkpoints=(*attempt.checkpoints, saved))
    return None


def advance_attempt(attempt: AttemptView, event: Event) -> AttemptView:
    """The attempt after one more of its events. Raises `ImpossibleSequence` when it cannot follow."""
    if (after := _late_effect(attempt, event)) is not None:
        return after
    body, at = event.body, event.at
    if isinstance(body, FROM_AGENT):
        return attempt if attempt.state.final else _apply_agent_event(attempt, body, at)  # after the end: no effect
    if attempt.state.final:
        raise ImpossibleSequence(event, f"the attempt already {attempt.state.value}")
    match body:
        case ev.Launched():
            if attempt.handle is not None:
                raise ImpossibleSequence(event, "already launched")
            return replace(
                attempt, handle=body.handle, launched_at=at, state=_later_state(attempt, AttemptState.LAUNCHED)
            )
        case ev.Queued():
            return replace(attempt, queued_at=attempt.queued_at or at)
        case ev.LaunchDelayed() | ev.ToppedUp() | ev.HoldDated() | ev.Entered():
            return attempt
        case ev.StopRequested():
            if attempt.stop_requested is not None:
                raise ImpossibleSequence(event, "the stop is already requested")
            return replace(
                attempt,
                stop_requested=body.cause,
                stop_requested_at=at,
                stop_reason=body.reason,
                state=_later_state(attempt, AttemptState.STOPPING),
            )
        case ev.AttemptEnded():
            return replace(
                attempt,
                state=OUTCOMES[body.cause].state,
                cause=body.cause,
                evidence=body.evidence,
                exit_status=body.exit_status,
                ended_at=at,
                last_step=body.step,
                reported=body.reported,
                # An attempt that was never launched has no machine to wait for.
                gone=attempt.handle is None and attempt.up_since is None,
            )
        case _:
            raise ImpossibleSequence(event, "does not concern an attempt, or came twice")


def _apply_agent_event(attempt: AttemptView, body: ev.EventBody, at: datetime) -> AttemptView:
    match body:
        case Claimed():
            return replace(
                attempt,
                claimed_at=at,
                knows_standbys=body.knows_standbys,
                state=_later_state(attempt, AttemptState.STARTING),
            )
        case StandsBy():
            return replace(attempt, ready_at=at)
        case Restored():
            return replace(attempt, resumed_from=body.checkpoint, resumed_step=body.step, passed_over=body.passed_over)
        case CommandStarted():
            return replace(attempt, running_at=at, state=_later_state(attempt, AttemptState.RUNNING))
        case NoticeReceived():
            return replace(attempt, notice_at=at, state=_later_state(attempt, AttemptState.STOPPING))
        case ResourcesUsed():
            return replace(attempt, use=add_use(attempt.use, body.figures))
        case _:
            return attempt
