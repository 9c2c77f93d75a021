"""Anomalies in spending as results."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Self

from broker.app.billing.anomalies import SpendingIncident
from broker.app.results.values import Moment, Result
from broker.core.values.money import Money
from broker.finops.anomalies import AnomalyAnswer


class IncidentCauseResult(Result):
    """A job, and its spend above its average of the four weeks before (USD)."""

    job: str
    user: str
    excess: Money


class IncidentAnswerResult(Result):
    """A person's answer: ``yes``, ``no`` or ``planned``."""

    answer: AnomalyAnswer
    by: str
    at: Moment
    reason: str


class SpendingIncidentResult(Result):
    """Days (UTC, both included) on which a team spent more than the weeks before explain. ``excess``: above the usual
    level; ``spent``: in all (USD), ``on_own`` the part of it on owned and reserved machines, ``rented`` on on-demand
    and spot ones. ``running``: the last day is today. ``answer``: null if nobody has said anything."""

    team: str
    first: date
    last: date
    spent: Money
    on_own: Money
    rented: Money
    excess: Money
    running: bool
    causes: list[IncidentCauseResult]
    answer: IncidentAnswerResult | None

    @classmethod
    def of(cls, one: SpendingIncident) -> Self:
        said = None if one.answer is None else IncidentAnswerResult.model_validate(one.answer)
        causes = [IncidentCauseResult.model_validate(cause) for cause in one.causes]
        return cls.from_parts(one, causes=causes, answer=said)


class IncidentList(Result):
    """Incidents of the last 30 days, newest first."""

    incidents: list[SpendingIncidentResult]

    @classmethod
    def of(cls, found: Iterable[SpendingIncident]) -> Self:
        return cls(incidents=[SpendingIncidentResult.of(one) for one in found])
