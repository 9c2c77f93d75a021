"""Idempotent API changes: each idempotency key causes one change, recorded in the audit log before and
after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeVar

from broker.app.results.errors import kind_of
from broker.app.results.values import json_text
from broker.app.wiring import Broker
from broker.core.access.audit import AuditOutcome, AuditRecord
from broker.core.errors import AskAPerson, BrokerError, InvalidInput, OutcomeUnknown
from broker.store.access.requests import KeptRequest

T = TypeVar("T")


class ChangeUnderWay(AskAPerson):
    """A request with the same key is in progress, or was interrupted, so that its effect is unknown."""

    exit_code = 5

    def __init__(self, subject: str) -> None:
        super().__init__(
            "a request with this idempotency key is in progress, or was interrupted",
            hint=f"look at {subject} before you repeat the request with a new key",
        )


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A requested change. ``key``: the caller's idempotency key; ``digest``: of the whole request. ``before``: the
    state before the change as text, for the audit log; the other fields as in `AuditRecord`."""

    person: str
    token: str
    origin: str
    key: str
    digest: str
    action: str
    subject: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """The response: a status and a document. ``after``: the new state as text, for the audit log. ``replayed``: it is
    the stored response of an earlier request with this key; nothing was changed now."""

    status: int
    body: str
    after: str = ""
    replayed: bool = False

    @classmethod
    def of(cls, document: object, after: str, status: int = 200) -> Self:
        """The response with a document."""
        return cls(status, json_text(document), after)


def once(
    broker: Broker, asked: ChangeRequest, change: Callable[[], T], told: Callable[[T], ChangeAnswer]
) -> ChangeAnswer:
    """Make the change and return its response; if this key has made one already, return the response of that.

    ``change`` must change nothing if it raises a `BrokerError`; a refusal is not recorded under the key, so that a
    request with the same key may try again. Only if it raises `OutcomeUnknown` may it have changed something; a request
    with the same key then does not try again. ``told`` builds the response from the result of ``change``. Raises what
    ``change`` raises, `InvalidInput` if the key was used for another request, and `ChangeUnderWay` while the first
    request is in progress or its effect is unknown.
    """
    known = _begun(broker, asked)
    if known is not None:
        return known
    try:
        changed = change()
    except OutcomeUnknown:
        raise
    except BrokerError as error:
        with broker.store.access.writing() as tx:
            tx.forget_request(asked.person, asked.key)
            tx.log(_line(broker, asked, AuditOutcome.REFUSED, reason=kind_of(error)))
        raise
    answer = told(changed)
    with broker.store.access.writing() as tx:
        tx.finish_request(asked.person, asked.key, answer.status, answer.body)
        tx.log(_line(broker, asked, AuditOutcome.DONE, after=answer.after))
    return answer


def _begun(broker: Broker, asked: ChangeRequest) -> ChangeAnswer | None:
    """Record the request and return None; or the response of an earlier request with the same key."""
    with broker.store.access.writing() as tx:
        kept = tx.request(asked.person, asked.key)
        if kept is None:
            tx.begin_request(asked.person, asked.key, asked.digest, broker.clock.now())
            tx.log(_line(broker, asked, AuditOutcome.BEGUN))
            return None
    return _known(kept, asked)


def _known(kept: KeptRequest, asked: ChangeRequest) -> ChangeAnswer:
    if kept.digest != asked.digest:
        raise InvalidInput(
            "this key was used for another request", where="Idempotency-Key", hint="use a new key for each request"
        )
    if kept.status is None:
        raise ChangeUnderWay(asked.subject)
    return ChangeAnswer(kept.status, kept.body, replayed=True)


def _line(
    broker: Broker, asked: ChangeRequest, outcome: AuditOutcome, *, after: str = "", reason: str = ""
) -> AuditRecord:
    return AuditRecord(
        at=broker.clock.now(),
        person=asked.person,
        origin=asked.origin,
        action=asked.action,
        subject=asked.subject,
        outcome=outcome,
        token=asked.token,
        before=asked.before,
        after=after,
        reason=reason,
    )
