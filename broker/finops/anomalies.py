"""Anomalies: days with more spending than the weeks before explain. Pure; USD as floats, because only ratios matter.

A day is an anomaly only if two scores exceed their thresholds: its ratio to the 95th percentile of the last 28 days,
which accounts for their spread, and its distance above the smoothed level in units of the usual residual (median
absolute residual, scaled as a standard deviation), which accounts for their trend. Planned spending (purchases,
reservations, accepted jobs) is known beforehand and is subtracted first, so it never raises an alarm. Each series is
judged by itself; a decrease in one does not offset an increase in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from statistics import median

WINDOW = 28
"""The number of preceding days that a day is compared with."""

WARM_UP = 14
"""The number of days from the first spending on that are not judged."""

_PERCENTILE = 0.95
_SMOOTHING = 0.3
_SCALE = 1.4826  # of a median absolute residual to a standard deviation, for normal residuals
_LEAST_SCALE = 0.1  # of the level
_LEAST_OF_HIGHEST = 0.05  # of the dearest day so far: what a pause in the spending is compared with


@dataclass(frozen=True, slots=True)
class AlarmThreshold:
    """The thresholds of both scores. ``ratio``: the day divided by the 95th percentile; ``surprise``: the excess over
    the level, in scaled residuals."""

    ratio: float = 1.2
    surprise: float = 1.5


@dataclass(frozen=True, slots=True)
class DayScore:
    """A day's scores; ``excess``: its cost above the smoothed level (USD)."""

    ratio: float
    surprise: float
    excess: float

    def exceeds(self, at: AlarmThreshold) -> bool:
        """Whether both scores exceed their thresholds."""
        return self.ratio > at.ratio and self.surprise > at.surprise


@dataclass(frozen=True, slots=True)
class Incident:
    """Consecutive anomalous days, which raise one alarm: numbers of the first and the last day in the series.
    ``excess``: their cost above the usual level (USD)."""

    first: int
    last: int
    excess: float


class AnomalyAnswer(StrEnum):
    """What somebody said of an incident: it should not have happened; it is no anomaly; it was planned."""

    YES = "yes"
    NO = "no"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class IncidentAnswer:
    """Who said it, when (UTC), and why."""

    answer: AnomalyAnswer
    by: str
    at: datetime
    reason: str = ""


def scores(days: Sequence[float], planned: Sequence[float] | None = None, *, since: int = 0) -> list[DayScore | None]:
    """The scores of each day, from the days before it; None while these are too few, and before the day ``since``.
    ``planned``: the planned part of each day (USD). A day with net refunds counts as one without spending. Raises
    ValueError if the lengths differ."""
    known = planned if planned is not None else [0.0] * len(days)
    unexplained = [max(0.0, amount - part) for amount, part in zip(days, known, strict=True)]
    start = next((i for i, amount in enumerate(unexplained) if amount), len(unexplained))
    highest, found = 0.0, list[DayScore | None]()
    for number, amount in enumerate(unexplained):
        judged = number >= max(since, start + WARM_UP)
        found.append(_score(amount, unexplained[max(start, number - WINDOW) : number], highest) if judged else None)
        highest = max(highest, amount)
    return found


def incidents(found: Sequence[DayScore | None], at: AlarmThreshold) -> list[Incident]:
    """The incidents among the scores of consecutive days, oldest first."""
    return list(_runs(found, at))


def _score(amount: float, before: Sequence[float], highest: float) -> DayScore:
    level, residuals = before[0], list[float]()
    for day in before[1:]:
        residuals.append(abs(day - level))
        level += _SMOOTHING * (day - level)
    least = _LEAST_OF_HIGHEST * highest
    usual = max(_percentile(before), least)
    scale = max(_SCALE * median(residuals), _LEAST_SCALE * level, _LEAST_SCALE * least)
    return DayScore(amount / usual, (amount - level) / scale, amount - level)


def _percentile(amounts: Sequence[float]) -> float:
    """The 95th percentile, with linear interpolation."""
    ordered = sorted(amounts)
    place = _PERCENTILE * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _runs(found: Sequence[DayScore | None], at: AlarmThreshold) -> Iterator[Incident]:
    first, excess = -1, 0.0
    for number, score in enumerate((*found, None)):
        if score is not None and score.exceeds(at):
            first = number if first < 0 else first
            excess += score.excess
        elif first >= 0:
            yield Incident(first, number - 1, excess)
            first, excess = -1, 0.0
