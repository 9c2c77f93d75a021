"""From signals to events: what the run folder and the engine show of one attempt, turned into what happened. Pure.

Neither signal is trusted alone. Engines forget and lie (they report dead machines as running), agents die; the
heartbeat in the run folder decides between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core import events as ev
from broker.core.events import Cause, EventBody
from broker.core.lifecycle import AttemptView
from broker.core.ports import EngineState, Observation


@dataclass(frozen=True, slots=True)
class Dated:
    """An event body and when it happened (UTC)."""

    at: datetime
    body: EventBody


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """The agent's last word (``exit.json``)."""

    at: datetime
    cause: Cause
    exit_status: int | None = None
    evidence: str = ""
    step: int | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """What lies in an attempt's run folder: new journal entries, the heartbeat, the exit record."""

    journal: tuple[Dated, ...] = ()
    heartbeat_at: datetime | None = None
    step: int | None = None
    total: int | None = None
    phase: str = ""
    exit: ExitRecord | None = None


@dataclass(frozen=True, slots=True)
class Patience:
    """How long silence is borne, in the broker's time: until the agent's first sign, and between heartbeats."""

    start: timedelta = timedelta(minutes=15)
    heartbeat: timedelta = timedelta(minutes=2)

    def scaled(self, factor: float) -> Patience:
        return Patience(self.start * factor, self.heartbeat * factor)


def news(attempt: AttemptView, node: NodeState, seen: Observation, now: datetime, patience: Patience) -> list[Dated]:
    """The events that the signals amount to, in order; empty when nothing new happened. ``attempt`` has a handle."""
    found: list[Dated] = []
    if seen.since is not None and attempt.up_since is None:
        found.append(Dated(min(seen.since, now), ev.MachineUp(since=seen.since)))
    final = attempt.state.final
    # After the end only late checkpoints are still news: a machine that was thought lost may have saved one.
    found += [entry for entry in node.journal if not final or isinstance(entry.body, ev.CheckpointSaved)]
    if not final:
        ended = _ended(attempt, node, seen, now, patience, claimed=_claimed(attempt, node))
        if ended is not None:
            found.append(ended)
            final = True
    if final and not attempt.gone:
        up = attempt.up_since is not None or seen.since is not None
        if seen.state is EngineState.GONE:
            found.append(
                Dated(now, ev.MachineGone(gone_at=(seen.gone_at or now) if up else None, evidence=seen.evidence))
            )
        elif seen.state is EngineState.LOST:
            found.append(
                Dated(now, ev.MachineGone(gone_at=now if up else None, evidence="the engine knows it no more"))
            )
    return found


def _claimed(attempt: AttemptView, node: NodeState) -> bool:
    return attempt.claimed_at is not None or any(isinstance(entry.body, ev.Claimed) for entry in node.journal)


def _ended(
    attempt: AttemptView, node: NodeState, seen: Observation, now: datetime, patience: Patience, *, claimed: bool
) -> Dated | None:
    def end(cause: Cause, evidence: str, at: datetime = now) -> Dated:
        return Dated(at, ev.AttemptEnded(cause=cause, evidence=evidence, step=node.step))

    if node.exit is not None:
        e = node.exit
        body = ev.AttemptEnded(
            cause=e.cause,
            evidence=e.evidence,
            exit_status=e.exit_status,
            step=e.step if e.step is not None else node.step,
        )
        return Dated(e.at, body)
    launched = attempt.launched_at or attempt.requested_at
    match seen.state:
        case EngineState.GONE:
            at = min(seen.gone_at or now, now)
            if attempt.stop_requested is not None:
                return end(attempt.stop_requested, "the machine was ended before the agent's last word", at)
            if seen.interrupted:
                return end(Cause.PREEMPTED, seen.evidence, at)
            if not claimed:
                return end(Cause.LAUNCH_FAILED, seen.evidence or "the machine went away before the agent started", at)
            return end(Cause.AGENT_DIED, seen.evidence or "the machine is gone and left no exit record", at)
        case EngineState.LOST:
            if not claimed and now - launched < patience.start:
                return None  # engines may take a while to list what they started
            return end(attempt.stop_requested or Cause.MACHINE_LOST, "the engine knows it no more")
        case _:
            last_sign = node.heartbeat_at or attempt.claimed_at
            if last_sign is not None and now - last_sign > patience.heartbeat:
                silence = int((now - last_sign).total_seconds())
                return end(attempt.stop_requested or Cause.MACHINE_LOST, f"no heartbeat for {silence} s")
            if last_sign is None and now - launched > patience.start:
                waited = int((now - launched).total_seconds())
                return end(attempt.stop_requested or Cause.LAUNCH_FAILED, f"no agent after {waited} s")
            return None


def must_be_removed(attempt: AttemptView, now: datetime, grace: timedelta) -> bool:
    """Whether the machine should be ended by force: the attempt is over, or was told to stop a grace period ago, or
    was told to before anything ran on it that could be checkpointed."""
    if attempt.state.final:
        return True
    if attempt.stop_requested_at is None:
        return False
    return attempt.claimed_at is None or now - attempt.stop_requested_at > grace
