"""Days on which more was spent than the weeks before explain. Pure; USD as floats, because only ratios are compared.

Two scores, and a day is out of the ordinary only where both say so: how far it lies above the 95th percentile of the
last 28 days, which knows how uneven they were, and how far above the smoothed level in units of the usual surprise
(median absolute residual, scaled as a standard deviation), which knows where they were heading. Planned spending
(purchases, reservations, accepted jobs) is known beforehand and is taken off first: it never alarms. Nothing is netted:
each series is judged by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

WINDOW = 28
"""Days before a day that it is compared with."""

WARM_UP = 14
"""Days from the first spending on that are not judged."""

_PERCENTILE = 0.95
_SMOOTHING = 0.3
_SCALE = 1.4826  # of a median absolute residual to a standard deviation, for normal residuals
_LEAST_SCALE = 0.1  # of the level
_LEAST_OF_HIGHEST = 0.05  # of the dearest day so far: what a pause in the spending is compared with


@dataclass(frozen=True, slots=True)
class AlarmThreshold:
    """What both scores must exceed. ``ratio``: the day over the 95th percentile; ``surprise``: over the level, in
    scaled residuals."""

    ratio: float = 1.2
    surprise: float = 1.5


@dataclass(frozen=True, slots=True)
class DayScore:
    """A day's scores; ``excess``: what it cost above the smoothed level (USD)."""

    ratio: float
    surprise: float
    excess: float

    def exceeds(self, at: AlarmThreshold) -> bool:
        """Whether both scores say so."""
        return self.ratio > at.ratio and self.surprise > at.surprise


@dataclass(frozen=True, slots=True)
class Incident:
    """Consecutive days out of the ordinary, by their numbers in the series, both included: one alarm. ``excess``: what
    they cost above the usual level (USD)."""

    first: int
    last: int
    excess: float


def scores(days: Sequence[float], planned: Sequence[float] | None = None, *, since: int = 0) -> list[DayScore | None]:
    """The scores of each day by the days before it; None while there are too few, and before the day ``since``.
    ``planned``: the part of each day that was known beforehand (USD). A day of refunds counts as one without spending.
    Raises ValueError where the two have different lengths."""
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
    """With linear interpolation."""
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
