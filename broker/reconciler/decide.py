"""Decides the next steps of a job. Pure.

The reconciler takes the steps; their results become events, and the next call decides again. Nothing is kept between
calls, so a restart at any moment continues from the events.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.events import wait_reasons
from broker.core.events.lifecycle import POOL_AVOIDED_AFTER
from broker.core.events.outcomes import AttemptState, Cause, JobState, Next
from broker.core.events.views import AttemptView, JobView


@dataclass(frozen=True, slots=True)
class Submit:
    """Find the requested attempt at its engine, or submit it."""

    attempt: AttemptView


@dataclass(frozen=True, slots=True)
class Abandon:
    """Abandon a requested attempt that was never launched."""

    attempt: AttemptView
    cause: Cause


@dataclass(frozen=True, slots=True)
class Observe:
    """Observe the attempt's machine and run folder. With ``remove``, end the machine: it is no longer needed."""

    attempt: AttemptView
    remove: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Tell the attempt to checkpoint and stop."""

    attempt: AttemptView
    cause: Cause
    reason: wait_reasons.StopReason | None = None


@dataclass(frozen=True, slots=True)
class HandOver:
    """Let the standby carry the job."""

    attempt: AttemptView


@dataclass(frozen=True, slots=True)
class Place:
    """Plan, judge and request an attempt."""

    why: str


@dataclass(frozen=True, slots=True)
class RunTasks:
    """Start tasks of the array as others end, and end the array with its last task."""


@dataclass(frozen=True, slots=True)
class AwaitJobs:
    """Begin once the predecessors of the job have ended."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Out of money or time: wait for a person."""

    reason: wait_reasons.WaitReason


@dataclass(frozen=True, slots=True)
class End:
    """The job is over."""

    state: JobState
    reason: wait_reasons.EndReason


@dataclass(frozen=True, slots=True)
class Close:
    """The job's machines are gone and its cost is settled: release the hold."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do before ``until`` (None: until a person acts)."""

    until: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class MissDeadline:
    """The deadline has passed: record it once and continue."""


@dataclass(frozen=True, slots=True)
class Release:
    """The job waits for a person or for the end of a freeze: release its hold."""


@dataclass(frozen=True, slots=True)
class Expire:
    """The approval request expired: refuse it."""


Step = (
    MissDeadline
    | Expire
    | Release
    | Submit
    | Abandon
    | Observe
    | Stop
    | HandOver
    | Place
    | RunTasks
    | AwaitJobs
    | Pause
    | End
    | Close
    | Wait
)

# Fruitless attempts are repeated at growing intervals (2 s, 4 s, … up to 5 minutes), to spare machines that cannot work
# or that the job itself breaks.
_SLOWEST_RETRY = timedelta(minutes=5)
# An attempt whose machine existed for this long does not count as fruitless.
_FRUITFUL_AFTER = timedelta(minutes=1)

# How long the removal of a lost machine delays its job.
_LOST_DELAY = timedelta(minutes=1)


def next_steps(
    view: JobView,
    now: datetime,
    *,
    billed: timedelta = timedelta(0),
    holds: bool = False,
    paid_until: datetime | None = None,
) -> list[Step]:
    """The next steps, in order.

    ``billed``: machine time used so far over all attempts. ``holds``: the job has money set aside. ``paid_until``
    (UTC): when the money for the running attempt ends; its node stops itself then, and the broker stops it if the node
    does not.

    Machines of earlier attempts that are not known to be gone are observed and removed along with the main step. They
    delay the job, so that it never runs twice. A lost machine delays it only for a limited time: if it reappears, the
    newer attempt prevents it from writing. A standby takes over instead of a new placement, and sooner: an attempt
    whose agent reported its end need not be gone.
    """
    if view.deadline is not None and now > view.deadline and not view.deadline_missed and not view.state.final:
        return [MissDeadline()]
    if view.asked is not None and view.asked.expired(now) and not view.state.final:
        return [Expire()]
    latest, standby = view.latest, view.standby
    unfinished = [a for a in view.attempts if not a.over and a is not standby]
    if latest is not None and not latest.state.final:
        removals: list[Step] = [Observe(a, remove=True) for a in unfinished if a is not latest]
        step = _running_step(view, latest, now, billed, paid_until)
        if standby is None or isinstance(step, Stop):
            return [*removals, step]
        beside = _standby_step(view, latest, standby, now)
        return [*removals, beside] if isinstance(beside, Stop) else [*removals, beside, step]
    removals = [Observe(a, remove=True) for a in unfinished]
    blocking = [a for a in unfinished if _delays_job(a, now, standby)]
    if standby is not None and blocking:
        return [*removals, _step_beside(standby, needed=not view.cancel_requested)]
    if standby is not None:
        step = _idle_step(view, now, billed, holds=holds, all_gone=False)
        if isinstance(step, Place):
            return [*removals, HandOver(standby) if standby.stop_requested is None else Observe(standby, remove=True)]
        beside = _step_beside(standby, needed=isinstance(step, Wait) and step.until is not None)
        return [*removals, beside] if isinstance(beside, Stop) else [*removals, beside, step]
    if blocking:
        # An engine may fail to end a machine for a long time; a cancelled job does not wait for that.
        cancelled = view.cancel_requested and not view.state.final
        if not cancelled or not all(a.removal_delayed for a in blocking):
            return removals
    return [*removals, _idle_step(view, now, billed, holds=holds, all_gone=not unfinished)]


