"""Reports on money that a caller may see, for the API and the page: of the caller's teams, or of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.app.billing import anomalies, budgets, outcomes, report, units
from broker.app.billing.report import SpendRow, SpendSource
from broker.app.capacity import capacity
from broker.app.policy import trials
from broker.app.results.anomalies import IncidentList
from broker.app.results.budgets import BudgetDetails, BudgetList
from broker.app.results.capacity import CapacityList
from broker.app.results.capacity_plan import CapacityFindingList
from broker.app.results.forecasts import ForecastsReport
from broker.app.results.purchases import PurchaseHistory, PurchaseList
from broker.app.results.spend import SpendReport
from broker.app.wiring import Broker
from broker.core.access.permissions import Permission
from broker.core.errors import InvalidInput, UnknownName
from broker.core.purchases.purchases import Purchase
from broker.finops.units import UnitMetrics
from broker.server.callers import Caller
from broker.server.shared_results import shared

USE_OF = timedelta(days=90)  # the default period of findings


@dataclass(frozen=True, slots=True)
class ReportPeriod:
    """Start and end (UTC, half-open; None: no bound), or the ``name`` of a period instead."""

    since: datetime | None = None
    until: datetime | None = None
    name: str | None = None

    def bounds(self, now: datetime) -> tuple[datetime | None, datetime | None]:
        """Raises as `report.report_period`."""
        return report.report_period(self.name, self.since, self.until, now)


def budget_list(by: Caller) -> BudgetList:
    """Budgets in their current periods, if they count only teams that the caller may see."""
    return budgets.budget_list(by.broker, by.access.teams(Permission.SEE_BUDGETS))


def budget_details(by: Caller, name: str, *, by_day: bool) -> BudgetDetails:
    """One of these budgets. Raises `UnknownName`, also for one that the caller may not see."""
    (found,) = budgets.budget_details(by.broker, name, by.access.teams(Permission.SEE_BUDGETS), by_day=by_day)
    return found


def spend_report(
    by: Caller, dimensions: str, period: ReportPeriod, *, sandbox: bool = False, only: Mapping[str, str] | None = None
) -> SpendReport:
    """Spending of the teams that the caller may see, by dimensions separated by commas. ``only``: of these values of
    other dimensions. Raises `InvalidInput`, `UnknownName`."""
    start, end = period.bounds(by.broker.clock.now())
    teams = by.access.teams(Permission.SEE_BUDGETS)
    return report.spend_report(
        by.broker, dimensions, teams, since=start, until=end, sandbox=sandbox, only=only, source=spending(by)
    )


def spending(by: Caller) -> SpendSource:
    """`spend` of all teams, computed once for all viewers of the page (`shared`). Spending by job is not shared,
    because it may have many rows."""

    def rows(
        broker: Broker, names: str, *, since: datetime | None, until: datetime | None, sandbox: bool
    ) -> Sequence[SpendRow]:
        def summed() -> Sequence[SpendRow]:
            return report.spend(broker, names, since=since, until=until, sandbox=sandbox)

        return summed() if "job" in names.split(",") else shared(by, ("spend", names, since, until, sandbox), summed)

    return rows


def unit_metrics(by: Caller, period: str, team: str | None, metric: str | None) -> UnitMetrics:
    """The cost of a unit of work, of all teams or one. Raises as `one_team`."""
    return units.units(by.broker, period, one_team(by, team), metric)


def forecasts(by: Caller, period: str, team: str | None) -> ForecastsReport:
    """Predictions of plans against outcomes, of all teams or one. Raises as `one_team`."""
    return outcomes.forecasts(by.broker, period, one_team(by, team))


def incidents(by: Caller, team: str | None = None) -> IncidentList:
    """Days of the last month on which a team spent more than the weeks before explain."""
    teams = by.access.teams(Permission.SEE_BUDGETS)
    if team is not None:
        by.require(Permission.SEE_BUDGETS, team)
        teams = frozenset({team})
    found = shared(by, ("incidents",), lambda: anomalies.spending_anomalies(by.broker))
    return IncidentList(incidents=[one for one in found if teams is None or one.team in teams])


def one_team(by: Caller, team: str | None) -> str | None:
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


def capacity_list(by: Caller, *, ask: bool = False) -> CapacityList:
    """Owned and reserved capacity as recorded. ``ask``: providers with a login, too."""
    return CapacityList.of(capacity.capacity(by.broker, ask=ask))


def capacity_use(by: Caller, since: datetime | None = None) -> CapacityFindingList:
    """Findings from recorded use since then (default: 90 days) on owning, reserving and renting."""
    return trials.findings(by.broker, since or by.broker.clock.now() - USE_OF)


def purchase_list(by: Caller, *, closed: bool = False) -> PurchaseList:
    """Purchases of capacity of teams that the caller may see. ``closed``: also those that ended or failed."""
    found = by.broker.store.purchases(closed=closed)
    return PurchaseList.of([one for one in found if by.access.may(Permission.SEE_BUDGETS, one.team)])


def purchase_history(by: Caller, id: str) -> PurchaseHistory:
    """One purchase and its events. Raises `UnknownName`, also for one that the caller may not see."""
    found = purchase_of(by, id)
    return PurchaseHistory.of(found, by.broker.store.purchase_events(id))


def purchase_of(by: Caller, id: str) -> Purchase:
    """The purchase. Raises `UnknownName`, also for one that the caller may not see."""
    try:
        found = by.broker.store.purchase(id)
    except UnknownName:
        raise UnknownName("purchase", id, ()) from None  # without similar names, which may be secret
    if not by.access.may(Permission.SEE_BUDGETS, found.team):
        raise UnknownName("purchase", id, ())
    return found
