"""The table of all routes, each with the permission that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi.responses import Response

from broker.app.results.access import CallerIdentity
from broker.app.results.approvals import ApprovalList
from broker.app.results.budgets import BudgetList
from broker.app.results.job_ledger import JobLedger
from broker.app.results.jobs import AttemptList, JobDetails, JobHistory, JobLogs
from broker.app.results.queue import QueueResult
from broker.app.results.values import Result
from broker.app.results.why_here import PlacementDecisions
from broker.core.access.permissions import Permission
from broker.server import changing, looking
from broker.server.pages import JobPage, OfferPage

VERSION = "/api/v1"


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One route. ``permission``: required in some team before the endpoint checks the team concerned; None: any valid
    token. ``answers``: the document of a successful response."""

    method: str
    path: str
    permission: Permission | None
    endpoint: Callable[..., Response]
    answers: type[Result]

    @property
    def whole_path(self) -> str:
        return VERSION + self.path


ROUTES = (
    ApiRoute("GET", "/me", None, looking.me, CallerIdentity),
    ApiRoute("GET", "/jobs", Permission.SEE_JOBS, looking.list_jobs, JobPage),
    ApiRoute("GET", "/jobs/{id}", Permission.SEE_JOBS, looking.show_job, JobHistory),
    ApiRoute("GET", "/jobs/{id}/attempts", Permission.SEE_JOBS, looking.job_attempts, AttemptList),
    ApiRoute("GET", "/jobs/{id}/ledger", Permission.SEE_JOBS, looking.job_ledger, JobLedger),
    ApiRoute("GET", "/jobs/{id}/placements", Permission.SEE_JOBS, looking.job_placements, PlacementDecisions),
    ApiRoute("GET", "/jobs/{id}/logs", Permission.SEE_OUTPUT, looking.job_logs, JobLogs),
    ApiRoute("GET", "/offers", Permission.SEE_MARKET, looking.list_offers, OfferPage),
    ApiRoute("GET", "/budgets", Permission.SEE_BUDGETS, looking.list_budgets, BudgetList),
    ApiRoute("GET", "/approvals", Permission.SEE_JOBS, looking.list_approvals, ApprovalList),
    ApiRoute("GET", "/queue", Permission.SEE_JOBS, looking.show_queue, QueueResult),
    ApiRoute("POST", "/jobs/{id}/cancel", Permission.CHANGE_OWN_JOBS, changing.cancel_job, JobDetails),
    ApiRoute("POST", "/jobs/{id}/extend", Permission.CHANGE_OWN_JOBS, changing.extend_job, JobDetails),
    ApiRoute("POST", "/approvals/{id}/grant", Permission.APPROVE, changing.grant_approval, JobDetails),
    ApiRoute("POST", "/approvals/{id}/refuse", Permission.APPROVE, changing.refuse_approval, JobDetails),
)
OPENAPI = f"{VERSION}/openapi.json"
DEVICE_AUTHORIZATION, TOKEN, REVOCATION = (f"{VERSION}/{name}" for name in ("device_authorization", "token", "revoke"))
PUBLIC = frozenset(
    {
        ("GET", OPENAPI),
        ("GET", "/healthz"),
        ("GET", "/metrics"),
        ("POST", DEVICE_AUTHORIZATION),
        ("POST", TOKEN),
        ("POST", REVOCATION),
    }
)
"""Routes without a person's token: the description of the API, those with the service's own token, and those by which a
program gets a token or gives one up."""
