"""The table of use cases that a team server offers. Its API, their permissions, the audit log's actions and what
commands ask a server are made of it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from importlib import import_module
from typing import Any, get_type_hints

from broker.core.access.people import Permission as May

IN_QUERY = "in the query"
"""Marks a parameter of a use case asked by POST that stands in the address, not in the body."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A document that comes in pages: its list ``rows``, the field ``key`` that names a row, empty where none does, and
    the fields by which the caller may select."""

    rows: str
    key: str = ""
    filters: tuple[str, ...] = ()


LISTS = {
    "/jobs/{id}/attempts": Listing("attempts", "number", ("state", "cause")),
    "/jobs/{id}/checkpoints": Listing("checkpoints", "checkpoint"),
    "/jobs/{id}/decisions": Listing("decisions", "", ("answer",)),
    "/jobs/{id}/files": Listing("files", "path", ("kind",)),
    "/jobs/{id}/ledger": Listing("entries"),
    "/queue": Listing("waiting", "id", ("team",)),
    "/approvals": Listing("requests", "job", ("user", "team", "state")),
    "/prices/status": Listing("providers", "provider", ("provider", "status")),
    "/budgets": Listing("budgets", "id", ("standing",)),
    "/reports/anomalies": Listing("incidents"),
    "/reports/chargeback": Listing("statements", "month"),
    "/capacity": Listing("recorded", "number", ("provider", "accelerator", "kind")),
    "/capacity/use": Listing("findings"),
    "/purchases": Listing("purchases", "id", ("state", "team", "user")),
    "/policies/versions": Listing("versions", "number"),
    "/policies/findings": Listing("findings"),
    "/people": Listing("people", "name", ("role", "team")),
    "/watches": Listing("watches", "name", ("provider", "trigger")),
    "/me/tokens": Listing("tokens", "id", ("scope",)),
    "/tokens": Listing("tokens", "id", ("scope",)),
    "/launches": Listing("launches", "id", ("team", "user", "tool")),
}
"""The lists that are short enough to be made whole. Jobs, offers and the audit log have cursors of their own."""


@dataclass(frozen=True)
class UseCase:
    """One use case. ``function``: ``module:name`` in this package; its name is also that of the API's operation, and
    what it returns the document. ``permission``: required in some team; the function checks the team concerned; None:
    any valid token. ``schema``: the name of the document in `gpubroker schema`: of the command that prints it.
    ``action``: in the audit log, of one that changes something once per idempotency key; ``creates``: something new.
    """

    method: str
    path: str
    permission: May | None
    function: str
    schema: str = ""
    action: str = ""
    creates: bool = False

    @property
    def status(self) -> HTTPStatus:
        """That of success, of one that does not wait for an approval."""
        return HTTPStatus.CREATED if self.creates else HTTPStatus.OK

    @property
    def name(self) -> str:
        return self.function.partition(":")[2]

    @cached_property
    def run(self) -> Callable[..., Any]:
        """The function."""
        module, _, name = self.function.partition(":")
        function: Callable[..., Any] = getattr(import_module(f"broker.app.use_cases.{module}"), name)
        return function

    @property
    def waits(self) -> bool:
        """Whether it may need an approval first."""
        return self.action in ("jobs.submit", "jobs.retry", "jobs.resume", "jobs.extend")

    @property
    def listing(self) -> Listing | None:
        """How its document comes in pages, if it does."""
        return LISTS.get(self.path) if self.method == "GET" else None

    @property
    def document(self) -> type[Any]:
        """The class of its document."""
        document: type[Any] = get_type_hints(self.run)["return"]
        return document


USE_CASES = (
    UseCase("GET", "/me", None, "people:me", "whoami"),
    UseCase("GET", "/overview", May.SEE_MARKET, "overview:overview"),
    UseCase("GET", "/jobs", May.SEE_JOBS, "jobs:list_jobs"),
    UseCase("GET", "/jobs/{id}", May.SEE_JOBS, "jobs:show_job", "status"),
    UseCase("GET", "/jobs/{id}/attempts", May.SEE_JOBS, "jobs:job_attempts", "status-attempts"),
    UseCase("GET", "/jobs/{id}/ledger", May.SEE_JOBS, "jobs:job_ledger"),
    UseCase("GET", "/jobs/{id}/placements", May.SEE_JOBS, "jobs:job_placements"),
    UseCase("GET", "/jobs/{id}/logs", May.SEE_OUTPUT, "jobs:job_logs", "logs"),
    UseCase("GET", "/jobs/{id}/files", May.SEE_OUTPUT, "jobs:list_files", "jobs-files"),
    UseCase("GET", "/jobs/{id}/checkpoints", May.SEE_OUTPUT, "jobs:list_checkpoints", "jobs-files-checkpoints"),
    UseCase("GET", "/jobs/{id}/checkpoints/{checkpoint}", May.SEE_OUTPUT, "jobs:checkpoint_files"),
    UseCase("GET", "/jobs/{id}/decisions", May.SEE_JOBS, "jobs:job_decisions", "policy-decisions"),
    UseCase("GET", "/jobs/{id}/job-file", May.SUBMIT, "jobs:job_file"),
    UseCase("POST", "/jobs/{id}/cancel", May.CHANGE_OWN_JOBS, "jobs:cancel_job", "", "jobs.cancel"),
    UseCase("POST", "/jobs/{id}/extend", May.CHANGE_OWN_JOBS, "approvals:extend_job", "", "jobs.extend"),
    UseCase("GET", "/queue", May.SEE_JOBS, "approvals:show_queue", "jobs-queue"),
    UseCase("GET", "/approvals", May.SEE_JOBS, "approvals:list_approvals", "approvals-list"),
    UseCase("POST", "/approvals/{id}/grant", May.APPROVE, "approvals:grant_approval", "", "approvals.grant"),
    UseCase("POST", "/approvals/{id}/refuse", May.APPROVE, "approvals:refuse_approval", "", "approvals.refuse"),
    UseCase(
        "POST",
        "/approvals/standing/{number}/revoke",
        May.APPROVE,
        "approvals:revoke_grant",
        "standing-grant",
        "approvals.revoke",
    ),
    UseCase("GET", "/submission", May.SUBMIT, "submission:submission_terms"),
    UseCase("POST", "/plans", May.SUBMIT, "submission:plan_job", "plan"),
    UseCase("POST", "/jobs", May.SUBMIT, "submission:submit_job", "submit", "jobs.submit", creates=True),
    UseCase("POST", "/jobs/{id}/retry", May.CHANGE_OWN_JOBS, "submission:retry_job", "", "jobs.retry", creates=True),
    UseCase("POST", "/jobs/{id}/resume", May.CHANGE_OWN_JOBS, "submission:resume_job", "", "jobs.resume", creates=True),
    UseCase("GET", "/offers", May.SEE_MARKET, "market:list_offers"),
    UseCase("GET", "/offers/groups", May.SEE_MARKET, "market:group_offers", "offers-groups"),
    UseCase("GET", "/offers/risks", May.SEE_MARKET, "market:offer_risks", "offers-risk"),
    UseCase("GET", "/prices/history", May.SEE_MARKET, "market:price_history", "prices-history"),
    UseCase("GET", "/prices/status", May.SEE_MARKET, "market:price_status", "prices-status"),
    UseCase("GET", "/watches", May.SEE_MARKET, "watches:list_watches", "watch-list"),
    UseCase("GET", "/watches/{watch}", May.SEE_MARKET, "watches:show_watch"),
    UseCase("PUT", "/watches/{watch}", May.WATCH_PRICES, "watches:set_watch"),
    UseCase("DELETE", "/watches/{watch}", May.WATCH_PRICES, "watches:remove_watch", "watch-remove"),
    UseCase("GET", "/budgets", May.SEE_BUDGETS, "money:list_budgets", "budget"),
    UseCase("GET", "/budgets/{budget}", May.SEE_BUDGETS, "money:show_budget", "budget-details"),
    UseCase("GET", "/reports/spend", May.SEE_BUDGETS, "money:spend", "report-spend"),
    UseCase("GET", "/reports/month", May.SEE_BUDGETS, "money:month_so_far"),
    UseCase("GET", "/reports/units", May.SEE_BUDGETS, "money:units", "report-units"),
    UseCase("GET", "/reports/forecasts", May.SEE_BUDGETS, "money:forecasts", "report-forecasts"),
    UseCase("GET", "/reports/anomalies", May.SEE_BUDGETS, "money:anomalies", "report-anomalies"),
    UseCase(
        "POST", "/reports/anomalies/{team}/{first}", May.CHANGE_OWN_JOBS, "money:answer_anomaly", "", "anomalies.answer"
    ),
    UseCase("GET", "/reports/showback", May.SEE_ALL_TEAMS, "money:showback", "report-showback"),
    UseCase("GET", "/reports/chargeback", May.SEE_ALL_TEAMS, "money:statements", "report-showback-list"),
    UseCase("GET", "/reports/chargeback/{month}", May.SEE_ALL_TEAMS, "money:statement", "report-showback-frozen"),
    UseCase(
        "POST",
        "/reports/chargeback/{month}",
        May.FREEZE_STATEMENTS,
        "money:freeze_statement",
        "",
        "statements.freeze",
        creates=True,
    ),
    UseCase("GET", "/reports/review", May.SEE_ALL_TEAMS, "money:month_review", "report-review"),
    UseCase(
        "POST", "/reports/review/{month}/advice/{advice}", May.ANSWER_ADVICE, "money:answer_advice", "", "advice.answer"
    ),
    UseCase("GET", "/reports/billed", May.SEE_ALL_TEAMS, "money:billed", "report-billed"),
    UseCase("GET", "/reports/focus/{month}", May.SEE_ALL_TEAMS, "money:focus_export", "report-focus"),
    UseCase("GET", "/capacity", May.SEE_ALL_TEAMS, "capacity:list_capacity", "capacity-list"),
    UseCase("GET", "/capacity/use", May.SEE_ALL_TEAMS, "capacity:capacity_use"),
    UseCase("POST", "/capacity", May.BUY, "capacity:record_capacity", "capacity-record", "capacity.add", creates=True),
    UseCase("POST", "/capacity/quotes", May.BUY, "capacity:ask_quotes", "capacity-quote"),
    UseCase("GET", "/purchases", May.SEE_BUDGETS, "capacity:list_purchases", "capacity-purchases"),
    UseCase("GET", "/purchases/{purchase}", May.SEE_BUDGETS, "capacity:show_purchase", "capacity-purchase-history"),
    UseCase("GET", "/purchases/{purchase}/undo", May.SEE_BUDGETS, "capacity:show_undo_terms", "capacity-undo"),
    UseCase("POST", "/purchases", May.BUY, "capacity:buy_quote", "capacity-purchase", "purchases.buy", creates=True),
    UseCase("POST", "/purchases/preview", May.BUY, "capacity:preview_purchase", "capacity-buy-preview"),
    UseCase("POST", "/purchases/{purchase}/withdraw", May.BUY, "capacity:withdraw_purchase", "", "purchases.withdraw"),
    UseCase("POST", "/purchases/{purchase}/cancel", May.BUY, "capacity:cancel_purchase", "", "purchases.cancel"),
    UseCase("POST", "/purchases/{purchase}/grant", May.APPROVE, "capacity:grant_purchase", "", "purchases.grant"),
    UseCase("POST", "/purchases/{purchase}/refuse", May.APPROVE, "capacity:refuse_purchase", "", "purchases.refuse"),
    UseCase("GET", "/policies", May.SEE_POLICIES, "policies:policy_in_force", "policy-show"),
    UseCase("GET", "/policies/versions", May.SEE_ALL_TEAMS, "policies:policy_versions", "policy-show-versions"),
    UseCase("GET", "/policies/findings", May.SEE_ALL_TEAMS, "capacity:policy_findings", "policy-findings"),
    UseCase("POST", "/policies/check", May.CHANGE_POLICIES, "policies:check_policy", "policy-check"),
    UseCase("POST", "/policies/explain", May.SUBMIT, "policies:explain_policy", "policy-explain"),
    UseCase("POST", "/policies/preview", May.CHANGE_POLICIES, "policies:preview_policy", "policy-apply-preview"),
    UseCase("POST", "/policies/previews", May.CHANGE_POLICIES, "policies:start_preview"),
    UseCase("GET", "/policies/previews/{preview}", May.CHANGE_POLICIES, "policies:show_preview"),
    UseCase("POST", "/policies/rollback/preview", May.CHANGE_POLICIES, "policies:preview_rollback"),
    UseCase("POST", "/policies", May.CHANGE_POLICIES, "policies:apply_policy", "policy-apply", "policy.apply"),
    UseCase("POST", "/policies/rollback", May.CHANGE_POLICIES, "policies:rollback_policy", "", "policy.rollback"),
    UseCase("GET", "/people", May.SEE_PEOPLE, "people:list_people", "people-list"),
    UseCase("GET", "/tokens", May.SEE_PEOPLE, "people:list_tokens", "tokens-list"),
    UseCase("GET", "/people/{person}", May.SEE_PEOPLE, "people:show_person"),
    UseCase("PUT", "/people/{person}", May.ADMINISTER, "people:set_person"),
    UseCase("POST", "/people/{person}/tokens", May.ADMINISTER, "people:create_token", creates=True),
    UseCase("DELETE", "/tokens/{token}", May.ADMINISTER, "people:revoke_token"),
    UseCase("GET", "/me/tokens", May.MAKE_OWN_TOKENS, "people:list_own_tokens"),
    UseCase("POST", "/me/tokens", May.MAKE_OWN_TOKENS, "people:create_own_token", creates=True),
    UseCase("DELETE", "/me/tokens/{token}", May.MAKE_OWN_TOKENS, "people:revoke_own_token"),
    UseCase("GET", "/audit", May.SEE_PEOPLE, "people:audit_lines", "audit"),
    UseCase("GET", "/audit/verification", May.SEE_PEOPLE, "people:verify_audit", "audit-verify"),
    UseCase("GET", "/launches", May.SEE_JOBS, "outside:list_launches", "launches"),
    UseCase("POST", "/launches/{task}/start", May.JUDGE_LAUNCHES, "outside:start_task"),
    UseCase("POST", "/launches/{launch}/end", May.JUDGE_LAUNCHES, "outside:end_launch", "launches-end"),
)
_BY_FUNCTION = {use_case.function: use_case for use_case in USE_CASES}


def row_of(function: Callable[..., Any]) -> UseCase:
    """The row of a function of this package."""
    return _BY_FUNCTION[f"{function.__module__.rpartition('.')[2]}:{function.__name__}"]
