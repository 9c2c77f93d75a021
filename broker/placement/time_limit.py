"""How long a job may run that says how much there is to do (`work:`) and not for how long (`max_duration:`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType

ROOM = 1.5  # times the expected time, for estimates of work that are too low by a third
_SPARE = timedelta(hours=1)  # on top, for starts and waits that short jobs cannot make up for
_FALLBACKS = 3  # placements that nobody takes away, which the hold covers, too


def time_limit(job: Job, placements: Sequence[Placement], default: timedelta) -> timedelta:
    """The job's own limit; else, where the work is known, `ROOM` times the longest time that it is expected to take on
    the best placement and on its fallbacks, and an hour, in whole minutes; else the policy's ``default``."""
    if job.max_duration is not None:
        return job.max_duration
    steady = [one for one in placements if one.offer.capacity_type is not CapacityType.SPOT]
    expected = [one.duration for one in (*placements[:1], *steady[:_FALLBACKS]) if one.duration is not None]
    if not expected:
        return default
    limit = max(expected) * ROOM + _SPARE
    return -(-limit // timedelta(minutes=1)) * timedelta(minutes=1)


def never_done(job: Job, placements: Sequence[Placement]) -> timedelta | None:
    """The least time that the job needs, where its own `max_duration` stops it before that wherever it runs."""
    needed = [one.duration for one in placements if one.duration is not None]
    if job.max_duration is None or not needed or len(needed) < len(placements):
        return None
    return min(needed) if min(needed) > job.max_duration else None
