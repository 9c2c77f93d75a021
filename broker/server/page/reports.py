"""Budgets, ledgers and reports: spending down to the jobs whose ledgers have the entries; a month for all teams."""

from datetime import date
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query
from fastapi.responses import RedirectResponse, Response

from broker.app.billing import charges, showback
from broker.app.billing.charge_documents import BilledReport
from broker.app.billing.months import MONTH, PERIODS, ReportPeriod, report_timezone, resolve_begun_period
from broker.app.billing.report import DIMENSIONS
from broker.app.billing.report_documents import SpendingIncidentResult, served_text, spot_text, use_figures
from broker.app.billing.review import review
from broker.app.use_cases import jobs, money
from broker.app.use_cases.changes import change, single_line
from broker.core.access.people import Permission
from broker.core.errors import InvalidInput
from broker.ledger.finops.advice import AdviceVerdict
from broker.ledger.finops.anomalies import AnomalyAnswer
from broker.ledger.finops.change import NOBODY
from broker.ledger.finops.showback import SharingRule, SharingRules
from broker.ledger.finops.units import USE_BY
from broker.server.page.charts import HEIGHT, WIDTH, spend_curve
from broker.server.page.csv_files import AsCsv, csv_file
from broker.server.page.render import render_page
from broker.server.page.visitors import By, Form, request_key

REPORTS_PATH = "/reports"
_JOB = "job"
Text = Annotated[str, Query(max_length=200)]
Month = Annotated[str, Query(max_length=12)]


def spending(
    by: By,
    dimensions: Annotated[str, Query(alias="by", max_length=200)] = "team",
    then: Text = "",
    period: Text = "month",
    only: Annotated[list[str] | None, Query(max_length=8)] = None,
    simulated: Annotated[bool, Query()] = False,
    csv: AsCsv = False,
) -> Response:
    """Spending in a period, by one or two dimensions, with a bar for each amount. A row opens its jobs, and a job its
    ledger entries. ``only``: ``dimension:value``."""
    grouping = ",".join(filter(None, (dimensions, then)))
    filters = _parse_filters(only or [])
    report = money.spend_report(by.caller, grouping, ReportPeriod(period=period), sandbox=simulated, only=filters)
    names, chosen = report.by.split(","), _only(filters)
    if csv:
        return csv_file("spending", "group cash amortised sandbox held gpu_hours jobs", report.rows)
    fixed = {"period": period} | ({"simulated": "true"} if simulated else {})
    links = []
    for row in report.rows:
        row_filters = filters | dict(zip(names, row.values, strict=True))
        if _JOB in row_filters:
            links.append(f"/jobs/{row_filters[_JOB]}/ledger")
        else:
            query = [("by", _JOB), *fixed.items(), *_only(row_filters)]
            links.append(f"{REPORTS_PATH}?{urlencode(query)}")
    amounts = [row.sandbox if simulated else row.cash + row.amortised for row in report.rows]
    values = {
        "found": report,
        "names": names,
        "rows": list(zip(report.rows, amounts, links, strict=True)),
        "most": max(amounts, default=None),
        "asked": {"by": names[0], "then": names[1] if len(names) > 1 else "", "period": period, "simulated": simulated},
        "only": filters,
        "file_path": f"{REPORTS_PATH}?{urlencode([('by', grouping), *fixed.items(), *chosen, ('csv', 'true')])}",
        "whole": f"{REPORTS_PATH}?{urlencode(fixed)}",
        "dimensions": DIMENSIONS,
        "periods": PERIODS,
        "all_teams": by.may(Permission.SEE_ALL_TEAMS),
        "incidents": [(one, _may_answer(by, one)) for one in money.anomalies(by.caller).incidents],
        "answers": _ANSWERS,
    }
    return render_page("reports.html", by, values, title="Reports", at=REPORTS_PATH)


_ANSWERS = {
    AnomalyAnswer.YES: "yes: it should not have happened",
    AnomalyAnswer.NO: "no: it is no anomaly",
    AnomalyAnswer.PLANNED: "planned: leave these days out of later comparisons",
}


def _may_answer(by: By, incident: SpendingIncidentResult) -> bool:
    team, access = None if incident.team == NOBODY else incident.team, by.caller.access
    is_cause = by.caller.actor.identity in (cause.user for cause in incident.causes)
    return access.may(Permission.CHANGE_OWN_JOBS if is_cause else Permission.CHANGE_TEAM_JOBS, team)


