"""Backtest of spending forecasts on recorded daily spending: `run_forecast_backtest`.

A window is 30 consecutive days; one begins every third day of a series. On days 10, 15 and 20 of it, the product's own
code (`broker.finops.expectation`) forecasts the total of the window from the days of the series so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from broker.backtest.spending.series import DailySpending
from broker.finops.expectation import COVERED, expect

PERIOD = 30
EVERY = 3
AT_DAYS = (10, 15, 20)


@dataclass(frozen=True, slots=True)
class ForecastMiss:
    """One forecast, with figures as fractions of the window's total. ``error``: the absolute error of the forecast;
    ``run_rate_error``: that of the average so far, continued; ``width``: the width of the interval."""

    day: int
    error: float
    run_rate_error: float
    covered: bool
    width: float


@dataclass(frozen=True, slots=True)
class DayAccuracy:
    """All forecasts on one day of the period, as fractions of each window's total. ``coverage``: the share of windows
    within their interval. None if there was no window."""

    day: int
    windows: int
    error: float | None
    error_p90: float | None
    run_rate_error: float | None
    coverage: float | None
    width: float | None


@dataclass(frozen=True, slots=True)
class ForecastAccuracy:
    """``of_series``: the same for each series by its name."""

    days: tuple[DayAccuracy, ...]
    of_series: dict[str, tuple[DayAccuracy, ...]]
    covers: float
    notes: tuple[str, ...]


def run_forecast_backtest(
    series: Sequence[DailySpending], progress: Callable[[int, int, str], None] | None = None
) -> ForecastAccuracy:
    """Measure every window of every series. ``progress`` is called with the number done, the total, and the next
    item."""
    misses: dict[str, list[ForecastMiss]] = {}
    notes: list[str] = []
    for done, one in enumerate(series):
        if progress is not None:
            progress(done, len(series), one.name)
        misses[one.name] = list(_misses(one.days))
        if not misses[one.name]:
            why = f"shorter than {PERIOD} days" if len(one.days) < PERIOD else "no window with spending"
            notes.append(f"{one.name}: {why}, not measured")
    every = [miss for of_one in misses.values() for miss in of_one]
    return ForecastAccuracy(
        days=_accuracy(every),
        of_series={name: _accuracy(found) for name, found in misses.items()},
        covers=COVERED,
        notes=tuple(notes),
    )


def _misses(days: tuple[float, ...]) -> Iterator[ForecastMiss]:
    for start in range(0, len(days) - PERIOD + 1, EVERY):
        came = sum(days[start : start + PERIOD])
        if came <= 0:
            continue  # shares of 0 are undefined
        for day in AT_DAYS:
            spent = sum(days[start : start + day])
            ahead = expect(days[: start + day], PERIOD - day)
            if ahead is not None:
                yield ForecastMiss(
                    day,
                    abs(spent + ahead.amount - came) / came,
                    abs(spent * PERIOD / day - came) / came,
                    ahead.low <= came - spent <= ahead.high,
                    (ahead.high - ahead.low) / came,
                )


def _accuracy(misses: list[ForecastMiss]) -> tuple[DayAccuracy, ...]:
    return tuple(_of_day(day, [miss for miss in misses if miss.day == day]) for day in AT_DAYS)


def _of_day(day: int, misses: list[ForecastMiss]) -> DayAccuracy:
    if not misses:
        return DayAccuracy(day, 0, None, None, None, None, None)
    errors = sorted(miss.error for miss in misses)
    return DayAccuracy(
        day,
        len(misses),
        fmean(errors),
        errors[min(len(errors) - 1, int(0.9 * len(errors)))],
        fmean(miss.run_rate_error for miss in misses),
        fmean(miss.covered for miss in misses),
        fmean(miss.width for miss in misses),
    )
