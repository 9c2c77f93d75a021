"""Anomalies in spending as results."""

from __future__ import annotations

from datetime import date

from broker.app.results.values import Result
from broker.core.values.money import Money
from broker.finops.anomalies import IncidentAnswer


class IncidentCauseResult(Result):
    """A job, and its spend above its average of the four weeks before (USD)."""

    job: str
    user: str
    excess: Money


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
    answer: IncidentAnswer | None


class IncidentList(Result):
    """Incidents of the last 30 days, newest first."""

    incidents: list[SpendingIncidentResult]
