"""Budgets and reports. Each use case shows what its caller may see."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

from pydantic import Field

from broker.app.access.callers import Caller
from broker.app.billing import anomalies as unusual
from broker.app.billing import budgets, charges, report
from broker.app.billing import review as reviews
from broker.app.billing import showback as months
from broker.app.billing import units as unit_costs
from broker.app.billing.budget_documents import BudgetDetails, BudgetList
from broker.app.billing.charge_documents import BILLED_BY, BilledReport
from broker.app.billing.focus import export
from broker.app.billing.month_so_far import MonthSoFar, month_by_team
from broker.app.billing.months import ReportPeriod, report_timezone
from broker.app.billing.report_documents import (
    ChargebackList,
    ChargebackStatement,
    FocusExportResult,
    ForecastsReport,
    IncidentList,
    ReviewReport,
    ShowbackReport,
    SpendGroup,
    SpendReport,
)
from broker.app.billing.showback import Sharing
from broker.app.use_cases.changes import Reason
from broker.app.use_cases.shared_results import forget_result, share_result
from broker.core.access.people import Permission
from broker.core.errors import InvalidInput, UnknownName
from broker.ledger.finops.advice import AdviceVerdict
from broker.ledger.finops.anomalies import AnomalyAnswer
from broker.ledger.finops.units import USE_BY, UnitMetrics

Team = Annotated[str | None, Field(max_length=100, description="Only this team.")]
NamedPeriod = Annotated[
    str, Field(max_length=20, description="month, last-month, quarter, last-quarter, 2026-11 or 2026-Q4.")
]
Month = Annotated[str, Field(max_length=10, description="2026-11, month or last-month.")]
ReviewPeriod = Annotated[
    str, Field(max_length=12, description="2026-11, 2026-Q4, month, last-month, quarter or last-quarter.")
]
Zone = Annotated[
    str | None, Field(max_length=50, description="Time zone of months, such as Europe/Berlin. Default: the policy's.")
]
FocusVersion = Annotated[str, Field(max_length=10, description="1.2 or 1.4.")]
_INCIDENTS = ("incidents",)
FocusForm = Annotated[Literal["csv", "parquet"], Field(description="The form of the file.")]


def list_budgets(by: Caller) -> BudgetList:
    """Budgets in their current periods, if they count only teams that the caller may see."""
    teams = by.access.teams(Permission.SEE_BUDGETS)
    return BudgetList.model_validate({"budgets": budgets.visible_budgets(budgets.budgets(by.broker), teams)})


def show_budget(
    by: Caller, budget: str, by_day: Annotated[bool, Field(description="Also the spend by day of the period.")] = False
) -> BudgetDetails:
    """One of these budgets, with the holds of each job, and the spend for owned and for rented capacity."""
    (details,) = budgets.budget_details(by.broker, budget, by.access.teams(Permission.SEE_BUDGETS), by_day=by_day)
    return details


def spend(
    by: Caller,
    period: ReportPeriod,
    dimensions: Annotated[
        str, Field(alias="by", max_length=200, description="team, user, provider, month, …, or several: team,month.")
    ] = "team",
    sandbox: Annotated[bool, Field(description="Only simulated money.")] = False,
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


def month_so_far(by: Caller) -> MonthSoFar:
    """The current month of the teams that the caller may see, by day, with what is expected and what was wasted."""
    months = share_result(by, ("month so far",), lambda: month_by_team(by.broker))
    return months.report(by.access.teams(Permission.SEE_BUDGETS))


def units(
    by: Caller,
    period: NamedPeriod = "month",
    team: Team = None,
    metric: Annotated[str | None, Field(max_length=100, description="Also runs by this metric.")] = None,
    timezone: Zone = None,
    dimension: Annotated[str | None, Field(alias="by", description=f"Also use by {', '.join(USE_BY)}.")] = None,
) -> UnitMetrics:
    """The cost of a run, a busy GPU-hour and a million tokens, of all teams or of one."""
    return unit_costs.unit_metrics_report(by.broker, period, _single_team(by, team), metric, timezone, dimension)


def forecasts(by: Caller, period: NamedPeriod = "month", team: Team = None, timezone: Zone = None) -> ForecastsReport:
    """Predictions of plans compared with what happened."""
    return report.forecasts_report(by.broker, period, _single_team(by, team), timezone)


def anomalies(by: Caller, team: Team = None) -> IncidentList:
    """Days of the last month on which a team spent more than its recent pattern predicts."""
    teams = by.access.teams(Permission.SEE_BUDGETS)
    if team is not None:
        by.require(Permission.SEE_BUDGETS, team)
        teams = frozenset({team})
    incidents = share_result(by, _INCIDENTS, lambda: unusual.spending_anomalies(by.broker))
    return IncidentList(incidents=[incident for incident in incidents if teams is None or incident.team in teams])


def answer_anomaly(
    by: Caller,
    team: str,
    first: date,
    answer: Annotated[str, Field(max_length=20, description=f"Was it an anomaly? {', '.join(AnomalyAnswer)}.")],
    reason: Reason = "",
) -> IncidentList:
    """Answer the incident of a team that began on a day (UTC): as the owner of a job that caused it, or an
    administrator of the team. A later answer replaces it."""
    if answer not in list(AnomalyAnswer):
        raise UnknownName("answer", answer, list(AnomalyAnswer), where="answer")
    incident = unusual.answer_incident(by.broker, team, first, AnomalyAnswer(answer), reason, by=by.actor)
    forget_result(by, _INCIDENTS)
    return IncidentList(incidents=[incident])


def _single_team(by: Caller, team: str | None) -> str | None:
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


def showback(by: Caller, sharing: Sharing, month: Month = "month", timezone: Zone = None) -> ShowbackReport:
    """The cost of each team's use of a month, with its share of idle and shared cost."""
    return months.showback_report(by.broker, month, sharing.rules(), timezone)


