"""The people and service accounts of a team server, their tokens, and the audit log."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from broker.app.access import tokens as api_tokens
from broker.app.access.callers import Caller
from broker.app.access.documents import (
    AuditLog,
    CallerIdentity,
    CreatedToken,
    PeopleList,
    PersonResult,
    TokenList,
    TokenResult,
)
from broker.app.access.people import audit_chain, audit_log, get_person, people
from broker.app.access.people import set_person as set_person_of_store
from broker.app.use_cases.pages import Cursor, cursor_of, parse_cursor
from broker.core.access.api_tokens import MAX_VALIDITY
from broker.core.access.people import TeamRole, TokenScope
from broker.core.actors import Role
from broker.store.access.access import AuditChain

Name = Annotated[str | None, Field(max_length=200)]


def me(by: Caller) -> CallerIdentity:
    """The token's owner, and what the token allows."""
    return CallerIdentity.of(by.access)


def list_people(by: Caller) -> PeopleList:
    """People and service accounts with their roles."""
    return PeopleList.from_parts(people=people(by.broker))


def show_person(by: Caller, person: str) -> PersonResult:
    """One person or service account."""
    with by.broker.store.access.reading() as reader:
        return PersonResult.of(get_person(reader, person))


def set_person(
    by: Caller,
    person: str,
    roles: Annotated[list[Role], Field(max_length=len(Role), description="In all teams.")],
    teams: Annotated[dict[str, TeamRole], Field(max_length=200, description="The role in each team.")],
    service: Annotated[bool, Field(description="A service account; it never becomes a person.")] = False,
    disabled: Annotated[bool | None, Field(description="None of their tokens is accepted. Default: as it is.")] = None,
) -> PersonResult:
    """Make somebody have exactly these roles. Status 201: they were added. Again: no effect."""
    return PersonResult.of(
        set_person_of_store(
            by.broker, person, roles=roles, teams=teams, service=service, disabled=disabled, by=by.actor
        )
    )


Scopes = Annotated[list[TokenScope], Field(min_length=1, max_length=len(TokenScope))]
Days = Annotated[int, Field(ge=1, le=MAX_VALIDITY.days, description="Days until it expires.")]
Label = Annotated[str, Field(max_length=80, description="What it is for.")]


def create_token(by: Caller, person: str, scopes: Scopes, expires_days: Days = 30, label: Label = "") -> CreatedToken:
    """Create a token of a person or a service account; of the caller, as for `/me`. Its text is in this answer alone;
    asked again, there are two."""
    if person == by.actor.identity:
        return create_own_token(by, scopes, expires_days, label)
    expires = timedelta(days=expires_days)
    new = api_tokens.create(by.broker, person, label, set(scopes), expires, by=by.actor)
    return CreatedToken.of_new(new, by.broker.clock.now())


def revoke_token(by: Caller, token: str) -> TokenResult:
    """Revoke a token, for good. Again: no effect."""
    return TokenResult.of(api_tokens.revoke(by.broker, token, by=by.actor), by.broker.clock.now())


def list_own_tokens(by: Caller) -> TokenList:
    """The caller's tokens, logins and sessions, without their texts."""
    return list_tokens(by, by.actor.identity)


def create_own_token(by: Caller, scopes: Scopes, expires_days: Days = 30, label: Label = "") -> CreatedToken:
    """Create a token of the caller's own, with scopes of the token that asks, except `people`, and no longer valid than
    that. Its text is in this answer alone; asked again, there are two."""
    expires = timedelta(days=expires_days)
    new = api_tokens.create_own(by.broker, by.token, label, set(scopes), expires, by=by.actor)
    return CreatedToken.of_new(new, by.broker.clock.now())


def revoke_own_token(by: Caller, token: str) -> TokenResult:
    """Revoke a token of the caller's own, for good. Again: no effect."""
    return TokenResult.of(api_tokens.revoke(by.broker, token, by=by.actor, own=True), by.broker.clock.now())


def list_tokens(by: Caller, person: Name = None) -> TokenList:
    """API tokens without their texts."""
    return TokenList.of(api_tokens.tokens(by.broker, person), by.broker.clock.now())


def audit_lines(
    by: Caller,
    person: Name = None,
    subject: Name = None,
    limit: Annotated[int, Field(ge=1, le=1_000)] = 50,
    cursor: Cursor = None,
) -> AuditPage:
    """The newest lines of the audit log: who changed what, from where, before and after."""
    before = None if cursor is None else parse_cursor(cursor, int)[0]
    records = audit_log(by.broker, by=by.actor, limit=limit + 1, person=person, subject=subject, before=before)
    next_cursor = cursor_of(records[limit - 1][0]) if len(records) > limit else None
    return AuditPage.from_parts(AuditLog.of(records[:limit]), next_cursor=next_cursor)


class AuditPage(AuditLog):
    """Lines of the audit log, the newest first."""

    next_cursor: str | None


def verify_audit(by: Caller, noted: Annotated[str, Field(pattern="^([0-9a-f]{64})?$")] = "") -> AuditChain:
    """Whether the audit log is as it was written. ``noted``: the hash of its last line at an earlier verification."""
    return audit_chain(by.broker, noted, by=by.actor)
