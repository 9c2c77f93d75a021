"""The pools that a job avoids after failed launches, and the order of the others. Pure.

A job finds a working pool however many fail: a pool where a launch failed is avoided for a time, longer after each
failure; pools that the job has not tried since its last start come first; a pool that refused permanently is not tried
again.
"""

from collections.abc import Collection
from datetime import datetime, timedelta

from broker.core.events.lifecycle import rests_since_start
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView, PoolRest
from broker.core.events.wait_reasons import AttemptStopped
from broker.core.job.placements import Placement
from broker.core.job.reasons import Reason, Rejection

_FIRST_PAUSE = timedelta(minutes=5)

# Reasons that may cease to apply with time, after another launch or under another policy.
_TEMPORARY = frozenset(
    {
        Reason.UNAVAILABLE,
        Reason.NO_QUOTA,
        Reason.TOO_FEW_MACHINES,
        Reason.NO_PRICE,
        Reason.STALE_PRICE,
        Reason.SUSPECT_OFFER,
        Reason.LAUNCH_FAILED_LATELY,
        Reason.REFERENCE_PRICE,
        Reason.DENIED_BY_POLICY,
    }
)


def avoided_pools(view: JobView, now: datetime) -> dict[str, tuple[Reason, str]]:
    """The pools that the job avoids now, each with reason and evidence; other jobs may use them.

    A clock that was set back does not extend this time.
    """
    return {
        rest.pool: (Reason.LAUNCH_REFUSED if rest.banned else Reason.LAUNCH_FAILED_LATELY, _evidence(rest))
        for rest in view.rests
        if rest.banned or abs(now - rest.since) < rest.until - rest.since
    }


def may_stand_by(view: JobView, now: datetime) -> bool:
    """Whether a standby may begin beside the open attempt: its agent must know of such, and after each one that ended
    before its turn the job waits twice as long. True without an open attempt."""
    latest = view.latest
    if latest is None or latest.state.final:
        return True
    if latest.claimed_at is not None and not latest.knows_standbys:
        return False
    ends = [attempt.ended_at for attempt in view.attempts if attempt.number > latest.number and attempt.ended_at]
    return not ends or now - max(ends) >= _FIRST_PAUSE * 2 ** len(ends)


def untried_first(placements: Collection[Placement], view: JobView) -> tuple[Placement, ...]:
    """The placements, stably sorted by the number of failed launches in their pool since an agent of the job last
    reported."""
    tried = {rest.pool: rest.times for rest in rests_since_start(view)}
    return tuple(sorted(placements, key=lambda placement: tried.get(placement.offer.pool, 0)))


def permanent_refusal(view: JobView, rejections: Collection[Rejection]) -> AttemptStopped | None:
    """Why the job ends: every suitable pool refused its launch permanently, and the other offers are rejected for
    permanent reasons. None if an offer may become available.
    """
    reasons = {rejection.reason for rejection in rejections}
    banned = [rest for rest in view.rests if rest.banned]
    if not banned or Reason.LAUNCH_REFUSED not in reasons or reasons & _TEMPORARY:
        return None
    last = max(banned, key=lambda rest: rest.attempt)
    attempt = view.attempt(last.attempt)
    return AttemptStopped(cause=Cause.LAUNCH_REFUSED, evidence=attempt.evidence if attempt else last.evidence)


def _evidence(rest: PoolRest) -> str:
    return f"attempt {rest.attempt}: {rest.evidence}"
