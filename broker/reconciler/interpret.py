"""Converts the reports of run folder and engine about one attempt to events. Pure.

Neither source is trusted alone. Engines forget machines or report dead ones as running, and agents die; the heartbeat
in the run folder decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.events import events as ev
from broker.core.events.agent_events import Claimed
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView
from broker.core.ports import EngineState, Observation
from broker.engines.runfolder.mailbox import Dated, NodeState


@dataclass(frozen=True, slots=True)
class Patience:
    """Limits of silence, in broker time.

    ``start``: until the agent's first report, once a machine starts or is up; ``heartbeat``: between heartbeats. Time
    in an engine's queue does not count.

    ``billed`` limits two times: from the begin of the bill until the agent's first report, by the stored times; and
    since the last heartbeat of a machine that costs money, by the object store's clock. It applies even if brokers
    restart often or seldom tick: no process observes a long `Silence` then.
    """

    start: timedelta = timedelta(minutes=15)
    heartbeat: timedelta = timedelta(minutes=2)
    billed: timedelta = timedelta(hours=1)

    def scaled(self, factor: float) -> Patience:
        return Patience(self.start * factor, self.heartbeat * factor, self.billed * factor)


class Silence:
    """How long each attempt has been silent, as seen by this process: the broker time between ticks in which the
    heartbeat did not change.

    A long gap between two ticks (a suspended laptop, a stopped process, a clock that was set) counts as a short one:
    the node may have been suspended too, or may have reported meanwhile. A new process starts from zero.
    """

    def __init__(self, longest_gap: timedelta) -> None:
        self._longest_gap = longest_gap
        self._last: dict[str, tuple[datetime | None, datetime, timedelta]] = {}

    def of(self, key: str, heartbeat_at: datetime | None, now: datetime) -> timedelta:
        """The silence of that attempt, updated with its heartbeat at ``now`` (UTC)."""
        last_heartbeat, last_tick, silent = self._last.get(key, (heartbeat_at, now, timedelta(0)))
        silent += min(max(now - last_tick, timedelta(0)), self._longest_gap)
        if heartbeat_at != last_heartbeat:
            silent = timedelta(0)
        self._last[key] = (heartbeat_at, now, silent)
        return silent

    def forget(self, key: str) -> None:
        """Start from zero: the attempt is over, or has no machine yet."""
        self._last.pop(key, None)


def new_events(
    attempt: AttemptView,
    node: NodeState,
    observation: Observation,
    silent: timedelta,
    now: datetime,
    patience: Patience,
) -> list[Dated]:
    """The events that follow from the reports, in order; empty if nothing new happened. ``attempt`` has a handle.

    Every entry of the agent's journal becomes an event, late or not, so that their number shows how far it was read.
    Times of a node's clock are clamped between the request and now. ``silent``: see `Silence`.
    """

    def sane(at: datetime) -> datetime:
        return min(max(at, attempt.requested_at), now)

    events: list[Dated] = []
    if observation.state is EngineState.QUEUED and attempt.queued_at is None and not attempt.state.final:
        events.append(Dated(now, ev.Queued(because=observation.evidence)))
    if observation.since is not None and attempt.up_since is None and not observation.no_capacity:
        # The date of the bill is that of the cloud's clock, even if the broker's clock is behind.
        events.append(Dated(min(observation.since, now), ev.MachineUp(since=observation.since)))
    events += [Dated(sane(entry.at), entry.body) for entry in node.journal]
    final, claimed = attempt.state.final, _is_claimed(attempt, node)
    if not final:
        end_event = _end_event(attempt, node, observation, silent, now, patience)
        if end_event is not None:
            events.append(Dated(sane(end_event.at), end_event.body))
            final = True
    if final and not attempt.gone:
        was_billed = attempt.up_since is not None or (observation.since is not None and not observation.no_capacity)
        if observation.state is EngineState.GONE:
            # If no machine ever existed, it ended before it cost anything.
            gone_at = (attempt.up_since or now) if observation.no_capacity else observation.gone_at or now
            gone_event = ev.MachineGone(
                gone_at=gone_at if was_billed else None,
                evidence=observation.evidence,
                interrupted=observation.interrupted,
                own_end=observation.own_end,
                never_existed=observation.no_capacity,
                outside=observation.outside,
            )
            events.append(Dated(now, gone_event))
        elif observation.state is EngineState.LOST and (node.exit or not claimed or silent > patience.heartbeat):
            evidence = "the engine no longer knows it"
            events.append(
                Dated(now, ev.MachineGone(gone_at=now if was_billed else None, evidence=evidence, interrupted=False))
            )
    return events


def _is_claimed(attempt: AttemptView, node: NodeState) -> bool:
    return attempt.claimed_at is not None or any(isinstance(entry.body, Claimed) for entry in node.journal)


def _end_event(
    attempt: AttemptView,
    node: NodeState,
    observation: Observation,
    silent: timedelta,
    now: datetime,
    patience: Patience,
) -> Dated | None:
    def end(cause: Cause, evidence: str, at: datetime = now) -> Dated:
        return Dated(at, ev.AttemptEnded(cause=cause, evidence=evidence, step=node.step))

    if node.exit is not None:
        exit_record = node.exit
        step = exit_record.step if exit_record.step is not None else node.step
        body = ev.AttemptEnded(
            cause=exit_record.cause,
            evidence=exit_record.evidence,
            exit_status=exit_record.exit_status,
            step=step,
            reported=True,
        )
        return Dated(exit_record.at, body)
    if node.unreachable and silent < patience.start:
        return None  # its exit record may be there
    claimed = _is_claimed(attempt, node)
    if observation.state is EngineState.ELSEWHERE or (observation.state is EngineState.QUEUED and not claimed):
        return None
    match observation.state:
        case EngineState.GONE:
            return end(*_gone_cause(attempt, observation, now, claimed=claimed))
        # Engines may list a machine with delay, and they forget: an attempt with a heartbeat is not lost and must not
        # run twice.
        case EngineState.LOST if silent <= patience.heartbeat if claimed else silent < patience.start:
            return None
        case EngineState.LOST:
            return end(attempt.stop_requested or Cause.MACHINE_LOST, "the engine no longer knows it")
        case _ if node.unreachable:
            return None
        case _ if claimed and silent > patience.heartbeat:
            evidence = f"no heartbeat for {silent.total_seconds():.0f} s"
            return end(attempt.stop_requested or Cause.MACHINE_LOST, evidence)
        case _ if not claimed and (silent > patience.start or _billed_for(attempt, now) > patience.billed):
            evidence = f"no agent after {max(silent, _billed_for(attempt, now)).total_seconds():.0f} s"
            return end(attempt.stop_requested or Cause.LAUNCH_FAILED, evidence)
        # A local machine may have been suspended together with the broker, but it costs nothing.
        case _ if claimed and node.silent > patience.billed and attempt.placement.offer.price:
            evidence = f"no heartbeat for {node.silent.total_seconds():.0f} s by the object store's clock"
            return end(attempt.stop_requested or Cause.MACHINE_LOST, evidence)
        case _:
            return None


def _gone_cause(
    attempt: AttemptView, observation: Observation, now: datetime, *, claimed: bool
) -> tuple[Cause, str, datetime]:
    """Why the machine of an attempt without an exit record is gone, the evidence, and since when."""
    at = observation.gone_at or now
    if attempt.stop_requested is not None:
        return attempt.stop_requested, "the machine was ended before the agent's final report", at
    if observation.no_capacity:
        return Cause.NO_CAPACITY, observation.evidence, now
    if observation.interrupted:
        return Cause.PREEMPTED, observation.evidence, at
    if not claimed:
        return Cause.LAUNCH_FAILED, observation.evidence or "the machine went away before the agent started", at
    return Cause.AGENT_DIED, observation.evidence or "the machine is gone and left no exit record", at


def _billed_for(attempt: AttemptView, now: datetime) -> timedelta:
    return now - attempt.up_since if attempt.up_since is not None else timedelta(0)


def needs_removal(attempt: AttemptView, now: datetime, grace: timedelta) -> bool:
    """Whether the machine must be ended by force: its attempt is over, or the stop was requested longer than ``grace``
    ago, or before an agent ran that could save a checkpoint.
    """
    if attempt.state.final:
        return True
    if attempt.stop_requested_at is None:
        return False
    return attempt.claimed_at is None or now - attempt.stop_requested_at > grace
