"""The read-only routes of money: reports, capacity, purchases, and recorded prices."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import Depends, Query
from fastapi.responses import Response
from pydantic import AwareDatetime

from broker.app.billing import charges, review
from broker.app.billing import showback as months
from broker.app.billing.showback import sharing_rules
from broker.app.market import price_history as recorded
from broker.app.market.polling import is_scheduled, statuses
from broker.app.results.charges import BILLED_BY, BilledReport
from broker.app.results.price_history import PriceHistoryList
from broker.app.results.prices import PriceStatus
from broker.finops.showback import SharingRules
from broker.server import shown_money
from broker.server.looking import By, WantedMachines, answer
from broker.server.shown_money import ReportPeriod

Team = Annotated[str | None, Query(max_length=100, description="Only this team.")]
NamedPeriod = Annotated[str, Query(max_length=20, description="month, last-month, quarter, last-quarter or 2026-11.")]
Month = Annotated[str, Query(max_length=10, description="2026-11, month or last-month (UTC).")]
Since = Annotated[AwareDatetime | None, Query(description="Start of the period, with a time zone.")]


def _period(
    since: Since = None,
    until: Annotated[AwareDatetime | None, Query(description="End of the period, exclusive.")] = None,
    period: Annotated[
        str | None, Query(max_length=20, description="Instead: month, last-month, quarter, last-quarter or 2026-11.")
    ] = None,
) -> ReportPeriod:
    return ReportPeriod(since, until, period)


Period = Annotated[ReportPeriod, Depends(_period)]


def spend(
    by: By,
    period: Period,
    dimensions: Annotated[
        str, Query(alias="by", max_length=200, description="team, user, provider, month, …, or several: team,month.")
    ] = "team",
    sandbox: Annotated[bool, Query(description="Only simulated money.")] = False,
) -> Response:
    """Spending of the teams that the caller may see, most expensive first."""
    return answer(shown_money.spend_report(by, dimensions, period, sandbox=sandbox))


def units(
    by: By,
    period: NamedPeriod = "month",
    team: Team = None,
    metric: Annotated[str | None, Query(max_length=100, description="Also runs by this metric.")] = None,
) -> Response:
    """The cost of a run, a busy GPU-hour and a million tokens, of all teams or of one."""
    return answer(shown_money.unit_metrics(by, period, team, metric))


def forecasts(by: By, period: NamedPeriod = "month", team: Team = None) -> Response:
    """Predictions of plans compared with what happened."""
    return answer(shown_money.forecasts(by, period, team))


def anomalies(by: By, team: Team = None) -> Response:
    """Days of the last month with more spending than the weeks before explain."""
    return answer(shown_money.incidents(by, team))


def _sharing(
    idle: Annotated[str, Query(description="How idle capacity is divided.")] = "separate",
    shared: Annotated[str, Query(description="How the cost of shared teams is divided.")] = "separate",
    shared_team: Annotated[list[str] | None, Query(description="A team whose cost is for everybody.")] = None,
    fixed: Annotated[str | None, Query(max_length=500, description="Weights: nlp=60,web=40.")] = None,
) -> SharingRules:
    return sharing_rules(idle, shared, shared_team, fixed)


def showback(by: By, rules: Annotated[SharingRules, Depends(_sharing)], month: Month = "month") -> Response:
    """The cost of each team's use of a month, with its share of idle and shared cost."""
    return answer(months.shown(by.broker, month, rules))


def statements(by: By) -> Response:
    """The months whose statements are frozen."""
    return answer(months.statements(by.broker))


def statement(by: By, month: str) -> Response:
    """Each team's charge for a closed month."""
    return answer(months.charged(by.broker, month))


def month_review(by: By, month: Month = "month") -> Response:
    """A month compared with the month before."""
    return answer(review.review(by.broker, month))


def billed(
    by: By,
    period: Period,
    dimension: Annotated[str, Query(alias="by", description=f"{', '.join(BILLED_BY)}.")] = "provider",
) -> Response:
    """Quoted, metered and billed cost."""
    start, end = period.bounds(by.broker.clock.now())
    return answer(BilledReport.of(charges.billed(by.broker, start, end), dimension, start, end))


def list_capacity(
    by: By, ask: Annotated[bool, Query(description="Also ask providers, which takes seconds.")] = False
) -> Response:
    """Owned machines, reservations and commitments."""
    return answer(shown_money.capacity_list(by, ask=ask))


def capacity_use(by: By, since: Since = None) -> Response:
    """Findings from recorded use (default: of 90 days) on owning, reserving and renting."""
    return answer(shown_money.capacity_use(by, since))


def list_purchases(
    by: By, closed: Annotated[bool, Query(description="Also those that ended or failed.")] = False
) -> Response:
    """Purchases of capacity of the teams that the caller may see."""
    return answer(shown_money.purchase_list(by, closed=closed))


def show_purchase(by: By, purchase: str) -> Response:
    """One purchase: capacity, price, approvals and events."""
    return answer(shown_money.purchase_history(by, purchase))


def price_history(
    by: By,
    wanted: Annotated[WantedMachines, Depends()],
    since: Since = None,
    until: Annotated[AwareDatetime | None, Query(description="End of the period. Default: now.")] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Series, the cheapest first.")] = 30,
) -> Response:
    """How prices changed (default: in 30 days): one series per pool and source, cheapest first."""
    end = until or by.broker.clock.now()
    found = recorded.over(by.broker, wanted.filter(), since or end - timedelta(days=30), end, most=limit)
    return answer(PriceHistoryList.of(found))


def price_status(by: By) -> Response:
    """The age of each provider's prices, and poll failures."""
    broker, now = by.broker, by.broker.clock.now()
    return answer(PriceStatus.of(statuses(broker, now), now, scheduled=is_scheduled(broker)))