def _standby_step(view: JobView, latest: AttemptView, standby: AttemptView, now: datetime) -> Step:
    """The step beside the attempt that works: once the standby is ready, that attempt stops, checkpoint first."""
    assert standby.standby_until is not None, "it stands by"
    stop = latest.stop_requested
    is_late = stop is None and now >= standby.standby_until
    needed = not view.cancel_requested and stop in (None, Cause.MOVED) and not is_late
    if needed and stop is None and standby.ready_at is not None and standby.stop_requested is None:
        offer, advantage = standby.placement.offer, wait_reasons.MoveAdvantage.STRATEGY
        reason = wait_reasons.MovesElsewhere(advantage=advantage, to=offer.capacity_type, pool=offer.pool, beside=True)
        return Stop(latest, Cause.MOVED, reason)
    return _step_beside(standby, needed=needed)


def _step_beside(standby: AttemptView, *, needed: bool) -> Step:
    """The step of a standby, which is dropped if it is not ``needed``."""
    if standby.state is AttemptState.REQUESTED:
        return Submit(standby) if needed else Abandon(standby, Cause.NOT_NEEDED)
    if needed or standby.stop_requested is not None:
        return Observe(standby, remove=standby.stop_requested is not None)
    return Stop(standby, Cause.NOT_NEEDED)


def _delays_job(attempt: AttemptView, now: datetime, standby: AttemptView | None) -> bool:
    if standby is None and attempt.state is not AttemptState.LOST:
        return True
    if standby is not None and attempt.reported:
        return False
    return now - (attempt.ended_at or now) < _LOST_DELAY


def _idle_step(view: JobView, now: datetime, billed: timedelta, *, holds: bool, all_gone: bool) -> Step:
    """The next step of a job without a running attempt."""
    if view.state.final:
        if view.closed or not all_gone:
            return Wait(None, "closed" if view.closed else "a machine is not known to be gone")
        return Close()
    if view.awaits_predecessors and not view.cancel_requested:
        return AwaitJobs()
    if view.job.array is not None:
        return RunTasks()
    latest = view.latest
    if latest is not None and latest.next is Next.SUCCEED:
        return End(
            JobState.SUCCEEDED, wait_reasons.Completed() if latest.cause is Cause.COMPLETED else _stop_cause(latest)
        )
    if view.cancel_requested:
        return End(JobState.CANCELLED, wait_reasons.Cancelled())
    if view.state is JobState.AWAITING_APPROVAL:
        return Wait(None, "awaiting approval")
    if view.state is JobState.PAUSED_BUDGET:
        return Release() if holds and all_gone else Wait(None, "paused")
    if holds and all_gone and _is_frozen(view):
        return Release()
    step = Place("first attempt") if latest is None else _step_after_end(view, latest, now)
    if isinstance(step, Place) and billed >= view.max_duration:
        return Pause(wait_reasons.MaxDurationUsed(limit_seconds=view.max_duration.total_seconds()))
    return step


def _is_frozen(view: JobView) -> bool:
    """Whether a freeze keeps the job from starting. Its money is free for others until then."""
    waiting = view.waiting
    return isinstance(waiting, wait_reasons.PolicyDenies) and any(
        objection.code == "frozen" for objection in waiting.objections
    )


def _running_step(
    view: JobView, latest: AttemptView, now: datetime, billed: timedelta, paid_until: datetime | None
) -> Step:
    if latest.state is AttemptState.REQUESTED:
        return Abandon(latest, Cause.CANCELLED_BY_USER) if view.cancel_requested else Submit(latest)
    if latest.stop_requested is None:
        if view.cancel_requested:
            return Stop(latest, Cause.CANCELLED_BY_USER, wait_reasons.Cancelled())
        if billed >= view.max_duration:
            limit = view.max_duration.total_seconds()
            return Stop(latest, Cause.MAX_DURATION, wait_reasons.MaxDurationUsed(limit_seconds=limit))
        if paid_until is not None and now >= paid_until:
            return Stop(latest, Cause.PAID_UNTIL, wait_reasons.HoldEnded(at=paid_until))
    return Observe(latest)


