"""How well the end of a period is foretold on recorded daily spending: `run_forecast_backtest`.

A window is 30 consecutive days, and one begins every third day of a series. On day 10, 15 and 20 of it the product's
own code (`broker.finops.expectation`) says what the window will come to, from the days of the series so far.
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
    """One forecast. ``error`` and ``run_rate_error``: the absolute difference of the forecast, and of the month's
    average so far continued, as a share of what the window came to. ``width``: of the interval, likewise."""

    day: int
    error: float
    run_rate_error: float
    covered: bool
    width: float


@dataclass(frozen=True, slots=True)
class DayAccuracy:
    """All forecasts of one day of the period. Shares of what each window came to; ``coverage``: how many windows lay in
    their interval. None where there was no window."""

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
    series: Sequence[DailySpending], told: Callable[[int, int, str], None] | None = None
) -> ForecastAccuracy:
    """Every window of every series. ``told`` hears how many are done, of how many, and which is next."""
    misses: dict[str, list[ForecastMiss]] = {}
    notes: list[str] = []
    for done, one in enumerate(series):
        if told is not None:
            told(done, len(series), one.name)
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
            continue  # no share of nothing
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
