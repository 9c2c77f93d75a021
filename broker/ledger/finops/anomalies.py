"""Anomalies: days with more spending than the recent pattern predicts. Pure; USD as floats, because only ratios matter.

First the weekly pattern of the eight weeks before is removed (`week_pattern`). Then stretches of one, two and three
days that end with the day are compared with earlier stretches of the same length. A stretch is an anomaly only if two
scores exceed their thresholds: its ratio to the 85th percentile of the last four weeks, which accounts for their
spread; and its excess over the smoothed level at its start, divided by the 85th percentile of such excesses in the
eight weeks, which accounts for their trend. A percentile changes little with an earlier anomaly. Planned spending
(purchases, reservations, accepted jobs) is known beforehand and is subtracted first, so it never raises an alarm. Each
series is judged by itself; a decrease in one does not offset an increase in another.

For the weekly pattern, each day is compared with the mean of the seven days around it. The mean deviation of each
weekday is its effect, reduced by the share of the differences between weekdays that chance alone explains (the
shrinkage of James and Stein): without a pattern, or with little history, the effect is 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from statistics import fmean, median

from broker.economics.units import quantile

_WEEK = 7
_MIN_DAYS = 14  # days that have three on each side


@dataclass(frozen=True, slots=True)
class WeekPattern:
    """``effects``: the difference of each weekday from its week's mean, as a share of that mean; the first is that of
    the first day after the series. ``levelled``: the series without them (USD)."""

    effects: tuple[float, ...]
    levelled: tuple[float, ...]

    def share(self, ahead: int) -> float:
        """The mean of the next ``ahead`` days as a share of the mean of a week. Raises ZeroDivisionError for no day."""
        return 1 + sum(self.effects[number % _WEEK] for number in range(ahead)) / ahead


def week_pattern(days: Sequence[float]) -> WeekPattern:
    """The pattern of consecutive days, oldest first."""
    length = len(days)
    around = [fmean(days[max(0, number - 3) : number + 4]) for number in range(length)]
    by_weekday: list[list[float]] = [[] for _ in range(_WEEK)]
    for number in range(3, length - 3):
        if around[number] > 0:
            by_weekday[(number - length) % _WEEK].append(days[number] / around[number] - 1)
    count = sum(len(values) for values in by_weekday)
    if count < _MIN_DAYS or not all(by_weekday):
        return WeekPattern((0.0,) * _WEEK, tuple(days))
    means = [fmean(values) for values in by_weekday]
    within = sum((value - mean) ** 2 for values, mean in zip(by_weekday, means, strict=True) for value in values)
    centre = fmean(means)
    between = sum((mean - centre) ** 2 for mean in means) / (_WEEK - 1)
    chance = within / max(1, count - _WEEK) / (count / _WEEK)
    weight = max(0.0, 1 - chance / between) if between > 0 else 0.0
    effects = tuple(weight * (mean - centre) for mean in means)
    levelled = tuple(days[number] - around[number] * effects[(number - length) % _WEEK] for number in range(length))
    return WeekPattern(effects, levelled)


WINDOW = 28
"""The number of preceding days that a day is compared with."""

MEMORY = 56
"""The number of preceding days from which the weekly pattern, the level and its excesses are computed."""

WARM_UP = 14
"""The number of days after the first spending that are not judged."""

_STRETCHES = (1, 2, 3)  # days
_SETTLED = 7  # days until the level is meaningful
_SMOOTHING = 0.3
_HIGH_PERCENTILE = 0.85  # percentile
_MIN_SCALE = 0.2  # share of the mean
_MIN_SHARE = 0.5  # share of the stretch's mean excess; a last day with less follows an incident, outside of it
_LEAST_OF_HIGHEST = 0.05  # share of the highest day so far: the reference after a pause in spending
_QUIET = 2  # days that end an incident
_RATIO = 1.4  # of a stretch over the 85th percentile of stretches, above which it is anomalous
_SURPRISE = 1.5  # of its excess over the level, likewise over the 85th percentile of excesses; both are needed


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

    @property
    def is_anomalous(self) -> bool:
        """Whether both scores of one stretch exceed their thresholds."""
        return any(stretch.ratio > _RATIO and stretch.surprise > _SURPRISE for stretch in self.stretches)


@dataclass(frozen=True, slots=True)
class Incident:
    """Anomalous days that raise one alarm: the numbers of the first and the last in the series, with at most one
    ordinary day between two of them. ``excess``: their cost above the usual level (USD)."""

    first: int
    last: int
    excess: float


class AnomalyAnswer(StrEnum):
    """A person's answer to an incident: it should not have happened; it is not an anomaly; it was planned."""

    YES = "yes"
    NO = "no"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class IncidentAnswer:
    """The answer to an incident: by whom, when (UTC), and why."""

    answer: AnomalyAnswer
    by: str
    at: datetime
    reason: str = ""


