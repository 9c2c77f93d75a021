"""The table of all pages, each with the permission that it needs."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi.responses import Response

from broker.core.access.permissions import Permission
from broker.server.api import contents
from broker.server.page import admin, capacity, jobs, market, policies, reports, signing
from broker.server.page.overview import overview


@dataclass(frozen=True, slots=True)
class PageRoute:
    """One page, or the target of a form. ``permission``: required in some team before the endpoint checks the team
    concerned; None: everybody signed in."""

    method: str
    path: str
    permission: Permission | None
    endpoint: Callable[..., Response]


PAGES = (
    PageRoute("GET", "/", None, overview),
    PageRoute("GET", "/jobs", Permission.SEE_JOBS, jobs.job_list),
    PageRoute("GET", "/jobs/{id}", Permission.SEE_JOBS, jobs.job),
    PageRoute("GET", "/jobs/{id}/output", Permission.SEE_OUTPUT, jobs.job_output),
    PageRoute("GET", "/jobs/{id}/accelerators", Permission.SEE_OUTPUT, jobs.job_usage),
    PageRoute("GET", "/jobs/{id}/cancel", Permission.CHANGE_OWN_JOBS, jobs.cancel_form),
    PageRoute("POST", "/jobs/{id}/cancel", Permission.CHANGE_OWN_JOBS, jobs.cancel),
    PageRoute("GET", "/jobs/{id}/ledger", Permission.SEE_JOBS, reports.job_ledger),
    PageRoute("GET", "/queue", Permission.SEE_JOBS, market.queue),
    PageRoute("GET", "/approvals", Permission.SEE_JOBS, jobs.approval_list),
    PageRoute("POST", "/approvals/{id}/grant", Permission.APPROVE, jobs.grant),
    PageRoute("POST", "/approvals/{id}/refuse", Permission.APPROVE, jobs.refuse),
    PageRoute("GET", "/budgets", Permission.SEE_BUDGETS, reports.budget_list),
    PageRoute("GET", "/budgets/{id}", Permission.SEE_BUDGETS, reports.budget),
    PageRoute("GET", "/reports", Permission.SEE_BUDGETS, reports.spending),
    PageRoute("GET", "/reports/month", Permission.SEE_ALL_TEAMS, reports.month),
    PageRoute("POST", "/reports/month/{month}/advice/{advice}", Permission.ANSWER_ADVICE, reports.answer_advice),
    PageRoute("GET", "/policies", Permission.SEE_POLICIES, policies.policy_list),
    PageRoute("GET", "/policies/versions/{number}", Permission.SEE_ALL_TEAMS, policies.policy_version),
    PageRoute("GET", "/policies/change", Permission.CHANGE_POLICIES, policies.change_form),
    PageRoute("POST", "/policies/preview", Permission.CHANGE_POLICIES, policies.preview_change),
    PageRoute("POST", "/policies/apply", Permission.CHANGE_POLICIES, policies.apply_change),
    PageRoute("GET", "/capacity", Permission.SEE_ALL_TEAMS, capacity.capacity_list),
    PageRoute("GET", "/capacity/quote", Permission.BUY, capacity.quote_form),
    PageRoute("POST", "/capacity/buy", Permission.BUY, capacity.buy),
    PageRoute("GET", "/purchases/{purchase}", Permission.SEE_BUDGETS, capacity.purchase),
    PageRoute("GET", "/purchases/{purchase}/undo", Permission.BUY, capacity.undo_form),
    PageRoute("POST", "/purchases/{purchase}/approve", Permission.APPROVE, capacity.approve),
    PageRoute("POST", "/purchases/{purchase}/reject", Permission.APPROVE, capacity.reject),
    PageRoute("POST", "/purchases/{purchase}/cancel", Permission.BUY, capacity.cancel_purchase),
    PageRoute("POST", "/purchases/{purchase}/withdraw", Permission.BUY, capacity.withdraw),
    PageRoute("GET", "/prices", Permission.SEE_MARKET, market.price_history),
    PageRoute("GET", "/jobs/{id}/files", Permission.SEE_OUTPUT, jobs.job_files),
    PageRoute("GET", "/jobs/{id}/files/{sha256}", Permission.SEE_OUTPUT, contents.file_content),
    PageRoute("GET", "/offers", Permission.SEE_MARKET, market.offer_list),
    PageRoute("GET", "/me", None, admin.me),
    PageRoute("POST", "/sign-out", None, signing.sign_out),
    PageRoute("GET", "/device", None, signing.code_form),
    PageRoute("POST", "/device", None, signing.decide_login),
    PageRoute("GET", "/people", Permission.SEE_PEOPLE, admin.people_and_tokens),
    PageRoute("POST", "/people", Permission.SEE_PEOPLE, admin.add_person),
    PageRoute("GET", "/people/{name}", Permission.SEE_PEOPLE, admin.person),
    PageRoute("POST", "/people/{name}", Permission.SEE_PEOPLE, admin.change_person),
    PageRoute("GET", "/health", Permission.SEE_MARKET, admin.health),
)
