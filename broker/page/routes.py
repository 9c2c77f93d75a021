"""The table of all pages, each with the permission that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi.responses import Response

from broker.core.access.permissions import Permission
from broker.page import approvals, device, house, jobs, market, money
from broker.page.overview import overview


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
    PageRoute("GET", "/jobs/{id}/cancel", Permission.CHANGE_OWN_JOBS, jobs.cancelling),
    PageRoute("POST", "/jobs/{id}/cancel", Permission.CHANGE_OWN_JOBS, jobs.cancel),
    PageRoute("GET", "/jobs/{id}/ledger", Permission.SEE_JOBS, money.job_ledger),
    PageRoute("GET", "/queue", Permission.SEE_JOBS, market.queue),
    PageRoute("GET", "/approvals", Permission.SEE_JOBS, approvals.approval_list),
    PageRoute("POST", "/approvals/{id}/grant", Permission.APPROVE, approvals.grant),
    PageRoute("POST", "/approvals/{id}/refuse", Permission.APPROVE, approvals.refuse),
    PageRoute("GET", "/budgets", Permission.SEE_BUDGETS, money.budget_list),
    PageRoute("GET", "/budgets/{id}", Permission.SEE_BUDGETS, money.budget),
    PageRoute("GET", "/offers", Permission.SEE_MARKET, market.offer_list),
    PageRoute("GET", "/me", None, house.me),
    PageRoute("GET", "/device", None, device.asking),
    PageRoute("POST", "/device", None, device.deciding),
    PageRoute("GET", "/people", Permission.SEE_PEOPLE, house.people_and_tokens),
    PageRoute("GET", "/health", Permission.SEE_MARKET, house.health),
)
