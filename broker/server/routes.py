"""The table of all routes, each with the permission that it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi.responses import Response

from broker.app.results.access import CallerIdentity
from broker.app.results.approvals import ApprovalList
from broker.app.results.budgets import BudgetList
from broker.app.results.job_ledger import JobLedger
from broker.app.results.jobs import AttemptList, JobDetails, JobHistory, JobLogs
from broker.app.results.plans import PlanResult
from broker.app.results.queue import QueueResult
from broker.app.results.submission import SubmissionTerms
from broker.app.results.values import Result
from broker.app.results.why_here import PlacementDecisions
from broker.core.access.permissions import Permission
from broker.server import changing, contents, looking, submitting
from broker.server.pages import JobPage, OfferPage
from broker.server.paths import DEVICE_AUTHORIZATION, REVOCATION, TOKEN, VERSION


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One route. ``permission``: required in some team before the endpoint checks the team concerned; None: any valid
    token. ``answers``: the document of a successful response; None: it has none."""

    method: str
    path: str
    permission: Permission | None
    endpoint: Callable[..., Response] | Callable[..., Awaitable[Response]]
    answers: type[Result] | None

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
    ApiRoute("GET", "/submission", Permission.SUBMIT, submitting.submission_terms, SubmissionTerms),
    ApiRoute("POST", "/plans", Permission.SUBMIT, submitting.plan_job, PlanResult),
    ApiRoute("POST", "/jobs", Permission.SUBMIT, submitting.submit_job, JobDetails),
    ApiRoute("HEAD", "/contents/{kind}/{sha256}", Permission.SUBMIT, contents.has_content, None),
    ApiRoute("PUT", "/contents/{kind}/{sha256}", Permission.SUBMIT, contents.keep_content, None),
    ApiRoute("POST", "/jobs/{id}/cancel", Permission.CHANGE_OWN_JOBS, changing.cancel_job, JobDetails),
    ApiRoute("POST", "/jobs/{id}/extend", Permission.CHANGE_OWN_JOBS, changing.extend_job, JobDetails),
    ApiRoute("POST", "/approvals/{id}/grant", Permission.APPROVE, changing.grant_approval, JobDetails),
    ApiRoute("POST", "/approvals/{id}/refuse", Permission.APPROVE, changing.refuse_approval, JobDetails),
)
UPLOADS = "/contents/"
"""Routes below it read bodies of any size piece by piece, and limit them themselves."""
OPENAPI = f"{VERSION}/openapi.json"
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
