"""The overview: what needs a person first, then budgets, and the jobs that run and wait."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from fastapi.responses import Response

from broker.app.billing.months import ReportPeriod
from broker.app.use_cases import capacity, market, money
from broker.app.use_cases.jobs import JobFilter, list_jobs
from broker.app.use_cases.overview import ConcernKind
from broker.app.use_cases.overview import overview as overview_of
from broker.core.access.people import Permission
from broker.server.page.charts import expected_a_day
from broker.server.page.jobs import STATE_GROUPS
from broker.server.page.render import render_page
from broker.server.page.visitors import By

_ROWS = 10
_GPU, _AGO = "H100", timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Remedy:
    """How a kind of concern is marked, and the page that its button opens. ``path``: of the page, with ``{}`` for the
    concern's subject; ``verb``: on the button; empty: no page helps."""

    tone: str
    icon: str
    path: str
    verb: str

    def link(self, subject: str) -> str:
        return self.path.format(quote(subject, safe=""))


_JOB = "/jobs/{}"
REMEDIES = {
    ConcernKind.BUDGET_EXCEEDED: Remedy("bad", "alert", "/budgets/{}", "See who spends it"),
    ConcernKind.BUDGET_EXPECTED_OVER: Remedy("warn", "trend", "/budgets/{}", "See who spends it"),
    ConcernKind.APPROVAL: Remedy("warn", "hand", "/approvals#{}", "Review"),
    ConcernKind.PURCHASE: Remedy("warn", "hand", "/purchases/{}", "Review"),
    ConcernKind.JOB_PAUSED: Remedy("warn", "pause", _JOB, "See the job"),
    ConcernKind.LAUNCH_SLOW: Remedy("bad", "alert", _JOB, "See the job"),
    ConcernKind.DEADLINE_MISSED: Remedy("bad", "clock", _JOB, "See the job"),
    ConcernKind.DEADLINE_AT_RISK: Remedy("warn", "clock", _JOB, "See the job"),
    ConcernKind.LAUNCH_OVERDUE: Remedy("bad", "alert", "", ""),
    ConcernKind.PRICES_SUSPICIOUS: Remedy("warn", "tag", "/offers?provider={}", "Check the prices"),
    ConcernKind.PRICES_FAILING: Remedy("warn", "tag", "/health", "See why"),
}


def overview(by: By) -> Response:
    """The overview, with the parts that the visitor may see."""
    caller, document = by.caller, overview_of(by.caller)
    values: dict[str, Any] = {"gpu": _GPU, "running_now": document.running}
    values["concerns"] = [(concern, REMEDIES[concern.kind]) for concern in document.concerns]
    kinds = [concern.kind for concern in document.concerns]
    values["decisions"] = kinds.count(ConcernKind.APPROVAL) + kinds.count(ConcernKind.PURCHASE)
    if by.may(Permission.SEE_BUDGETS):
        values["budgets"] = document.budgets
        values["spend"] = money.spend_report(caller, "team", ReportPeriod(period="month"))
        values["month"] = so_far = money.month_so_far(caller)
        values["pace"] = expected_a_day(so_far)
        values["simulated"] = money.spend_report(caller, "team", ReportPeriod(period="month"), sandbox=True)
    if by.may(Permission.SEE_JOBS):
        states = {name: states for name, (_, states) in STATE_GROUPS.items()}
        values["running"] = list_jobs(caller, JobFilter(list(states["running"])), limit=_ROWS)
        values["waiting"] = list_jobs(caller, JobFilter([*states["people"], *states["waiting"]]), limit=_ROWS)
    if by.may(Permission.SEE_ALL_TEAMS):
        values["findings"] = capacity.capacity_use(caller).findings
    if by.may(Permission.SEE_MARKET):
        values["cheapest"] = market.cheapest(caller, _GPU, _AGO)
    return render_page("overview.html", by, values, title="Overview", at="/", live=True)
