"""The time that a stated share of a job's runs does not exceed. The hold of a job with known work covers it.

The model is `expected_run`'s: work in stretches between checkpoints, each of which starts over at an interruption, and
interruptions as a Poisson process. The number of interruptions of a run is then negative binomial, and each costs at
most one stretch and one restart. So the bound is kept in at least the share of runs, if work and rate are right.
"""

from __future__ import annotations

import math
from datetime import timedelta
from statistics import NormalDist

from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.values.figures import hours_of
from broker.placement.conditions import Conditions
from broker.placement.pricing.run_model import Effort

# Added to the bound: a start may take longer, and a hold is topped up a quarter of an hour before its end.
SPARE = timedelta(minutes=20)
_MANY = 200.0  # above this expectation, the number of interruptions is approximated by a normal distribution
_NEVER = 1e9  # hours


def longest_of(job: Job, placement: Placement, share: float) -> timedelta | None:
    """The time from launch to finish that at least ``share`` of the runs on this placement do not exceed, plus `SPARE`;
    None if the work is unknown. ``share``: over 0 and below 1. Pure."""
    if placement.duration is None:
        return None
    effort = Effort.of(job, Conditions())
    rate, start = placement.interruptions_per_hour, effort.start_on(placement.offer.capacity_type)
    interval = effort.interval_at(rate)
    work = hours_of(placement.duration) * placement.useful_fraction
    restart = start + effort.restart
    found = restart + run_within(share, work, rate, interval, effort.write, restart)
    return max(timedelta(hours=min(found, _NEVER)), placement.duration) + SPARE


def run_within(share: float, work: float, rate: float, interval: float, write: float, restart: float) -> float:
    """Hours that at least ``share`` of the runs do not exceed. Arguments as of `expected_run`."""
    if work <= interval:
        stretches, stretch, running = 1, work, work
    else:
        stretches, stretch = math.ceil(work / interval), interval + write
        running = work + stretches * write
    most = interruptions_within(share, stretches, rate * stretch)
    return running + most * (stretch + restart)


def interruptions_within(share: float, stretches: int, exposed: float) -> float:
    """The number of interruptions that at least ``share`` of the runs do not exceed. ``exposed``: expected
    interruptions in the time of one stretch; a stretch is done when it passes without one."""
    if exposed <= 0:
        return 0
    expected = stretches * math.expm1(min(exposed, 50.0))
    if expected > _MANY:
        deviation = math.sqrt(expected * math.exp(min(exposed, 50.0)))
        return math.ceil(expected + NormalDist().inv_cdf(share) * deviation)
    passes = math.exp(-exposed)
    chance, number = passes**stretches, 0
    total = chance
    while total < share and chance > 0:
        chance *= (number + stretches) / (number + 1) * (1 - passes)
        number += 1
        total += chance
    return number
