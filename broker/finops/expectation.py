"""Forecasts the spending of the remaining days of a period, with an interval. Pure; USD as floats: estimates.

The weekly pattern is removed (`weekdays`), the models of `smoothing` predict the sum of the days ahead and its
deviation, and the pattern is applied again. The interval is calibrated on the past of the same series: by how many
deviations the same forecast would have missed earlier sums (conformal prediction). With a short past, those of as
slightly widened normal noise count as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from broker.finops.smoothing import FittedModels
from broker.finops.weekdays import week_pattern

COVERED = 0.8
"""The share of intervals that should contain the actual spending."""

LEAST_DAYS = 5
"""Fewer days of history allow no estimate."""

LONGEST = 90
"""The number of recent days that are used."""

# The prior: normal errors times 1.2, with the weight of three errors. Errors of neighbouring days overlap: those of as
# many days as are predicted count as two.
_WIDER = 1.2
_PRIOR_WEIGHT = 3.0
_PRIOR_STEPS = 20
_PERIODS_WEIGHT = 2.0

_FIRST_ORIGIN = 7
_EVERY = 2
_LARGEST_MISS = 8.0  # deviations; keeps the interval finite for a past without variation


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
    return _expect(tuple(days[-LONGEST:]), ahead)


@lru_cache(maxsize=1024)  # budgets query this often, and the days before today do not change during the day
def _expect(days: tuple[float, ...], ahead: int) -> Expectation:
    if not ahead or not any(days):
        return Expectation(0.0, 0.0, 0.0)
    week = week_pattern(days)
    models = FittedModels(week.levelled)
    found = models.predict(ahead)
    amount = max(0.0, found.mean * week.share(ahead))
    half = _reach(models, week.levelled, ahead) * found.deviation
    return Expectation(amount, max(0.0, amount - half), amount + half)


def _reach(models: FittedModels, days: Sequence[float], ahead: int) -> float:
    """The half-width of the interval, in standard deviations."""
    weight = _PERIODS_WEIGHT * _EVERY / ahead
    misses = sorted([*_prior(), *((miss, weight) for miss in _misses(models, days, ahead))])
    missing = COVERED * sum(weight for _, weight in misses)
    for miss, weight in misses:
        missing -= weight
        if missing <= 0:
            return miss
    return misses[-1][0]


def _prior() -> Iterator[tuple[float, float]]:
    normal = NormalDist()
    for step in range(_PRIOR_STEPS):
        # The upper end of each step; for the last step a point inside it, because its end is infinite.
        share = min((step + 1) / _PRIOR_STEPS, 1 - 0.25 / _PRIOR_STEPS)
        yield _WIDER * normal.inv_cdf(0.5 + share / 2), _PRIOR_WEIGHT / _PRIOR_STEPS


def _misses(models: FittedModels, days: Sequence[float], ahead: int) -> Iterator[float]:
    """The errors of the same forecast on earlier days, in its standard deviations."""
    for origin in range(len(days) - ahead, _FIRST_ORIGIN - 1, -_EVERY):
        found = models.predict(ahead, after=origin)
        miss = abs(sum(days[origin : origin + ahead]) - found.mean)
        yield min(miss / found.deviation, _LARGEST_MISS)
