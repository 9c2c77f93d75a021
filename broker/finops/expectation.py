"""Forecasts the spending of the remaining days of a period, with an interval. Pure; USD as floats: estimates.

The estimate comes from `smoothing`. The formula's interval alone is too narrow, because real spending shifts in ways
that the model does not know. So the interval uses the errors of the same method on earlier days of the same series, in
units of the formula's standard deviation (conformal prediction with a prior). A series too short for such errors gets
the formula's interval, widened. The farther ahead, the likelier is a shift that neither knows: beyond `_NEAR` days the
interval grows with the square root of the days ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from broker.finops.smoothing import Smoothed, smooth

COVERED = 0.8
"""The share of intervals that should contain the actual spending."""

LEAST_DAYS = 5
"""Fewer days of history allow no estimate."""

# The prior: the formula's deviation times 1.4, with the weight of ten errors. An observed error counts a third, because
# the errors of neighbouring days overlap.
_WIDER = 1.4
_PRIOR_WEIGHT = 10.0
_MISS_WEIGHT = 1 / 3
_PRIOR_STEPS = 10

_NEAR = 10  # days ahead
_LONGEST = 90  # days of history that are looked at
_FIRST_ORIGIN = 7
_EVERY = 2
_LARGEST_MISS = 8.0  # in deviations: beyond it a past without any variation would make the interval endless
_SMALLEST_DEVIATION = 0.01  # of the estimate itself


@dataclass(frozen=True, slots=True)
class Expectation:
    """The spending of the days ahead: the estimate, and the bounds of the `COVERED` interval (USD, 0 or more)."""

    amount: float
    low: float
    high: float


def expect(days: Sequence[float], ahead: int) -> Expectation | None:
    """The total of the ``ahead`` days after ``days`` (daily spending in USD, oldest first, no gaps); None for fewer
    than `LEAST_DAYS` days. Raises ValueError for a negative ``ahead``."""
    if ahead < 0:
        raise ValueError(f"{ahead} days ahead")
    if len(days) < LEAST_DAYS:
        return None
    history = list(days[-_LONGEST:])
    found = smooth(history)
    amount = max(0.0, found.level * ahead)
    half = _reach(history, ahead) * math.sqrt(max(1.0, ahead / _NEAR)) * _deviation(found, ahead)
    return Expectation(amount, max(0.0, amount - half), amount + half)


def _deviation(found: Smoothed, ahead: int) -> float:
    return max(found.deviation(ahead), _SMALLEST_DEVIATION * abs(found.level) * ahead)


def _reach(days: Sequence[float], ahead: int) -> float:
    """The half-width of the interval, in standard deviations."""
    misses = sorted([*_prior(), *((miss, _MISS_WEIGHT) for miss in _misses(days, ahead))])
    missing = COVERED * sum(weight for _, weight in misses)
    for miss, weight in misses:
        missing -= weight
        if missing <= 0:
            return miss
    return misses[-1][0]


def _prior() -> Iterator[tuple[float, float]]:
    normal = NormalDist()
    for step in range(_PRIOR_STEPS):
        # The upper end of each tenth; of the last one its middle, since its end is infinite.
        share = min((step + 1) / _PRIOR_STEPS, 1 - 0.5 / _PRIOR_STEPS)
        yield _WIDER * normal.inv_cdf(0.5 + share / 2), _PRIOR_WEIGHT / _PRIOR_STEPS


def _misses(days: Sequence[float], ahead: int) -> Iterator[float]:
    """The errors of the same method on earlier days, in standard deviations, for as many days ahead, or at least half
    as many at the end of the series."""
    for origin in range(_FIRST_ORIGIN, len(days), _EVERY):
        reached = min(ahead, len(days) - origin)
        if not reached or reached * 2 < ahead:
            return
        found = smooth(days[:origin])
        deviation = _deviation(found, reached)
        miss = abs(sum(days[origin : origin + reached]) - found.level * reached)
        if not deviation:
            yield _LARGEST_MISS if miss else 0.0
        else:
            yield min(miss / deviation, _LARGEST_MISS)
