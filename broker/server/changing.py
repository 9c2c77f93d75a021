"""The routes that change something. Each requires an idempotency key."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from broker.app.access.once import ChangeAnswer
from broker.server import changes
from broker.server.looking import By

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


def cancel_job(by: By, id: str, key: Key) -> Response:
    """End a job, after a last checkpoint. The unspent part of its hold is released."""
    return told(changes.cancel(by, id, key))


def extend_job(by: By, id: str, key: Key, body: ExtendBody) -> Response:
    """Raise a job's limit of cost or billed time. Status 202: it needs an approval; until then the old limits apply."""
    return told(changes.extend(by, id, key, body.model_dump()))


def grant_approval(by: By, id: str, key: Key, body: DecisionBody) -> Response:
    """Approve the job's request, as far as the caller is an approver; nobody approves their own request."""
    return told(changes.grant(by, id, key, body.reason))


def refuse_approval(by: By, id: str, key: Key, body: DecisionBody) -> Response:
    """Refuse the job's request; the money held for it is released."""
    return told(changes.refuse(by, id, key, body.reason))


def revoke_grant(by: By, number: int, key: Key) -> Response:
    """Revoke a standing grant of one's own; jobs launched under it go on."""
    return told(changes.revoke_grant(by, number, key))


def told(answer: ChangeAnswer) -> Response:
    """The response to a change, marked if it repeats the answer to an earlier request with the same key."""
    headers = {"Idempotency-Replayed": "true"} if answer.replayed else {}
    return Response(answer.body, answer.status, headers, "application/json")
