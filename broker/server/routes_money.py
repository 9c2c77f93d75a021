"""The read-only routes of money, also for the page: budgets, reports, capacity, purchases, and recorded prices. Each
shows what its caller may see."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, Query
from pydantic import AwareDatetime

from broker.app.billing import anomalies as unusual
from broker.app.billing import budgets, charges, report
from broker.app.billing import review as reviews
from broker.app.billing import showback as months
from broker.app.billing import units as unit_costs
from broker.app.billing.months import ReportPeriod, report_timezone
from broker.app.capacity import capacity
from broker.app.market import polling
from broker.app.market import price_history as recorded
from broker.app.policy import documents
from broker.app.results.budgets import BudgetDetails, BudgetList
from broker.app.results.capacity import CapacityList
from broker.app.results.capacity_plan import CapacityFindingList
from broker.app.results.charges import BILLED_BY, BilledReport
from broker.app.results.price_history import PriceHistoryList
from broker.app.results.prices import PriceStatus
from broker.app.results.purchases import PurchaseHistory, PurchaseList
from broker.app.results.reports import (
    ChargebackList,
    ChargebackStatement,
    ForecastsReport,
    IncidentList,
    ReviewReport,
    ShowbackReport,
    SpendGroup,
    SpendReport,
)
from broker.core.access.permissions import Permission
from broker.core.errors import InvalidInput, UnknownName
from broker.core.purchases.purchases import Purchase
from broker.finops.showback import SharingRules
from broker.finops.units import UnitMetrics
from broker.server.callers import By, Caller
from broker.server.routes_jobs import WantedMachines
from broker.server.shared_results import share_result

_USE_OF = timedelta(days=90)  # the default period of findings

Team = Annotated[str | None, Query(max_length=100, description="Only this team.")]
NamedPeriod = Annotated[str, Query(max_length=20, description="month, last-month, quarter, last-quarter or 2026-11.")]
Month = Annotated[str, Query(max_length=10, description="2026-11, month or last-month.")]
Zone = Annotated[
    str | None, Query(max_length=50, description="Time zone of months, such as Europe/Berlin. Default: the policy's.")
]
Since = Annotated[AwareDatetime | None, Query(description="Start of the period, with a time zone.")]


def _period(
    since: Since = None,
    until: Annotated[AwareDatetime | None, Query(description="End of the period, exclusive.")] = None,
    period: Annotated[
        str | None, Query(max_length=20, description="Instead: month, last-month, quarter, last-quarter or 2026-11.")
    ] = None,
    timezone: Zone = None,
) -> ReportPeriod:
    return ReportPeriod(since, until, period, timezone)


Period = Annotated[ReportPeriod, Depends(_period)]


def list_budgets(by: By) -> BudgetList:
    """Budgets in their current periods, if they count only teams that the caller may see."""
    return budgets.budget_list(by.broker, by.access.teams(Permission.SEE_BUDGETS))


def show_budget(
    by: By, budget: str, by_day: Annotated[bool, Query(description="Also the spend by day of the period.")] = False
) -> BudgetDetails:
    """One of these budgets, with the holds of each job, and the spend for owned and for rented capacity."""
    (details,) = budgets.budget_details(by.broker, budget, by.access.teams(Permission.SEE_BUDGETS), by_day=by_day)
    return details


def spend(
    by: By,
    period: Period,
    dimensions: Annotated[
        str, Query(alias="by", max_length=200, description="team, user, provider, month, …, or several: team,month.")
    ] = "team",
    sandbox: Annotated[bool, Query(description="Only simulated money.")] = False,
) -> SpendReport:
    """Spending of the teams that the caller may see, most expensive first."""
    return spend_report(by, dimensions, period, sandbox=sandbox)


def spend_report(
    by: Caller, dimensions: str, period: ReportPeriod, *, sandbox: bool = False, only: Mapping[str, str] | None = None
) -> SpendReport:
    """As `spend`. ``only``: of these values of other dimensions. Raises `InvalidInput`, `UnknownName`."""

    def rows(key: tuple[Hashable, ...], compute: Callable[[], Sequence[SpendGroup]]) -> Sequence[SpendGroup]:
        # Spending by job is computed for each viewer, because it may have many rows.
        return compute() if "job" in str(key[0]).split(",") else share_result(by, ("spend", *key), compute)

    teams = by.access.teams(Permission.SEE_BUDGETS)
    return report.spend_report(by.broker, dimensions, teams, period=period, sandbox=sandbox, only=only, cached=rows)


def units(
    by: By,
    period: NamedPeriod = "month",
    team: Team = None,
    metric: Annotated[str | None, Query(max_length=100, description="Also runs by this metric.")] = None,
    timezone: Zone = None,
) -> UnitMetrics:
    """The cost of a run, a busy GPU-hour and a million tokens, of all teams or of one."""
    return unit_costs.unit_metrics_report(by.broker, period, _one_team(by, team), metric, timezone)


def forecasts(by: By, period: NamedPeriod = "month", team: Team = None, timezone: Zone = None) -> ForecastsReport:
    """Predictions of plans compared with what happened."""
    return unit_costs.forecasts_report(by.broker, period, _one_team(by, team), timezone)


def anomalies(by: By, team: Team = None) -> IncidentList:
    """Days of the last month on which a team spent more than its recent pattern predicts."""
    teams = by.access.teams(Permission.SEE_BUDGETS)
    if team is not None:
        by.require(Permission.SEE_BUDGETS, team)
        teams = frozenset({team})
    incidents = share_result(by, ("incidents",), lambda: unusual.spending_anomalies(by.broker))
    return IncidentList(incidents=[incident for incident in incidents if teams is None or incident.team in teams])


def _one_team(by: Caller, team: str | None) -> str | None:
    """The team that a report is about; None: all, for those who may see all. Raises `RoleMissing`, and `InvalidInput`
    if the caller may see several teams, but not all, and named none."""
    teams = by.access.teams(Permission.SEE_BUDGETS)
    if team is not None:
        by.require(Permission.SEE_BUDGETS, team)
        return team
    if teams is None:
        return None
    if len(teams) != 1:
        raise InvalidInput("the team is missing", where="team", hint=f"one of {', '.join(sorted(teams))}")
    return next(iter(teams))


def _sharing(
    idle: Annotated[str, Query(description="How idle capacity is divided.")] = "separate",
    shared: Annotated[str, Query(description="How the cost of shared teams is divided.")] = "separate",
    shared_team: Annotated[list[str] | None, Query(description="A team whose cost is for everybody.")] = None,
    fixed: Annotated[str | None, Query(max_length=500, description="Weights: nlp=60,web=40.")] = None,
) -> SharingRules:
    return months.sharing_rules(idle, shared, shared_team, fixed)


def showback(
    by: By, rules: Annotated[SharingRules, Depends(_sharing)], month: Month = "month", timezone: Zone = None
) -> ShowbackReport:
    """The cost of each team's use of a month, with its share of idle and shared cost."""
    return months.showback_report(by.broker, month, rules, timezone)


