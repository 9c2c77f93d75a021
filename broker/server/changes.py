"""Changes through the API and the page. Each request takes effect once and is recorded in the audit log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Annotated

from fastapi import Header
from pydantic import BaseModel, ConfigDict, Field

from broker.agent.names import is_one_line
from broker.app.access.idempotency import ChangeAnswer, ChangeRequest, run_once
from broker.app.alerts import approvers
from broker.app.jobs import approvals, details, extension, jobs
from broker.app.jobs.alternatives import JobLimits
from broker.app.results.approvals import StandingGrantResult
from broker.core.access.permissions import Permission
from broker.core.errors import InvalidInput
from broker.core.events.views import JobView
from broker.core.policy.approvals import StandingGrant
from broker.core.values.units import parse_duration, parse_money, print_duration
from broker.server.callers import By, Caller

Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern=r"^[!-~]{8,128}$",
        description="A unique key of the request, such as a UUID. A repetition with the same key has no effect.",
    ),
]


class ExtendBody(BaseModel):
    """New total limits: ``max_cost`` in USD (``$900``), ``max_duration`` of billed time (``72h``)."""

    model_config = ConfigDict(extra="forbid")

    max_cost: str | None = Field(default=None, max_length=40)
    max_duration: str | None = Field(default=None, max_length=40)


class DecisionBody(BaseModel):
    """The reason in one line, for the record and the requester."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=500)


def cancel_job(by: By, id: str, key: Key) -> ChangeAnswer:
    """End a job, after a last checkpoint. The unspent part of its hold is released."""
    view = changeable(by, id)
    return _once(by, key, "jobs.cancel", view, {}, lambda: jobs.cancel(by.broker, view, by=by.actor))


def extend_job(by: By, id: str, key: Key, body: ExtendBody) -> ChangeAnswer:
    """Raise a job's limit of cost or billed time. Status 202: it needs an approval; until then the old limits apply."""
    limits = body.model_dump()
    view = changeable(by, id)
    job_limits = _limits(limits)

    def extend() -> JobView:
        after = extension.extend(by.broker, view, job_limits, by=by.actor)
        approvers.notify_approvers(by.broker, after)
        return after

    return _once(by, key, "jobs.extend", view, limits, extend)


def grant_approval(by: By, id: str, key: Key, body: DecisionBody) -> ChangeAnswer:
    """Approve the job's request, as far as the caller is an approver; nobody approves their own request."""
    view, note = by.job(id, Permission.APPROVE), one_line(body.reason)

    def grant() -> JobView:
        return approvals.grant(by.broker, view.id, note, by=by.actor)

    return _once(by, key, "approvals.grant", view, {"reason": note}, grant)


def refuse_approval(by: By, id: str, key: Key, body: DecisionBody) -> ChangeAnswer:
    """Refuse the job's request; the money held for it is released."""
    view, note = by.job(id, Permission.APPROVE), one_line(body.reason)

    def refuse() -> JobView:
        return approvals.refuse(by.broker, view.id, note, by=by.actor)

    return _once(by, key, "approvals.refuse", view, {"reason": note}, refuse)


def revoke_grant(by: By, number: int, key: Key) -> ChangeAnswer:
    """Revoke a standing grant of one's own; jobs launched under it go on."""

    def to_answer(after: StandingGrant) -> ChangeAnswer:
        return ChangeAnswer.of(StandingGrantResult.of(after, by.broker.clock.now()), "revoked")

    request = request_of(
        by, key, ("approvals.revoke", f"standing grant {number}"), json.dumps(["approvals.revoke", number])
    )
    return run_once(by.broker, request, lambda: approvals.revoke(by.broker, number, by=by.actor), to_answer)


def changeable(by: Caller, id: str) -> JobView:
    """The job, if the caller may change it: their own, or as an administrator of its team. Raises as `Caller.job`."""
    view = by.job(id)
    is_own = view.user == by.actor.identity
    by.require(Permission.CHANGE_OWN_JOBS if is_own else Permission.CHANGE_TEAM_JOBS, view.job.team)
    return view


def _limits(limits: Mapping[str, str | None]) -> JobLimits:
    cost, duration, field = limits["max_cost"], limits["max_duration"], "max_cost"
    try:
        max_cost = None if cost is None else parse_money(cost)
        field = "max_duration"
        return JobLimits(max_cost, None if duration is None else parse_duration(duration))
    except (ValueError, OverflowError) as error:
        raise InvalidInput(str(error), where=field) from error


def one_line(text: str) -> str:
    """The text, if it is one line. Raises `InvalidInput` otherwise."""
    if not is_one_line(text):
        raise InvalidInput("expected one line without line breaks or control characters", where="reason")
    return text


def _once(
    by: Caller, key: str, action: str, view: JobView, body: Mapping[str, str | None], change: Callable[[], JobView]
) -> ChangeAnswer:
    def to_answer(after: JobView) -> ChangeAnswer:
        status = 202 if action == "jobs.extend" and after.asked is not None else 200
        return ChangeAnswer.of(details.details(by.broker, after), job_in_words(after), status)

    request_text = json.dumps([action, view.id, dict(body)], sort_keys=True)
    return run_once(
        by.broker, request_of(by, key, (action, view.id), request_text, job_in_words(view)), change, to_answer
    )


def request_of(by: Caller, key: str, subject: tuple[str, str], text: str, before: str = "") -> ChangeRequest:
    """The record of the caller's request. ``subject``: the action and its subject; ``text``: the whole request as text;
    ``before``: the subject's state before the change."""
    digest = sha256(text.encode()).hexdigest()
    return ChangeRequest(by.actor.identity, by.token, by.origin, key, digest, *subject, before)


def job_in_words(view: JobView) -> str:
    """A job's state and limits, for the audit log."""
    cost = "no limit" if view.max_cost is None else str(view.max_cost)
    approval_note = ", asks for approval" if view.asked is not None else ""
    cancel_note = ", to be cancelled" if view.cancel_requested and not view.state.final else ""
    return f"{view.state.value}, {cost}, {print_duration(view.max_duration)}{approval_note}{cancel_note}"
