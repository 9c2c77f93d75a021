"""Backtests on recorded daily spending as results. Shares and ratios have four decimals; null: nothing to measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from broker.app.results.values import FourDecimals, Result
from broker.backtest.spending.anomalies import AlarmAccuracy, FoundEpisodes, JudgedSeries
from broker.backtest.spending.forecasts import EVERY, PERIOD, DayAccuracy, ForecastAccuracy


class ForecastDayResult(Result):
    """The forecasts made on one day of the period. ``error``: the mean absolute error, and ``error_p90`` its 90th
    percentile, as a share of what the period came to; ``run_rate_error``: of continuing the period's average;
    ``coverage``: the share of periods that lay in the interval; ``interval_width``: as a share likewise."""

    day: int
    windows: int
    error: FourDecimals | None
    error_p90: FourDecimals | None
    run_rate_error: FourDecimals | None
    coverage: FourDecimals | None
    interval_width: FourDecimals | None

    @classmethod
    def of(cls, found: DayAccuracy) -> Self:
        return cls.from_parts(found, interval_width=found.width)


class ForecastSeriesResult(Result):
    """The same of one series."""

    series: str
    days: list[ForecastDayResult]


class ForecastBacktest(Result):
    """``interval``: the share of periods that the interval should contain."""

    file: str
    period_days: int
    window_every_days: int
    interval: float
    days: list[ForecastDayResult]
    series: list[ForecastSeriesResult]
    notes: list[str]

    @classmethod
    def of(cls, file: str, found: ForecastAccuracy, notes: Sequence[str]) -> Self:
        return cls.from_parts(
            found,
            file=file,
            period_days=PERIOD,
            window_every_days=EVERY,
            interval=found.covers,
            series=[ForecastSeriesResult.from_parts(series=name, days=days) for name, days in found.of_series.items()],
            notes=[*notes, *found.notes],
        )


class EpisodesResult(Result):
    """Episodes that could be judged, how many were found, and after how many days on average (0: on the first).
    ``size``: of planted ones, what a day was raised by, as a share of the median of the four weeks before."""

    size: float | None
    episodes: int
    found: int
    recall: FourDecimals | None
    delay_days: FourDecimals | None

    @classmethod
    def of(cls, found: FoundEpisodes) -> Self:
        return cls.from_parts(found, delay_days=found.mean_delay)


class IncidentResult(Result):
    """Consecutive days out of the ordinary, first and last as the file writes them; ``excess``: what they cost above
    the usual level, in the unit of the file."""

    first_day: str
    last_day: str
    excess: float


class JudgedSeriesResult(Result):
    """``judged_days``: those after the warm-up and outside of labels; ``alarms``: incidents that touch no label."""

    series: str
    judged_days: int
    alarms: int
    incidents: list[IncidentResult]

    @classmethod
    def of(cls, found: JudgedSeries) -> Self:
        name = found.series.day_name
        return cls(
            series=found.series.name,
            judged_days=found.judged_days,
            alarms=found.false_alarms,
            incidents=[
                IncidentResult(first_day=name(one.first), last_day=name(one.last), excess=round(one.excess, 2))
                for one in found.incidents
            ],
        )


class AnomalyBacktest(Result):
    """``recall`` and ``delay_days``: of the labels; without labels, of planted episodes that raise days by 100 %.
    ``alarms_per_30_series_days``: incidents that touch no label, and ``alarm_days_per_30_series_days`` their days.
    ``held_back``: the share of all judged spending that those cost above the usual level, which would have been stopped
    if alarms stopped jobs. ``planted``: by size; empty with labels. ``labels_unjudged``: within the warm-up, counted
    nowhere else."""

    file: str
    labels: str | None
    recall: FourDecimals | None
    delay_days: FourDecimals | None
    alarms_per_30_series_days: FourDecimals | None
    alarm_days_per_30_series_days: FourDecimals | None
    alarms: int
    held_back: FourDecimals | None
    series_days: int
    ratio_threshold: float
    surprise_threshold: float
    seed: int
    labelled: EpisodesResult | None
    labels_unjudged: int
    planted: list[EpisodesResult]
    series: list[JudgedSeriesResult]
    notes: list[str]

    @classmethod
    def of(cls, file: str, labels: str | None, found: AlarmAccuracy, notes: Sequence[str]) -> Self:
        chief = found.marked or next(one for one in found.planted if one.size == 1.0)
        return cls.from_parts(
            found,
            file=file,
            labels=labels,
            recall=chief.recall,
            delay_days=chief.mean_delay,
            alarms_per_30_series_days=found.alarms_per_30,
            alarm_days_per_30_series_days=found.alarm_days_per_30,
            alarms=found.false_alarms,
            series_days=found.judged_days,
            ratio_threshold=found.sensitivity.ratio,
            surprise_threshold=found.sensitivity.surprise,
            labelled=found.marked,
            labels_unjudged=found.unjudged,
            notes=notes,
        )
