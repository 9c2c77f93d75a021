"""The time limit of a job, and the default for a job that gives its work (`work:`) but no limit (`max_duration:`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType

ROOM = 1.5  # the limit per expected time: estimates of work may be a third too low
_SPARE = timedelta(hours=1)  # in addition, for the starts and waits of short jobs
_FALLBACKS = 3  # uninterruptible placements that the hold covers too


def time_limit(job: Job, placements: Sequence[Placement], default: timedelta) -> timedelta:
    """The job's own limit. Without one, and with known work: `ROOM` × the longest expected time on the best placement
    and its fallbacks, plus an hour, rounded up to minutes. Without known work: the policy's ``default``."""
    if job.max_duration is not None:
        return job.max_duration
    steady = [one for one in placements if one.offer.capacity_type is not CapacityType.SPOT]
    expected = [one.duration for one in (*placements[:1], *steady[:_FALLBACKS]) if one.duration is not None]
    if not expected:
        return default
    limit = max(expected) * ROOM + _SPARE
    return -(-limit // timedelta(minutes=1)) * timedelta(minutes=1)


def never_done(job: Job, placements: Sequence[Placement]) -> timedelta | None:
    """The shortest expected time, if the job's `max_duration` is shorter than that on every placement; else None."""
    needed = [one.duration for one in placements if one.duration is not None]
    if job.max_duration is None or not needed or len(needed) < len(placements):
        return None
    return min(needed) if min(needed) > job.max_duration else None
