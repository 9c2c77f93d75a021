"""The first page: the month's spending (USD), running jobs, pending approvals, and the current price of an H100."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi.responses import Response

from broker.app.billing.months import ReportPeriod
from broker.app.outside.overdue import overdue
from broker.core.access.permissions import Permission
from broker.core.events.outcomes import JobState
from broker.page.drawing import drawn
from broker.page.visitors import By
from broker.server import routes_jobs, routes_money
from broker.server.routes_jobs import JobFilter

RUNNING = (JobState.LAUNCHING, JobState.RUNNING)
WAITING = (JobState.QUEUED, JobState.PLANNED, JobState.INTERRUPTED, JobState.PAUSED_BUDGET)
_ROWS = 10
_GPU, _AGO = "H100", timedelta(days=7)


def overview(by: By) -> Response:
    """The overview, with the parts that the visitor may see."""
    caller, values = by.caller, dict[str, Any](gpu=_GPU)
    if by.may(Permission.SEE_BUDGETS):
        values["budgets"] = routes_money.list_budgets(caller).budgets
        values["spend"] = routes_money.spend_report(caller, "team", ReportPeriod(name="month"))
        values["simulated"] = routes_money.spend_report(caller, "team", ReportPeriod(name="month"), sandbox=True)
    if by.may(Permission.SEE_JOBS):
        late = [one for one in overdue(caller.broker) if caller.access.may(Permission.SEE_JOBS, one.team)]
        values["overdue"] = late
        values["running"] = routes_jobs.job_page(caller, JobFilter(RUNNING), limit=_ROWS)
        values["waiting"] = routes_jobs.job_page(caller, JobFilter(WAITING), limit=_ROWS)
        requests = routes_jobs.list_approvals(caller).requests
        values["requests"], values["more_requests"] = requests[:_ROWS], max(len(requests) - _ROWS, 0)
    if by.may(Permission.SEE_MARKET):
        values["cheapest"] = routes_jobs.cheapest(caller, _GPU, _AGO)
    return drawn("overview.html", by, values, title="Overview", at="/", live=True)
