"""The week's pattern in daily spending. Pure; USD as floats: estimates.

Each day is compared with the mean of the seven days around it. The mean deviation of each weekday is its effect,
reduced by the share of the differences between weekdays that chance alone explains (the shrinkage of James and Stein):
without a pattern, or with little history, the effect is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

_WEEK = 7
_LEAST = 14  # days that have three on each side


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
    known = sum(len(one) for one in by_weekday)
    if known < _LEAST or not all(by_weekday):
        return WeekPattern((0.0,) * _WEEK, tuple(days))
    means = [fmean(one) for one in by_weekday]
    within = sum((value - mean) ** 2 for one, mean in zip(by_weekday, means, strict=True) for value in one)
    centre = fmean(means)
    between = sum((mean - centre) ** 2 for mean in means) / (_WEEK - 1)
    chance = within / max(1, known - _WEEK) / (known / _WEEK)
    kept = max(0.0, 1 - chance / between) if between > 0 else 0.0
    effects = tuple(kept * (mean - centre) for mean in means)
    levelled = tuple(days[number] - around[number] * effects[(number - length) % _WEEK] for number in range(length))
    return WeekPattern(effects, levelled)
