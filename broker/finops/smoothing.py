"""Simple exponential smoothing of daily spending. Pure; amounts are USD as floats, because they are estimates.

Formulas: Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd edition, sections 8.1 and 8.7. The level
before the first day is the one with the least squared error, which is linear in it and so needs no search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_WEIGHTS = (0.05, *(tenth / 10 for tenth in range(1, 10)))


@dataclass(frozen=True, slots=True)
class Smoothed:
    """``weight`` of the newest day (0 to 1), ``level`` after the last day, and ``spread``, the standard deviation of
    a day's error (both USD a day)."""

    weight: float
    level: float
    spread: float

    def deviation(self, days: int) -> float:
        """The standard deviation of the sum of the next ``days``, in USD. The error of a day moves the level of every
        later one by ``weight``."""
        return self.spread * math.sqrt(sum((1 + later * self.weight) ** 2 for later in range(days)))


def smooth(days: Sequence[float]) -> Smoothed:
    """The weight and level with the least squared error of one-day forecasts. Raises ValueError for an empty series."""
    if not days:
        raise ValueError("no day to smooth")
    error, weight, level = min(_fit(days, weight) for weight in _WEIGHTS)
    return Smoothed(weight, level, math.sqrt(error / max(1, len(days) - 2)))


def _fit(days: Sequence[float], weight: float) -> tuple[float, float, float]:
    """The sum of squared errors, the weight, and the last level. The level is ``known + unknown × first`` throughout,
    with the first level as the unknown of a least-squares problem of one variable."""
    known, unknown, above, below = 0.0, 1.0, 0.0, 0.0
    for day in days:
        above += (day - known) * unknown
        below += unknown * unknown
        known += weight * (day - known)
        unknown *= 1 - weight
    level, squares = above / below, 0.0
    for day in days:
        squares += (day - level) ** 2
        level += weight * (day - level)
    return squares, weight, level
