"""Budgets, and the ledger of a job."""

from __future__ import annotations

from fastapi.responses import Response

from broker.page.charts import HIGH, WIDE, spend_curve
from broker.page.drawing import drawn
from broker.page.visitors import By
from broker.server import routes_jobs, routes_money

AT = "/budgets"


def budget_list(by: By) -> Response:
    """Every budget that counts only teams that the visitor may see."""
    return drawn("budgets.html", by, {"budgets": routes_money.list_budgets(by.caller).budgets}, title="Budgets", at=AT)


def budget(by: By, id: str) -> Response:
    """One budget: spending by day, holds by job and period, and its alerts."""
    found = routes_money.show_budget(by.caller, id, by_day=True)
    values = {"budget": found, "curve": spend_curve(found), "wide": WIDE, "high": HIGH}
    return drawn("budget.html", by, values, title=f"Budget {id}", at=AT)


def job_ledger(by: By, id: str) -> Response:
    """The ledger entries that add up to a job's cost (USD)."""
    return drawn(
        "ledger.html", by, {"ledger": routes_jobs.job_ledger(by.caller, id)}, title=f"Ledger of {id}", at="/jobs"
    )