def statements(by: By) -> ChargebackList:
    """The months whose statements are frozen."""
    return months.statements(by.broker)


def statement(by: By, month: str) -> ChargebackStatement:
    """Each team's charge for a closed month."""
    return months.chargeback_statement(by.broker, month)


def month_review(by: By, month: Month = "month", timezone: Zone = None) -> ReviewReport:
    """A month compared with the month before."""
    return reviews.review(by.broker, month, timezone)


def billed(
    by: By,
    period: Period,
    dimension: Annotated[str, Query(alias="by", description=f"{', '.join(BILLED_BY)}.")] = "provider",
) -> BilledReport:
    """Quoted, metered and billed cost."""
    start, end = period.bounds(by.broker)
    local = report_timezone(by.broker, period.timezone)
    return BilledReport.of(charges.billed_attempts(by.broker, start, end), dimension, start, end, local)


def list_capacity(
    by: By, ask: Annotated[bool, Query(description="Also ask providers, which takes seconds.")] = False
) -> CapacityList:
    """Owned machines, reservations and commitments."""
    return CapacityList.of(capacity.capacity_inventory(by.broker, ask=ask))


def capacity_use(by: By, since: Since = None) -> CapacityFindingList:
    """Findings from recorded use (default: of 90 days) on owning, reserving and renting."""
    return documents.policy_findings(by.broker, since or by.broker.clock.now() - _USE_OF)


def list_purchases(
    by: By, closed: Annotated[bool, Query(description="Also those that ended or failed.")] = False
) -> PurchaseList:
    """Purchases of capacity of the teams that the caller may see."""
    all_purchases = by.broker.store.purchases(closed=closed)
    return PurchaseList.of(
        [purchase for purchase in all_purchases if by.access.may(Permission.SEE_BUDGETS, purchase.team)]
    )


def show_purchase(by: By, purchase: str) -> PurchaseHistory:
    """One purchase: capacity, price, approvals and events."""
    return PurchaseHistory.of(purchase_of(by, purchase), by.broker.store.purchase_events(purchase))


def purchase_of(by: Caller, id: str) -> Purchase:
    """The purchase. Raises `UnknownName`, also for one that the caller may not see."""
    try:
        purchase = by.broker.store.purchase(id)
    except UnknownName:
        raise UnknownName("purchase", id, ()) from None  # without similar names, which may be secret
    if not by.access.may(Permission.SEE_BUDGETS, purchase.team):
        raise UnknownName("purchase", id, ())
    return purchase


def price_history(
    by: By,
    wanted: Annotated[WantedMachines, Depends()],
    since: Since = None,
    until: Annotated[AwareDatetime | None, Query(description="End of the period. Default: now.")] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Series, the cheapest first.")] = 30,
) -> PriceHistoryList:
    """How prices changed (default: in 30 days): one series per pool and source, cheapest first."""
    end = until or by.broker.clock.now()
    return PriceHistoryList.of(
        recorded.price_histories(by.broker, wanted.filter(), since or end - timedelta(days=30), end, limit=limit)
    )


def price_status(by: By) -> PriceStatus:
    """The age of each provider's prices, and poll failures."""
    return polling.price_status(by.broker)
