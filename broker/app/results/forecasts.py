"""Predictions of plans against outcomes as a result."""

from __future__ import annotations

from typing import Self

from broker.app.billing.outcomes import ForecastReport
from broker.app.results.values import Figure, Moment, Result
from broker.finops.accuracy import MeasuredSpeed, PredictionError


class ForecastsReport(Result):
    """Predictions of the first plans of successful ``runs`` against what happened, by kind; amounts USD, times hours.
    Of more than 2,000 runs those count that ended last. ``unpredicted``: runs of unknown work. ``measured``: what the
    runs measured, by accelerator, without runs on several kinds; null: not reported."""

    since: Moment
    until: Moment
    team: str | None
    runs: int
    unpredicted: int
    unpredicted_share: Figure | None
    errors: list[PredictionError]
    measured: list[MeasuredSpeed]

    @classmethod
    def of(cls, found: ForecastReport) -> Self:
        return cls.from_parts(
            found,
            since=found.start,
            until=found.end,
            unpredicted_share=found.unpredicted / found.runs if found.runs else None,
        )
