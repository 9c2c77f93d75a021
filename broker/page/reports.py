"""Budgets, ledgers and reports: spending down to the jobs whose ledgers have the entries; a month for all teams."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query
from fastapi.responses import Response

from broker.app.billing import charges, showback
from broker.app.billing.months import MONTH, PERIODS, ReportPeriod, month_named, report_timezone
from broker.app.billing.report import DIMENSIONS
from broker.app.billing.review import review
from broker.app.results.charges import BilledReport
from broker.core.access.permissions import Permission
from broker.core.errors import InvalidInput
from broker.finops.showback import SharingRule, SharingRules
from broker.page.charts import HIGH, WIDE, spend_curve
from broker.page.drawing import drawn
from broker.page.visitors import By
from broker.server import routes_jobs, routes_money

AT = "/reports"
_JOB = "job"
Text = Annotated[str, Query(max_length=200)]
Month = Annotated[str, Query(max_length=7)]


def spending(
    by: By,
    dimensions: Annotated[str, Query(alias="by", max_length=200)] = "team",
    then: Text = "",
    period: Text = "month",
    only: Annotated[list[str] | None, Query(max_length=8)] = None,
    simulated: Annotated[bool, Query()] = False,
) -> Response:
    """Spending in a period, by one or two dimensions, with a bar for each amount. A row opens its jobs, and a job its
    ledger entries. ``only``: ``dimension:value``."""
    named = ",".join(filter(None, (dimensions, then)))
    kept = _kept(only or [])
    found = routes_money.spend_report(by.caller, named, ReportPeriod(name=period), sandbox=simulated, only=kept)
    names = found.by.split(",")
    fixed = {"period": period} | ({"simulated": "true"} if simulated else {})
    opened = []
    for row in found.rows:
        of_row = kept | dict(zip(names, row.values, strict=True))
        if _JOB in of_row:
            opened.append(f"/jobs/{of_row[_JOB]}/ledger")
        else:
            asked = [("by", _JOB), *fixed.items(), *(("only", f"{name}:{value}") for name, value in of_row.items())]
            opened.append(f"{AT}?{urlencode(asked)}")
    amounts = [row.sandbox if simulated else row.cash + row.amortised for row in found.rows]
    values = {
        "found": found,
        "names": names,
        "rows": list(zip(found.rows, amounts, opened, strict=True)),
        "most": max(amounts, default=None),
        "asked": {"by": names[0], "then": names[1] if len(names) > 1 else "", "period": period, "simulated": simulated},
        "only": kept,
        "whole": f"{AT}?{urlencode(fixed)}",
        "dimensions": DIMENSIONS,
        "periods": PERIODS,
        "all_teams": by.may(Permission.SEE_ALL_TEAMS),
        "incidents": routes_money.anomalies(by.caller).incidents,
    }
    return drawn("reports.html", by, values, title="Reports", at=AT)


def _kept(only: list[str]) -> dict[str, str]:
    kept: dict[str, str] = {}
    for one in only:
        name, colon, value = one.partition(":")
        if not colon or name in kept:
            raise InvalidInput(f"expected DIMENSION:VALUE, each dimension once, found {one!r}", where="only")
        kept[name] = value
    return kept


def month(by: By, month: Month = "") -> Response:
    """A month for all teams (USD): changes with their causes, showback, unit costs, and billed against metered cost."""
    broker = by.caller.broker
    local = report_timezone(broker)
    wanted = month_named(broker, month or MONTH, local)
    name, bounds = wanted.name, (wanted.start, wanted.end)
    rules = SharingRules(SharingRule.SEPARATE, SharingRule.SEPARATE, (), {})
    values = {
        "month": name,
        "review": review(broker, name),
        "showback": showback.shown(broker, name, rules),
        "units": routes_money.units(by.caller, name),
        "billed": BilledReport.of(charges.billed(broker, *bounds), "provider", *bounds, local),
        "statements": showback.statements(broker).statements,
    }
    return drawn("report_month.html", by, values, title=f"Report of {name}", at=AT)


BUDGETS = "/budgets"


def budget_list(by: By) -> Response:
    """Every budget that counts only teams that the visitor may see."""
    return drawn(
        "budgets.html", by, {"budgets": routes_money.list_budgets(by.caller).budgets}, title="Budgets", at=BUDGETS
    )


def budget(by: By, id: str) -> Response:
    """One budget: spending by day, holds by job and period, and its alerts."""
    found = routes_money.show_budget(by.caller, id, by_day=True)
    values = {"budget": found, "curve": spend_curve(found), "wide": WIDE, "high": HIGH}
    return drawn("budget.html", by, values, title=f"Budget {id}", at=BUDGETS)


def job_ledger(by: By, id: str) -> Response:
    """The ledger entries that add up to a job's cost (USD)."""
    return drawn(
        "ledger.html", by, {"ledger": routes_jobs.job_ledger(by.caller, id)}, title=f"Ledger of {id}", at="/jobs"
    )
