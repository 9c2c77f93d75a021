"""The people and service accounts of a team server, their tokens, and the audit log."""

from typing import Annotated

from pydantic import Field

from broker.app.access.callers import Caller
from broker.app.access.documents import AuditLog, CallerIdentity, PeopleList, TokenList
from broker.app.access.people import audit_chain, audit_log, people
from broker.app.access.tokens import tokens
from broker.store.access.access import AuditChain

Name = Annotated[str | None, Field(max_length=200)]


def me(by: Caller) -> CallerIdentity:
    """The token's owner, and what the token allows."""
    return CallerIdentity.of(by.access)


def list_people(by: Caller) -> PeopleList:
    """People and service accounts with their roles."""
    return PeopleList.from_parts(people=people(by.broker))


def list_tokens(by: Caller, person: Name = None) -> TokenList:
    """API tokens without their texts."""
    return TokenList.of(tokens(by.broker, person), by.broker.clock.now())


def audit_lines(
    by: Caller, person: Name = None, subject: Name = None, limit: Annotated[int, Field(ge=1, le=1_000)] = 50
) -> AuditLog:
    """The newest lines of the audit log: who changed what, from where, before and after."""
    return AuditLog.of(audit_log(by.broker, by=by.actor, limit=limit, person=person, subject=subject))


def verify_audit(by: Caller, noted: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = "") -> AuditChain:
    """Whether the audit log is as it was written. ``noted``: the hash of its last line at an earlier verification."""
    return audit_chain(by.broker, noted, by=by.actor)
