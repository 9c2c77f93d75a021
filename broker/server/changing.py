"""The routes that change something. Each names its request by an idempotency key, is made once, and is in the audit
log."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated

from fastapi import Header
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from broker.app.access.once import ChangeAnswer, ChangeRequest, once
from broker.app.alerts import approvers
from broker.app.jobs import approvals, details, jobs
from broker.core.access.permissions import Permission
from broker.core.errors import InvalidInput
from broker.core.events.views import JobView
from broker.core.values.units import parse_duration, parse_money, print_duration
from broker.server.callers import Caller
from broker.server.looking import By

Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{8,128}$",
        description="Your name for this request, such as a UUID: asked again under it, it is not made again.",
    ),
]


class ExtendBody(BaseModel):
    """New limits, in all: ``max_cost`` in USD (``$900``), ``max_duration`` of billed time (``72h``)."""

    model_config = ConfigDict(extra="forbid")

    max_cost: str | None = Field(default=None, max_length=40)
    max_duration: str | None = Field(default=None, max_length=40)


class DecisionBody(BaseModel):
    """Why, in one line, for the record and the requester."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=500)


def cancel_job(by: By, id: str, key: Key) -> Response:
    """Stop a job for good, after a last checkpoint. Held money that is not spent is released."""
    view = _changeable(by, id)
    return _once(by, key, "jobs.cancel", view, {}, lambda: jobs.cancel(by.broker, view, by=by.actor))


def extend_job(by: By, id: str, key: Key, body: ExtendBody) -> Response:
    """Raise a job's limit of cost or billed time. 202: it needs an approval first; meanwhile the old limits hold."""
    view = _changeable(by, id)
    more = _limits(body)

    def extended() -> JobView:
        after = jobs.extend(by.broker, view, more, by=by.actor)
        approvers.tell(by.broker, after)
        return after

    return _once(by, key, "jobs.extend", view, body.model_dump(), extended)


def grant_approval(by: By, id: str, key: Key, body: DecisionBody) -> Response:
    """Approve what a job waits for, as far as the policies ask the caller; nobody approves their own request."""
    view, reason = by.job(id, Permission.APPROVE), _one_line(body.reason)

    def granted() -> JobView:
        return approvals.grant(by.broker, view.id, reason, by=by.actor)

    return _once(by, key, "approvals.grant", view, body.model_dump(), granted)


def refuse_approval(by: By, id: str, key: Key, body: DecisionBody) -> Response:
    """Refuse what a job waits for; the money held for it is released."""
    view, reason = by.job(id, Permission.APPROVE), _one_line(body.reason)

    def turned_down() -> JobView:
        return approvals.refuse(by.broker, view.id, reason, by=by.actor)

    return _once(by, key, "approvals.refuse", view, body.model_dump(), turned_down)


def _changeable(by: Caller, id: str) -> JobView:
    """The job, if the caller may change it: their own, or as administrator of its team. Raises as `Caller.job`."""
    view = by.job(id)
    own = view.user == by.actor.identity
    by.require(Permission.CHANGE_OWN_JOBS if own else Permission.CHANGE_TEAM_JOBS, view.job.team)
    return view


def _limits(body: ExtendBody) -> jobs.More:
    field = "max_cost"
    try:
        cost = None if body.max_cost is None else parse_money(body.max_cost)
        field = "max_duration"
        return jobs.More(cost, None if body.max_duration is None else parse_duration(body.max_duration))
    except (ValueError, OverflowError) as error:
        raise InvalidInput(str(error), where=field) from error


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise InvalidInput("expected one line without line breaks or control characters", where="reason")
    return text


def _once(
    by: Caller, key: str, action: str, view: JobView, body: dict[str, str | None], change: Callable[[], JobView]
) -> Response:
    said = json.dumps([action, view.id, body], sort_keys=True)
    asked = ChangeRequest(
        by.actor.identity, by.token, by.origin, key, sha256(said.encode()).hexdigest(), action, view.id, _in_words(view)
    )

    def told(after: JobView) -> ChangeAnswer:
        document = details.details(by.broker, after)
        status = 202 if action == "jobs.extend" and after.asked is not None else 200
        return ChangeAnswer(status, document.model_dump_json(by_alias=True), _in_words(after))

    answer = once(by.broker, asked, change, told)
    headers = {"Idempotency-Replayed": "true"} if answer.replayed else {}
    return Response(answer.body, answer.status, headers, "application/json")


def _in_words(view: JobView) -> str:
    """A job's state and limits, for the audit log."""
    cost = "no limit" if view.max_cost is None else str(view.max_cost)
    asked = ", asks for approval" if view.asked is not None else ""
    stops = ", to be cancelled" if view.cancel_requested and not view.state.final else ""
    return f"{view.state.value}, {cost}, {print_duration(view.max_duration)}{asked}{stops}"
