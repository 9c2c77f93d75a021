"""Budgets, and the ledger of a job."""

from __future__ import annotations

from fastapi.responses import Response

from broker.app.billing.budgets import days, notices_about, spent_on_own
from broker.app.results.budgets import BudgetDetails
from broker.core.errors import UnknownName
from broker.page.charts import HIGH, WIDE, spend_curve
from broker.page.drawing import drawn
from broker.page.visitors import By
from broker.server import shown

AT = "/budgets"


def budget_list(by: By) -> Response:
    """Every budget that counts only teams that the visitor may see."""
    return drawn("budgets.html", by, {"budgets": shown.budget_list(by.caller).budgets}, title="Budgets", at=AT)


def budget(by: By, id: str) -> Response:
    """One budget: spending by day, holds by job and period, and its alerts."""
    lines = {line.spec.id: line for line in shown.budget_lines(by.caller)}
    if id not in lines:
        raise UnknownName("budget", id, ())
    line, broker = lines[id], by.caller.broker
    spent = days(broker, line)
    values = {
        "budget": BudgetDetails.told(line, notices_about(broker, id), spent_on_own(broker, line)),
        "period": line.period_name,
        "days": spent,
        "curve": spend_curve(line, spent),
        "wide": WIDE,
        "high": HIGH,
    }
    return drawn("budget.html", by, values, title=f"Budget {id}", at=AT)


def job_ledger(by: By, id: str) -> Response:
    """The ledger entries that add up to a job's cost (USD)."""
    return drawn("ledger.html", by, {"ledger": shown.job_ledger(by.caller, id)}, title=f"Ledger of {id}", at="/jobs")
