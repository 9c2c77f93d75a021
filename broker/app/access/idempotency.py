"""Idempotent API changes: each idempotency key causes one change, recorded in the audit log before and
after."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeVar

from broker.app.documents import json_text, kind_of
from broker.app.wiring import Broker
from broker.core.access.api_tokens import AuditOutcome, AuditRecord
from broker.core.errors import AskAPerson, BrokerError, InvalidInput, OutcomeUnknown
from broker.store.access.access import StoredRequest

ResultT = TypeVar("ResultT")


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


def run_once(
    broker: Broker, request: ChangeRequest, change: Callable[[], ResultT], respond: Callable[[ResultT], ChangeAnswer]
) -> ChangeAnswer:
    """Make the change and return its response; if this key has made one already, return the response of that.

    ``change`` must change nothing if it raises a `BrokerError`; a refusal is not recorded under the key, so that a
    request with the same key may try again. Only if it raises `OutcomeUnknown` may it have changed something; a request
    with the same key then does not try again. ``respond`` builds the response from the result of ``change``. Raises
    what ``change`` raises, `InvalidInput` if the key was used for another request, and `ChangeUnderWay` while the first
    request is in progress or its effect is unknown.
    """
    earlier_answer = _begin_request(broker, request)
    if earlier_answer is not None:
        return earlier_answer
    try:
        result = change()
    except OutcomeUnknown:
        raise
    except BrokerError as error:
        with broker.store.access.writing() as tx:
            tx.forget_request(request.person, request.key)
            tx.log(_audit_record(broker, request, AuditOutcome.REFUSED, reason=kind_of(error)))
        raise
    answer = respond(result)
    with broker.store.access.writing() as tx:
        tx.finish_request(request.person, request.key, answer.status, answer.body)
        tx.log(_audit_record(broker, request, AuditOutcome.DONE, after=answer.after))
    return answer


def _begin_request(broker: Broker, request: ChangeRequest) -> ChangeAnswer | None:
    """Record the request and return None; or the response of an earlier request with the same key."""
    with broker.store.access.writing() as tx:
        stored = tx.request(request.person, request.key)
        if stored is None:
            tx.begin_request(request.person, request.key, request.digest, broker.clock.now())
            tx.log(_audit_record(broker, request, AuditOutcome.BEGUN))
            return None
    return _stored_answer(stored, request)


def _stored_answer(stored: StoredRequest, request: ChangeRequest) -> ChangeAnswer:
    if stored.digest != request.digest:
        raise InvalidInput(
            "this key was used for another request", where="Idempotency-Key", hint="use a new key for each request"
        )
    if stored.status is None:
        raise ChangeUnderWay(request.subject)
    return ChangeAnswer(stored.status, stored.body, replayed=True)


def _audit_record(
    broker: Broker, request: ChangeRequest, outcome: AuditOutcome, *, after: str = "", reason: str = ""
) -> AuditRecord:
    return AuditRecord(
        at=broker.clock.now(),
        person=request.person,
        origin=request.origin,
        action=request.action,
        subject=request.subject,
        outcome=outcome,
        token=request.token,
        before=request.before,
        after=after,
        reason=reason,
    )