def answer_anomaly(by: By, team: str, first: date, form: Form) -> Response:
    """Answer an anomaly. Idempotent by the form's key. Raises `InvalidInput`, `UnknownName`."""
    answer, reason = form.get("answer", "")[:20], single_line(form.get("reason", "").strip()[:500])
    arguments = {"team": team, "first": first, "answer": answer, "reason": reason}
    change(by.caller, request_key(form), money.answer_anomaly, **arguments)
    return RedirectResponse(REPORTS_PATH, 303)


def _only(filters: dict[str, str]) -> list[tuple[str, str]]:
    return [("only", f"{name}:{value}") for name, value in filters.items()]


def _parse_filters(only: list[str]) -> dict[str, str]:
    filters: dict[str, str] = {}
    for filter_text in only:
        name, colon, value = filter_text.partition(":")
        if not colon or name in filters:
            raise InvalidInput(f"expected DIMENSION:VALUE, each dimension once, found {filter_text!r}", where="only")
        filters[name] = value
    return filters


def month(
    by: By,
    month: Month = "",
    dimension: Annotated[str, Query(alias="by", max_length=20)] = "team",
    metric: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """A month or quarter for all teams (USD): changes with their causes, unit costs, also of quality in a ``metric``,
    use by a dimension, and billed against metered cost; of a month also the showback."""
    broker = by.caller.broker
    time_zone = report_timezone(broker)
    reviewed = resolve_begun_period(broker, month or MONTH, time_zone)
    name, bounds = reviewed.name, (reviewed.start, reviewed.end)
    rules = SharingRules(SharingRule.SEPARATE, SharingRule.SEPARATE, (), {})
    metrics = money.units(by.caller, name, metric=metric or None, dimension=dimension)
    values = {
        "month": name,
        "review": review(broker, name),
        "showback": showback.showback_report(broker, name, rules) if reviewed.kind == MONTH else None,
        "metric": metric,
        "units": metrics,
        "use": list(use_figures(metrics.use, metrics.targets)),
        "spot": spot_text(metrics),
        "served_text": served_text,
        "grouped": [(row, dict(use_figures(row.use, None))) for row in metrics.groups],
        "by": dimension,
        "dimensions": list(USE_BY),
        "billed": BilledReport.of(charges.billed_attempts(broker, *bounds), "provider", *bounds, time_zone),
        "statements": showback.statements(broker).statements,
        "verdicts": list(AdviceVerdict) if by.may(Permission.ANSWER_ADVICE) else [],
    }
    return render_page("report_month.html", by, values, title=f"Report of {name}", at=REPORTS_PATH)


def answer_advice(by: By, month: str, advice: str, form: Form) -> Response:
    """Answer advice of the month's review. Idempotent by the form's key. Raises `UnknownName`."""
    reason = single_line(form.get("reason", "").strip()[:500])
    verdict = form.get("verdict", "")[:20]
    change(
        by.caller, request_key(form), money.answer_advice, month=month, advice=advice, verdict=verdict, reason=reason
    )
    return RedirectResponse(f"/reports/month?{urlencode({'month': month})}", 303)


BUDGETS_PATH = "/budgets"


def budget_list(by: By, csv: AsCsv = False) -> Response:
    """Every budget that counts only teams that the visitor may see, the most urgent first."""
    budgets = money.list_budgets(by.caller).most_urgent_first
    if csv:
        return csv_file("budgets", "id period_name standing limit spent held left forecast.expected action", budgets)
    return render_page("budgets.html", by, {"budgets": budgets}, title="Budgets", at=BUDGETS_PATH)


def budget(by: By, id: str) -> Response:
    """One budget: spending by day, holds by job and period, and its alerts."""
    details = money.show_budget(by.caller, id, by_day=True)
    values = {"budget": details, "curve": spend_curve(details), "wide": WIDTH, "high": HEIGHT}
    return render_page("budget.html", by, values, title=f"Budget {id}", at=BUDGETS_PATH)


def job_ledger(by: By, id: str) -> Response:
    """The ledger entries that add up to a job's cost (USD)."""
    return render_page(
        "ledger.html", by, {"ledger": jobs.job_ledger(by.caller, id)}, title=f"Ledger of {id}", at="/jobs"
    )
