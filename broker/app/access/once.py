"""A change that somebody asks for over the network: made once however often it is asked, and in the audit log before
and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from broker.app.results.errors import kind_of
from broker.app.wiring import Broker
from broker.core.access.audit import AuditOutcome, AuditRecord
from broker.core.errors import AskAPerson, BrokerError, InvalidInput
from broker.store.access.requests import KeptRequest

T = TypeVar("T")


class ChangeUnderWay(AskAPerson):
    """The same request is being carried out, or broke off, so that nobody knows here what it has changed."""

    exit_code = 5

    def __init__(self, subject: str) -> None:
        super().__init__(
            "a request with this idempotency key is under way, or broke off",
            hint=f"look at {subject} before you ask again, with a new key",
        )


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Who asks for what. ``key``: the caller's own name for this request; ``digest``: of everything that was asked.
    ``before``: what it was, in words, for the audit log; the rest as in `AuditRecord`."""

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
    """What was answered: a status and a document. ``after``: in words, for the audit log. ``replayed``: it was answered
    before, and nothing was changed now."""

    status: int
    body: str
    after: str = ""
    replayed: bool = False


def once(
    broker: Broker, asked: ChangeRequest, change: Callable[[], T], told: Callable[[T], ChangeAnswer]
) -> ChangeAnswer:
    """Make the change, unless it was made under this key; the answer, that of the first time if it was.

    ``change`` either changes all or raises a `BrokerError` and changes nothing; a refusal is therefore not kept, and
    the same key may ask again. ``told`` makes the answer. Raises what ``change`` raises, `InvalidInput` where the key
    stands for something else, and `ChangeUnderWay`.
    """
    known = _begun(broker, asked)
    if known is not None:
        return known
    try:
        changed = change()
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
    """Put the request on record; or the answer that it has got already."""
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