def scores(days: Sequence[float], planned: Sequence[float] | None = None) -> list[DayScore | None]:
    """The scores of each day, from the days before it; None if these are too few. ``planned``: the planned part of
    each day (USD). A day with net refunds counts as one without spending. Raises ValueError if the lengths differ."""
    planned_parts = planned if planned is not None else [0.0] * len(days)
    unexplained = [max(0.0, amount - part) for amount, part in zip(days, planned_parts, strict=True)]
    start = next((i for i, amount in enumerate(unexplained) if amount), len(unexplained))
    highest, day_scores = 0.0, list[DayScore | None]()
    for number, amount in enumerate(unexplained):
        is_judged = number >= start + WARM_UP
        window = unexplained[max(start, number - MEMORY) : number + 1]
        day_scores.append(_score(window, _LEAST_OF_HIGHEST * highest) if is_judged else None)
        highest = max(highest, amount)
    return day_scores


def incidents(day_scores: Sequence[DayScore | None]) -> list[Incident]:
    """The incidents among the scores of consecutive days, oldest first."""
    return list(_runs(day_scores))


def _score(window: Sequence[float], floor: float) -> DayScore:
    """The scores of the last day of the window. ``floor``: the lowest reference for a day (USD)."""
    *previous, amount = window
    week = week_pattern(previous)
    level, levels = median(week.levelled[:_SETTLED]), list[float]()
    for day in week.levelled:
        levels.append(level)
        level += _SMOOTHING * (day - level)
    levels.append(level)
    days = [*week.levelled, amount - week.effects[0] * level]
    mean_level = max(fmean(previous), floor)
    stretches = []
    for length in _STRETCHES:
        sums = [sum(days[end - length : end]) for end in range(length, len(days) + 1)]
        excesses = [total - length * previous for total, previous in zip(sums, levels, strict=False)]
        high = max(quantile(sums[:-1][-WINDOW:], _HIGH_PERCENTILE), length * floor)
        scale = max(quantile(excesses[_SETTLED:-1], _HIGH_PERCENTILE), _MIN_SCALE * length * mean_level)
        share = excesses[-1] / length * _MIN_SHARE
        is_rising = days[-1] - levels[-length] >= share
        stretches.append(StretchScore(sums[-1] / high, excesses[-1] / scale if is_rising else 0.0))
    return DayScore(tuple(stretches), days[-1] - levels[-max(_STRETCHES)])


def _runs(day_scores: Sequence[DayScore | None]) -> Iterator[Incident]:
    first = last = -1
    excess = 0.0
    for number, score in enumerate(day_scores):
        if score is None or not score.is_anomalous:
            continue
        if first >= 0 and number - last > _QUIET:
            yield Incident(first, last, excess)
            first, excess = -1, 0.0
        first, last = number if first < 0 else first, number
        excess += score.excess
    if first >= 0:
        yield Incident(first, last, excess)
