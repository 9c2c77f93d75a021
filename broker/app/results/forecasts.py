"""Predictions of plans against outcomes as a result."""

from __future__ import annotations

from broker.app.results.values import Figure, Moment, Result
from broker.finops.accuracy import MeasuredSpeed, PredictionError


class ForecastsReport(Result):
    """Predictions of the first plans of successful ``runs`` against what happened, by kind; amounts USD, times hours.
    Of more than 2,000 runs those count that ended last. ``unpredicted``: runs of unknown work, whose time and cost no
    plan could predict. ``measured``: what the runs measured, by accelerator, without runs on several kinds; null: not
    reported."""

    since: Moment
    until: Moment
    team: str | None
    runs: int
    unpredicted: int
    unpredicted_share: Figure | None
    errors: list[PredictionError]
    measured: list[MeasuredSpeed]