def statements(by: Caller) -> ChargebackList:
    """The months whose statements are frozen."""
    return months.statements(by.broker)


def statement(by: Caller, month: str) -> ChargebackStatement:
    """Each team's charge for a closed month."""
    return months.chargeback_statement(by.broker, month)


def freeze_statement(by: Caller, month: str, sharing: Sharing) -> ChargebackStatement:
    """Make the statement of a closed month, for good."""
    return months.make_statement(by.broker, month, sharing.rules(), by=by.actor)


def month_review(by: Caller, month: ReviewPeriod = "month", timezone: Zone = None) -> ReviewReport:
    """A month or a quarter compared with the one before."""
    return reviews.review(by.broker, month, timezone)


def answer_advice(
    by: Caller,
    month: str,
    advice: str,
    verdict: Annotated[str, Field(max_length=20, description=f"{', '.join(AdviceVerdict)}.")],
    reason: Reason = "",
    timezone: Zone = None,
) -> ReviewReport:
    """Answer advice of a month's review; the next review says what it brought. A later answer replaces it."""
    return reviews.answer_advice(by.broker, month, advice, verdict, reason, timezone, by=by.actor)


def billed(
    by: Caller,
    period: ReportPeriod,
    dimension: Annotated[str, Field(alias="by", description=f"{', '.join(BILLED_BY)}.")] = "provider",
) -> BilledReport:
    """Quoted, metered and billed cost."""
    start, end = period.bounds(by.broker)
    local = report_timezone(by.broker, period.timezone)
    return BilledReport.of(charges.billed_attempts(by.broker, start, end), dimension, start, end, local)


def focus_export(by: Caller, month: str, version: FocusVersion = "1.2", form: FocusForm = "csv") -> FocusExportResult:
    """The content of the FOCUS file of a month: rows, corrections, sums, and whether the month is closed."""
    with TemporaryDirectory(prefix="gpubroker-focus-") as folder:
        return export(by.broker, version, month, Path(folder) / f"focus.{form}")
