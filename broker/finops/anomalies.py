"""Anomalies: days with more spending than the weeks before explain. Pure; USD as floats, because only ratios matter.

The week's pattern of the eight weeks before is taken out (`weekdays`). Then the day alone, and the sums of the last two
and three days with it, are compared with the sums of as many days before. Such a stretch is an anomaly only if two
scores exceed their thresholds: its ratio to the dear ones (the 85th percentile) of the last four weeks, which accounts
for their spread, and its excess over the level that was smoothed up to its beginning, in units of the dear excesses of
the eight weeks, which accounts for their trend. A percentile that few days lie above does not move with an earlier
anomaly. Planned spending (purchases, reservations, accepted jobs) is known beforehand and is subtracted first, so it
never raises an alarm. Each series is judged by itself; a decrease in one does not offset an increase in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from statistics import fmean, median

from broker.finops.weekdays import week_pattern

WINDOW = 28
"""The number of preceding days that a day is compared with."""

MEMORY = 56
"""The number of preceding days that the week's pattern, the level and its excesses are taken from."""

WARM_UP = 14
"""The number of days from the first spending on that are not judged."""

_STRETCHES = (1, 2, 3)  # days
_SETTLED = 7  # days until the level says something
_SMOOTHING = 0.3
_DEAR = 0.85  # percentile
_LEAST_SCALE = 0.2  # of the mean
_LEAST_SHARE = 0.5  # of the stretch's mean excess: with less, its last day is the one after an incident
_LEAST_OF_HIGHEST = 0.05  # of the dearest day so far: what a pause in the spending is compared with
_QUIET = 2  # days that end an incident


@dataclass(frozen=True, slots=True)
class AlarmThreshold:
    """The thresholds of both scores. ``ratio``: the stretch divided by a dear one; ``surprise``: its excess over the
    level, divided by a dear excess."""

    ratio: float = 1.4
    surprise: float = 1.5


@dataclass(frozen=True, slots=True)
class StretchScore:
    """The scores of the last days up to one day."""

    ratio: float
    surprise: float


@dataclass(frozen=True, slots=True)
class DayScore:
    """The scores of the stretches that end with a day, the shortest first; ``excess``: the day's cost above the level
    before the longest (USD)."""

    stretches: tuple[StretchScore, ...]
    excess: float

    def exceeds(self, at: AlarmThreshold) -> bool:
        """Whether both scores of one stretch exceed their thresholds."""
        return any(one.ratio > at.ratio and one.surprise > at.surprise for one in self.stretches)


@dataclass(frozen=True, slots=True)
class Incident:
    """Anomalous days, at most one ordinary day between two of them, which raise one alarm: numbers of the first and the
    last day in the series. ``excess``: their cost above the usual level (USD)."""

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
        window = unexplained[max(start, number - MEMORY) : number + 1]
        found.append(_score(window, _LEAST_OF_HIGHEST * highest) if judged else None)
        highest = max(highest, amount)
    return found


def incidents(found: Sequence[DayScore | None], at: AlarmThreshold) -> list[Incident]:
    """The incidents among the scores of consecutive days, oldest first."""
    return list(_runs(found, at))


def _score(window: Sequence[float], least: float) -> DayScore:
    """The scores of the last day of the window. ``least``: what a day is compared with at least (USD)."""
    *before, amount = window
    week = week_pattern(before)
    level, levels = median(week.levelled[:_SETTLED]), list[float]()
    for day in week.levelled:
        levels.append(level)
        level += _SMOOTHING * (day - level)
    levels.append(level)
    days = [*week.levelled, amount - week.effects[0] * level]
    usual = max(fmean(before), least)
    found = []
    for length in _STRETCHES:
        sums = [sum(days[end - length : end]) for end in range(length, len(days) + 1)]
        excesses = [whole - length * before for whole, before in zip(sums, levels, strict=False)]
        dear = max(_percentile(sums[:-1][-WINDOW:], _DEAR), length * least)
        scale = max(_percentile(excesses[_SETTLED:-1], _DEAR), _LEAST_SCALE * length * usual)
        share = excesses[-1] / length * _LEAST_SHARE
        goes_on = days[-1] - levels[-length] >= share
        found.append(StretchScore(sums[-1] / dear, excesses[-1] / scale if goes_on else 0.0))
    return DayScore(tuple(found), days[-1] - levels[-max(_STRETCHES)])


def _percentile(amounts: Sequence[float], share: float) -> float:
    """With linear interpolation."""
    ordered = sorted(amounts)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _runs(found: Sequence[DayScore | None], at: AlarmThreshold) -> Iterator[Incident]:
    first = last = -1
    excess = 0.0
    for number, score in enumerate(found):
        if score is None or not score.exceeds(at):
            continue
        if first >= 0 and number - last > _QUIET:
            yield Incident(first, last, excess)
            first, excess = -1, 0.0
        first, last = number if first < 0 else first, number
        excess += score.excess
    if first >= 0:
        yield Incident(first, last, excess)
