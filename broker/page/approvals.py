"""Approval requests with their arithmetic, and the forms to approve or refuse them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from fastapi.responses import RedirectResponse, Response

from broker.core.access.permissions import Permission
from broker.core.errors import InvalidInput
from broker.page.drawing import drawn
from broker.page.visitors import By, Form, request_key
from broker.server import changes, routes_jobs
from broker.server.changes import DecisionBody

AT = "/approvals"
_ROWS = 50
_LONGEST_REASON = 500


def approval_list(
    by: By, decided: Annotated[bool, Query()] = False, skip: Annotated[int, Query(ge=0, le=1_000_000)] = 0
) -> Response:
    """The page of requests (`_ROWS` of them, after the first ``skip``), standing grants and purchases; with buttons for
    approvers."""
    every = routes_jobs.list_approvals(by.caller, decided=decided)
    found = every.model_copy(update={"requests": every.requests[skip : skip + _ROWS]})
    more = skip + _ROWS if len(every.requests) > skip + _ROWS else None
    answerable = {one.job for one in found.requests if one.mine and by.caller.access.may(Permission.APPROVE, one.team)}
    values = {"found": found, "answerable": answerable, "decided": decided, "more": more, "of": len(every.requests)}
    return drawn("approvals.html", by, values, title="Approvals", at=AT)


def grant(by: By, id: str, form: Form) -> Response:
    """Approve the request for the rules whose approver this person is. Idempotent by the form's key. Raises
    `NotAllowed`, `UnknownName`."""
    changes.grant_approval(by.caller, id, request_key(form), DecisionBody(reason=_reason(form)))
    return RedirectResponse(AT, 303)


def refuse(by: By, id: str, form: Form) -> Response:
    """Refuse."""
    changes.refuse_approval(by.caller, id, request_key(form), DecisionBody(reason=_reason(form)))
    return RedirectResponse(AT, 303)


def _reason(form: dict[str, str]) -> str:
    reason = form.get("reason", "").strip()
    if len(reason) > _LONGEST_REASON:
        raise InvalidInput(f"expected at most {_LONGEST_REASON} characters", where="reason")
    return reason
