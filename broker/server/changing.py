"""The routes that change something. Each names its request by an idempotency key."""

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
    return _told(changes.cancel(by, id, key))


def extend_job(by: By, id: str, key: Key, body: ExtendBody) -> Response:
    """Raise a job's limit of cost or billed time. 202: it needs an approval first; meanwhile the old limits hold."""
    return _told(changes.extend(by, id, key, body.model_dump()))


def grant_approval(by: By, id: str, key: Key, body: DecisionBody) -> Response:
    """Approve what a job waits for, as far as the policies ask the caller; nobody approves their own request."""
    return _told(changes.grant(by, id, key, body.reason))


def refuse_approval(by: By, id: str, key: Key, body: DecisionBody) -> Response:
    """Refuse what a job waits for; the money held for it is released."""
    return _told(changes.refuse(by, id, key, body.reason))


def _told(answer: ChangeAnswer) -> Response:
    headers = {"Idempotency-Replayed": "true"} if answer.replayed else {}
    return Response(answer.body, answer.status, headers, "application/json")