def _step_after_end(view: JobView, latest: AttemptView, now: datetime) -> Step:
    """The step that follows the end of an attempt, by ``OUTCOMES`` and the job's limits."""
    ended_at = latest.ended_at or now
    assert latest.cause is not None, "only what has ended is followed by something"
    evidence = wait_reasons.cause_text(latest.cause, latest.evidence)
    stopped = _stop_cause(latest)
    if view.job.session is not None and latest.cause is Cause.MAX_DURATION:
        return End(JobState.SUCCEEDED, stopped)  # its agreed time is over
    # A node may stop by itself when its money ends, before it reads that more was refused.
    is_money_refused = latest.stop_requested is Cause.MONEY_REFUSED and latest.cause is Cause.PAID_UNTIL
    match Next.PAUSE if is_money_refused else latest.next:
        case Next.GIVE_UP:
            return End(JobState.FAILED, stopped)
        case Next.CANCEL:
            return End(JobState.CANCELLED, stopped)
        case Next.PAUSE if view.extended_after != latest.number:
            return Pause(_pause_reason(latest, stopped))
        case Next.RETRY_FAILURE if view.failures > view.job.retry.failures:
            return End(JobState.FAILED, stopped)
        case Next.RETRY_FAILURE:
            return _place_after(ended_at, view.job.retry.backoff, now, f"retry after {evidence}")
        case Next.PAUSE:
            return Place("extended")
        case _ if view.failed_launches >= view.job.retry.launches:
            return Pause(_launch_failures(view))
        case _:
            return _place_after(ended_at, _retry_delay(view), now, evidence)


def _stop_cause(latest: AttemptView) -> wait_reasons.AttemptStopped:
    assert latest.cause is not None, "it has ended"
    if latest.is_own_failure and latest.cause is Cause.PREEMPTED:
        unconfirmed = f"the provider does not confirm that it took the machine back ({latest.evidence})"
        return wait_reasons.AttemptStopped(cause=Cause.AGENT_DIED, evidence=unconfirmed)
    return wait_reasons.AttemptStopped(cause=latest.cause, evidence=latest.evidence)


def _pause_reason(latest: AttemptView, stopped: wait_reasons.AttemptStopped) -> wait_reasons.WaitReason:
    evidence = "" if latest.stop_reason else latest.evidence
    if latest.cause is Cause.STOPPED_BY_POLICY:
        return wait_reasons.StoppedByPolicy(stop=latest.stop_reason, evidence=evidence)
    if Cause.MONEY_REFUSED in (latest.stop_requested, latest.cause):
        return wait_reasons.MoneyEnded(stop=latest.stop_reason, evidence=evidence)
    return stopped


def _launch_failures(view: JobView) -> wait_reasons.LaunchesFailed:
    """Why a job with failing launches is paused: failures by pool, and the evidence of the last one."""
    unclaimed = [a for a in view.attempts if a.claimed_at is None and a.cause not in (None, Cause.NO_CAPACITY)]
    pools = Counter(a.placement.offer.pool for a in unclaimed)
    if not unclaimed:
        return wait_reasons.LaunchesFailed(count=view.failed_launches)
    last = unclaimed[-1]
    return wait_reasons.LaunchesFailed(
        count=view.failed_launches, pools=pools, attempt=last.number, cause=last.cause, evidence=last.evidence
    )


def _place_after(ended_at: datetime, wait: timedelta, now: datetime, reason: str) -> Step:
    if now < ended_at:  # the clock was set back since: its earlier time is not waited for
        return Place(reason)
    return Wait(ended_at + wait, reason) if now < ended_at + wait else Place(reason)


def _retry_delay(view: JobView) -> timedelta:
    """The wait before the next attempt, which doubles with each fruitless one in a row. None after a fruitful one, and
    none if the latest launch failed for a reason after which its pool is avoided: another pool may work."""
    latest = view.latest
    if latest is not None and latest.claimed_at is None and latest.cause in POOL_AVOIDED_AFTER:
        return timedelta(0)
    fruitless = 0
    for attempt in reversed(view.attempts):
        if attempt.standby_until is not None:
            continue
        if not _is_fruitless(attempt):
            break
        if attempt.cause not in POOL_AVOIDED_AFTER:
            fruitless += 1
    if fruitless == len(view.attempts):
        fruitless = view.attempt_count  # attempts that the view does not keep in full were fruitless, too
    return min(timedelta(seconds=2 ** min(fruitless, 20)), _SLOWEST_RETRY) if fruitless else timedelta(0)


def _is_fruitless(attempt: AttemptView) -> bool:
    """Whether the attempt never ran, or died without an interruption and without a checkpoint.

    An attempt that was interrupted or moved before it ran counts only if its machine existed for less than
    `_FRUITFUL_AFTER`: the strategy decides how long to wait for volatile capacity.
    """
    was_taken = attempt.cause in (Cause.PREEMPTED, Cause.MOVED)
    if was_taken and attempt.up_since and attempt.ended_at and attempt.ended_at - attempt.up_since >= _FRUITFUL_AFTER:
        return False
    has_died = attempt.cause in (Cause.AGENT_DIED, Cause.MACHINE_LOST, Cause.FENCED)
    return attempt.running_at is None or (has_died and not attempt.checkpoints)
