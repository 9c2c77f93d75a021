"""The table of all routes, each with the permission that it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi.responses import Response

from broker.app.results.access import AuditLog, CallerIdentity, PeopleList, TokenList
from broker.app.results.anomalies import IncidentList
from broker.app.results.approvals import ApprovalList, StandingGrantResult
from broker.app.results.budgets import BudgetDetails, BudgetList
from broker.app.results.capacity import CapacityList, RecordedCapacity
from broker.app.results.capacity_plan import CapacityFindingList
from broker.app.results.charges import BilledReport
from broker.app.results.focus import FocusExportResult
from broker.app.results.forecasts import ForecastsReport
from broker.app.results.job_history import JobHistory
from broker.app.results.job_ledger import JobLedger
from broker.app.results.jobs import AttemptList, JobDetails, JobLogs
from broker.app.results.kept_files import CheckpointFiles, JobCheckpoints, JobOutputs
from broker.app.results.offers import OfferGroupList
from broker.app.results.outside import OutsideEnd, OutsideLaunchList, SlurmAdmission
from broker.app.results.plans import PlanResult
from broker.app.results.policies import (
    AppliedPolicy,
    CheckedPolicy,
    PolicyExplanation,
    PolicyInForce,
    PolicyVersionList,
)
from broker.app.results.policy_preview import PolicyPreviewResult
from broker.app.results.price_history import PriceHistoryList
from broker.app.results.prices import PriceStatus
from broker.app.results.purchases import (
    PurchaseHistory,
    PurchaseList,
    PurchasePreviewResult,
    PurchaseResult,
    QuoteList,
    UndoTermsResult,
)
from broker.app.results.queue import QueueResult
from broker.app.results.review import ReviewReport
from broker.app.results.risk import OfferRiskList
from broker.app.results.showback import ChargebackList, ChargebackStatement, ShowbackReport
from broker.app.results.spend import SpendReport
from broker.app.results.submission import JobFileText, SubmissionTerms
from broker.app.results.trials import RecordedDecisions
from broker.app.results.units import UnitMetrics
from broker.app.results.values import Result
from broker.app.results.why_here import PlacementDecisions
from broker.core.access.permissions import Permission
from broker.server import (
    admission,
    changing,
    contents,
    governing,
    kept,
    looking,
    policy_routes,
    procuring,
    reporting,
    statements,
    streaming,
    submitting,
)
from broker.server.pages import JobPage, OfferPage
from broker.server.paths import DEVICE_AUTHORIZATION, REVOCATION, TOKEN, VERSION


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """One route. ``permission``: required in some team before the endpoint checks the team concerned; None: any valid
    token. ``answers``: the document of a successful response; None: it has none. ``media``: the media types of a
    response without a document."""

    method: str
    path: str
    permission: Permission | None
    endpoint: Callable[..., Response] | Callable[..., Awaitable[Response]]
    answers: type[Result] | None
    media: tuple[str, ...] = ()

    @property
    def whole_path(self) -> str:
        return VERSION + self.path


_BYTES, _SHEETS = ("application/octet-stream",), tuple(statements.MEDIA.values())
ROUTES = (
    ApiRoute("GET", "/me", None, looking.me, CallerIdentity),
    ApiRoute("GET", "/jobs", Permission.SEE_JOBS, looking.list_jobs, JobPage),
    ApiRoute("GET", "/jobs/{id}", Permission.SEE_JOBS, looking.show_job, JobHistory),
    ApiRoute("GET", "/jobs/{id}/attempts", Permission.SEE_JOBS, looking.job_attempts, AttemptList),
    ApiRoute("GET", "/jobs/{id}/ledger", Permission.SEE_JOBS, looking.job_ledger, JobLedger),
    ApiRoute("GET", "/jobs/{id}/placements", Permission.SEE_JOBS, looking.job_placements, PlacementDecisions),
    ApiRoute("GET", "/jobs/{id}/logs", Permission.SEE_OUTPUT, looking.job_logs, JobLogs),
    ApiRoute("GET", "/offers", Permission.SEE_MARKET, looking.list_offers, OfferPage),
    ApiRoute("GET", "/offers/groups", Permission.SEE_MARKET, looking.group_offers, OfferGroupList),
    ApiRoute("GET", "/offers/risks", Permission.SEE_MARKET, looking.offer_risks, OfferRiskList),
    ApiRoute("GET", "/budgets", Permission.SEE_BUDGETS, looking.list_budgets, BudgetList),
    ApiRoute("GET", "/budgets/{budget}", Permission.SEE_BUDGETS, looking.show_budget, BudgetDetails),
    ApiRoute("GET", "/approvals", Permission.SEE_JOBS, looking.list_approvals, ApprovalList),
    ApiRoute("GET", "/queue", Permission.SEE_JOBS, looking.show_queue, QueueResult),
    ApiRoute("GET", "/jobs/{id}/stream", Permission.SEE_JOBS, streaming.stream_job, None, ("text/event-stream",)),
    ApiRoute("GET", "/jobs/{id}/files", Permission.SEE_OUTPUT, kept.list_files, JobOutputs),
    ApiRoute("GET", "/jobs/{id}/files/{sha256}", Permission.SEE_OUTPUT, kept.file_content, None, _BYTES),
    ApiRoute("GET", "/jobs/{id}/checkpoints", Permission.SEE_OUTPUT, kept.list_checkpoints, JobCheckpoints),
    ApiRoute(
        "GET", "/jobs/{id}/checkpoints/{checkpoint}", Permission.SEE_OUTPUT, kept.checkpoint_files, CheckpointFiles
    ),
    ApiRoute(
        *("GET", "/jobs/{id}/checkpoints/{checkpoint}/{sha256}", Permission.SEE_OUTPUT, kept.checkpoint_content),
        *(None, _BYTES),
    ),
    ApiRoute("GET", "/reports/spend", Permission.SEE_BUDGETS, reporting.spend, SpendReport),
    ApiRoute("GET", "/reports/units", Permission.SEE_BUDGETS, reporting.units, UnitMetrics),
    ApiRoute("GET", "/reports/forecasts", Permission.SEE_BUDGETS, reporting.forecasts, ForecastsReport),
    ApiRoute("GET", "/reports/anomalies", Permission.SEE_BUDGETS, reporting.anomalies, IncidentList),
    ApiRoute("GET", "/reports/showback", Permission.SEE_ALL_TEAMS, reporting.showback, ShowbackReport),
    ApiRoute("GET", "/reports/chargeback", Permission.SEE_ALL_TEAMS, reporting.statements, ChargebackList),
    ApiRoute("GET", "/reports/chargeback/{month}", Permission.SEE_ALL_TEAMS, reporting.statement, ChargebackStatement),
    ApiRoute("GET", "/reports/review", Permission.SEE_ALL_TEAMS, reporting.month_review, ReviewReport),
    ApiRoute("GET", "/reports/billed", Permission.SEE_ALL_TEAMS, reporting.billed, BilledReport),
    ApiRoute("GET", "/reports/focus/{month}", Permission.SEE_ALL_TEAMS, statements.focus_export, FocusExportResult),
    ApiRoute("GET", "/reports/focus/{month}/file", Permission.SEE_ALL_TEAMS, statements.focus_file, None, _SHEETS),
    ApiRoute(
        "POST",
        "/reports/chargeback/{month}",
        Permission.FREEZE_STATEMENTS,
        statements.freeze_statement,
        ChargebackStatement,
    ),
    ApiRoute("GET", "/capacity", Permission.SEE_ALL_TEAMS, reporting.list_capacity, CapacityList),
    ApiRoute("GET", "/capacity/use", Permission.SEE_ALL_TEAMS, reporting.capacity_use, CapacityFindingList),
    ApiRoute("GET", "/purchases", Permission.SEE_BUDGETS, reporting.list_purchases, PurchaseList),
    ApiRoute("GET", "/purchases/{purchase}", Permission.SEE_BUDGETS, reporting.show_purchase, PurchaseHistory),
    ApiRoute("GET", "/prices/history", Permission.SEE_MARKET, reporting.price_history, PriceHistoryList),
    ApiRoute("GET", "/prices/status", Permission.SEE_MARKET, reporting.price_status, PriceStatus),
    ApiRoute("GET", "/policies", Permission.SEE_POLICIES, governing.policy_in_force, PolicyInForce),
    ApiRoute("GET", "/policies/versions", Permission.SEE_ALL_TEAMS, governing.policy_versions, PolicyVersionList),
    ApiRoute("GET", "/policies/findings", Permission.SEE_ALL_TEAMS, policy_routes.policy_findings, CapacityFindingList),
    ApiRoute("POST", "/policies/check", Permission.CHANGE_POLICIES, policy_routes.check_policy, CheckedPolicy),
    ApiRoute("POST", "/policies/explain", Permission.SUBMIT, policy_routes.explain_policy, PolicyExplanation),
    ApiRoute("GET", "/jobs/{id}/decisions", Permission.SEE_JOBS, policy_routes.job_decisions, RecordedDecisions),
    ApiRoute("GET", "/jobs/{id}/job-file", Permission.SEE_OUTPUT, submitting.job_file, JobFileText),
    ApiRoute("POST", "/jobs/{id}/resume", Permission.CHANGE_OWN_JOBS, submitting.resume_job, JobDetails),
    ApiRoute("GET", "/people", Permission.SEE_PEOPLE, governing.list_people, PeopleList),
    ApiRoute("GET", "/tokens", Permission.SEE_PEOPLE, governing.list_tokens, TokenList),
    ApiRoute("GET", "/audit", Permission.SEE_PEOPLE, governing.audit_lines, AuditLog),
    ApiRoute("GET", "/submission", Permission.SUBMIT, submitting.submission_terms, SubmissionTerms),
    ApiRoute("POST", "/plans", Permission.SUBMIT, submitting.plan_job, PlanResult),
    ApiRoute("POST", "/jobs", Permission.SUBMIT, submitting.submit_job, JobDetails),
    ApiRoute("HEAD", "/contents/{kind}/{sha256}", Permission.SUBMIT, contents.has_content, None),
    ApiRoute("PUT", "/contents/{kind}/{sha256}", Permission.SUBMIT, contents.keep_content, None),
    ApiRoute("POST", "/jobs/{id}/cancel", Permission.CHANGE_OWN_JOBS, changing.cancel_job, JobDetails),
    ApiRoute("POST", "/jobs/{id}/retry", Permission.CHANGE_OWN_JOBS, submitting.retry_job, JobDetails),
    ApiRoute("POST", "/jobs/{id}/extend", Permission.CHANGE_OWN_JOBS, changing.extend_job, JobDetails),
    ApiRoute(
        "POST", "/policies/preview", Permission.CHANGE_POLICIES, policy_routes.preview_policy, PolicyPreviewResult
    ),
    ApiRoute(
        "POST",
        "/policies/rollback/preview",
        Permission.CHANGE_POLICIES,
        policy_routes.preview_rollback,
        PolicyPreviewResult,
    ),
    ApiRoute("POST", "/policies", Permission.CHANGE_POLICIES, policy_routes.apply_policy, AppliedPolicy),
    ApiRoute("POST", "/policies/rollback", Permission.CHANGE_POLICIES, policy_routes.rollback_policy, AppliedPolicy),
    ApiRoute("GET", "/purchases/{purchase}/undo", Permission.SEE_BUDGETS, procuring.show_undo_terms, UndoTermsResult),
    ApiRoute("POST", "/capacity", Permission.BUY, procuring.record_capacity, RecordedCapacity),
    ApiRoute("POST", "/capacity/quotes", Permission.BUY, procuring.ask_quotes, QuoteList),
    ApiRoute("POST", "/purchases", Permission.BUY, procuring.buy_quote, PurchaseResult),
    ApiRoute("POST", "/purchases/preview", Permission.BUY, procuring.preview_purchase, PurchasePreviewResult),
    ApiRoute("POST", "/purchases/{purchase}/withdraw", Permission.BUY, procuring.withdraw_purchase, PurchaseResult),
    ApiRoute("POST", "/purchases/{purchase}/cancel", Permission.BUY, procuring.cancel_purchase, PurchaseResult),
    ApiRoute("POST", "/purchases/{purchase}/approve", Permission.APPROVE, procuring.approve_purchase, PurchaseResult),
    ApiRoute("POST", "/purchases/{purchase}/reject", Permission.APPROVE, procuring.reject_purchase, PurchaseResult),
    ApiRoute("GET", "/launches", Permission.SEE_JOBS, admission.list_launches, OutsideLaunchList),
    ApiRoute("POST", "/launches/{task}/start", Permission.JUDGE_LAUNCHES, admission.start_task, SlurmAdmission),
    ApiRoute("POST", "/launches/{launch}/end", Permission.JUDGE_LAUNCHES, admission.end_launch, OutsideEnd),
    ApiRoute("POST", "/admission/skypilot", Permission.JUDGE_LAUNCHES, admission.judge_skypilot, None),
    ApiRoute("POST", "/admission/slurm", Permission.JUDGE_LAUNCHES, admission.judge_slurm, SlurmAdmission),
    ApiRoute(
        "POST", "/approvals/standing/{number}/revoke", Permission.APPROVE, changing.revoke_grant, StandingGrantResult
    ),
    ApiRoute("POST", "/approvals/{id}/grant", Permission.APPROVE, changing.grant_approval, JobDetails),
    ApiRoute("POST", "/approvals/{id}/refuse", Permission.APPROVE, changing.refuse_approval, JobDetails),
)
UPLOADS = "/contents/"
"""Routes below this path read bodies of any size piece by piece, and limit their size themselves."""
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
"""Routes that need no person's token: the description of the API, those with the service's own token, and those by
which a program gets or revokes a token."""
