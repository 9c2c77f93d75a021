"""The one table of pages, each with the permission that it needs. A page that is not here does not exist."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastapi.responses import Response

from broker.core.access.permissions import Permission
from broker.page import jobs
from broker.page.overview import overview


@dataclass(frozen=True, slots=True)
class PageRoute:
    """One page, or what takes one of its forms. ``permission``: what the visitor must have somewhere, before the
    endpoint asks for the team at hand; None: whoever has signed in."""

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
)
