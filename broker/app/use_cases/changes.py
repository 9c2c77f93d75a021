"""Changes requested over the network: each takes effect once per idempotency key, and is on record before and after."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, Field
from pydantic_core import to_jsonable_python

from broker.agent.names import is_one_line
from broker.app.access.callers import Caller
from broker.app.access.idempotency import ChangeAnswer, ChangeRequest, run_once
from broker.app.use_cases.table import UseCase, row_of
from broker.core.access.people import Permission
from broker.core.errors import InvalidInput
from broker.core.events.views import JobView
from broker.core.values.units import print_duration
from broker.ledger.finops.change import NOBODY

if TYPE_CHECKING:
    from broker.app.jobs.documents import JobDetails
from broker.app.use_cases.visible import changeable, purchase_id, purchase_of, submittable_job


def single_line(text: str) -> str:
    """The text, if it is one line. Raises `InvalidInput` otherwise."""
    if not is_one_line(text):
        raise InvalidInput("expected one line without line breaks or control characters", where="reason")
    return text


Reason = Annotated[str, AfterValidator(single_line), Field(max_length=500, description="For the record, in one line.")]


def change(by: Caller, key: str, function: Callable[..., Any], **arguments: Any) -> ChangeAnswer:
    """Run a use case that changes something, once per idempotency key. Raises as it and as `run_once`."""
    row, by = row_of(function), replace(by, key=key)
    subject, before = _subject(by, row, arguments)
    text = json.dumps([row.action, to_jsonable_python(arguments)], sort_keys=True)
    digest = sha256(text.encode()).hexdigest()
    actor = by.actor
    request = ChangeRequest(actor.identity, by.token, actor.audit_origin, key, digest, row.action, subject, before)
    return run_once(by.broker, request, lambda: function(by, **arguments), lambda document: _answer(row, document))


def _answer(row: UseCase, document: Any) -> ChangeAnswer:
    waits = row.waits and document.asked is not None
    return ChangeAnswer.of(document, _after(row.action, document), HTTPStatus.ACCEPTED if waits else row.status)


def _subject(by: Caller, row: UseCase, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """What the audit log says of the subject: its name, and its state before the change. What the caller may not change
    is refused here, before the request is on record."""
    match arguments:
        case {"id": str(id)}:
            view = by.job(id, Permission.APPROVE) if row.permission is Permission.APPROVE else changeable(by, id)
            return view.id, job_in_words(view)
        case {"purchase": str(id)}:
            purchase = purchase_of(by, id)
            by.require(row.permission or Permission.BUY, purchase.team)
            return id, purchase.state.value
        case {"job_file": str(text)}:
            return submittable_job(by, text).name, ""
        case {"number": number}:
            return f"standing grant {number}", ""
        case {"team": str(team), "first": first}:
            by.require(Permission.CHANGE_OWN_JOBS, None if team == NOBODY else team)
            return f"anomaly of {team[:100]} on {first}", ""
        case {"advice": str(advice), "month": str(month)}:
            return f"{advice[:40]} of {month[:20]}", ""
        case {"month": str(month)}:
            return month[:20], ""
        case {"files": _} | {"version": _}:
            active = by.broker.store.active_policy()
            return "policy", f"version {active.number}" if active else "no policy"
        case {"quote": _}:
            by.require(Permission.BUY, arguments.get("team"))
            return purchase_id(by), ""
        case _:
            by.require(Permission.BUY, None)
            return "capacity", ""


def _after(action: str, document: Any) -> str:
    """The state after the change, for the audit log."""
    match action.split("."):
        case ["approvals", "revoke"]:
            return "revoked"
        case ["policy", _]:
            return f"version {document.number}"
        case ["purchases", _]:
            return str(document.state.value)
        case ["capacity", _]:
            return f"number {document.number}"
        case ["statements", _]:
            return f"{document.charged} charged"
        case ["anomalies", _]:
            return str(document.incidents[0].answer.answer)
        case ["advice", _]:
            answers = [item.answer for item in document.advice if item.answer]
            return str(max(answers, key=lambda answer: answer.at).verdict)
        case _:
            return job_in_words(document)


def job_in_words(job: JobView | JobDetails) -> str:
    """A job's state and limits, for the audit log."""
    cost = "no limit" if job.max_cost is None else str(job.max_cost)
    approval_note = ", asks for approval" if job.asked is not None else ""
    cancel_note = ", to be cancelled" if job.cancel_requested and not job.state.final else ""
    return f"{job.state.value}, {cost}, {print_duration(job.max_duration)}{approval_note}{cancel_note}"
