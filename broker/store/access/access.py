"""`store.access`: people, API tokens, sessions, logins of programs and the audit log, in transactions of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, Table, bindparam, func, select

from broker.core.access.api_tokens import ApiToken
from broker.core.access.audit import AuditOutcome, AuditRecord
from broker.core.access.device_logins import DeviceLogin
from broker.core.access.passwords import Invitation, KnownOrigin, StoredPassword
from broker.core.access.people import Person, TeamRole
from broker.core.access.permissions import TokenScope
from broker.core.access.provider_sign_ins import PendingSignIn
from broker.core.access.second_factors import SecondFactor
from broker.core.access.sessions import PageSession
from broker.core.actors import Role
from broker.store.access import device_logins, passwords, provider_sign_ins, requests, second_factors, sessions
from broker.store.access.requests import KeptRequest
from broker.store.engine.database import Database
from broker.store.engine.times import from_micros, to_micros
from broker.store.tables.access import API_TOKEN, AUDIT, PAGE_SESSION, PERSON


class AccessReading:
    """One consistent look at people, tokens and the audit log."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def person(self, name: str) -> Person | None:
        """The person with that name; None if unknown."""
        row = self._connection.execute(select(PERSON).where(PERSON.c.name == name)).first()
        return None if row is None else _person(row)

    def people(self) -> Sequence[Person]:
        """All persons by name, including disabled ones."""
        return [_person(row) for row in self._connection.execute(select(PERSON).order_by(PERSON.c.name))]

    def token(self, id: str) -> ApiToken | None:
        """The token with that id; None if unknown."""
        row = self._connection.execute(select(API_TOKEN).where(API_TOKEN.c.id == id)).first()
        return None if row is None else _token(row)

    def token_and_owner(self, id: str) -> tuple[ApiToken, Person] | None:
        """The token with that id and its owner, by one query; None if either is unknown."""
        row = self._connection.execute(_TOKEN_AND_OWNER, {"asked": id}).first()
        return None if row is None else (_token(_part(row, API_TOKEN, 0)), _person(_part(row, PERSON, _OF_TOKEN)))

    def session_and_owner(self, digest: str) -> tuple[PageSession, ApiToken, Person] | None:
        """The page session with that hash, its token and the token's owner, by one query; None if one is unknown."""
        row = self._connection.execute(_SESSION_AND_OWNER, {"asked": digest}).first()
        if row is None:
            return None
        session = sessions.of_row(_part(row, PAGE_SESSION, _OF_TOKEN + len(PERSON.c)))
        return session, _token(_part(row, API_TOKEN, 0)), _person(_part(row, PERSON, _OF_TOKEN))

    def tokens(self, person: str | None = None) -> Sequence[ApiToken]:
        """Every token, or those of a person, oldest first, including revoked and expired ones."""
        query = select(API_TOKEN).order_by(API_TOKEN.c.made_at, API_TOKEN.c.id)
        if person is not None:
            query = query.where(API_TOKEN.c.person == person)
        return [_token(row) for row in self._connection.execute(query)]

    def request(self, person: str, key: str) -> KeptRequest | None:
        """The person's request with that idempotency key; None if there is none."""
        return requests.read(self._connection, person, key)

    def session(self, digest: str) -> PageSession | None:
        """The page session with that hash; None if unknown."""
        return sessions.read(self._connection, digest)

    def device_login(self, digest: str) -> DeviceLogin | None:
        """The login with that hash of the program's code; None if unknown."""
        return device_logins.of_program(self._connection, digest)

    def device_login_of(self, user_code: str) -> DeviceLogin | None:
        """The login with that code for people; None if unknown."""
        return device_logins.of_person(self._connection, user_code)

    def person_of(self, issuer: str, subject: str) -> str | None:
        """The name of the person behind an identity of the provider; None if unknown."""
        return provider_sign_ins.person_of(self._connection, issuer, subject)

    def password(self, person: str) -> StoredPassword | None:
        """The person's password; None without one."""
        return passwords.read(self._connection, person)

    def password_origin(self, person: str, origin: str) -> KnownOrigin | None:
        """The address, if the person has signed in from there with a password."""
        return passwords.origin(self._connection, person, origin)

    def second_factor(self, person: str) -> SecondFactor | None:
        """The person's second factor, also one that is not confirmed; None without one."""
        return second_factors.read(self._connection, person)

    def invitation(self, digest: str, now: datetime) -> Invitation | None:
        """The invitation with that hash of its secret; None if it is unknown, was accepted or is over."""
        return passwords.invitation(self._connection, digest, now)

    def audit(
        self, *, limit: int, person: str | None = None, subject: str | None = None
    ) -> Sequence[tuple[int, AuditRecord]]:
        """The newest lines that match all arguments, with their numbers, newest first."""
        query = select(AUDIT).order_by(AUDIT.c.number.desc()).limit(limit)
        wanted = {"person": person, "subject": subject}
        query = query.where(*(AUDIT.c[column] == value for column, value in wanted.items() if value is not None))
        return [(row.number, _record(row)) for row in self._connection.execute(query)]


class AccessWriting(AccessReading):
    """A serialised transaction: a change and its line in the audit log are stored together."""

    def keep_person(self, person: Person) -> None:
        """Store the person; replaces an earlier record."""
        self._connection.execute(PERSON.delete().where(PERSON.c.name == person.name))
        self._connection.execute(
            PERSON.insert().values(
                name=person.name,
                service=person.service,
                roles=json.dumps(sorted(person.roles)),
                teams=json.dumps(dict(person.teams), sort_keys=True),
                added_at=to_micros(person.added_at),
                disabled_at=None if person.disabled_at is None else to_micros(person.disabled_at),
            )
        )

    def add_token(self, token: ApiToken) -> None:
        """Store a new token."""
        self._connection.execute(
            API_TOKEN.insert().values(
                id=token.id,
                person=token.person,
                label=token.label,
                scopes=json.dumps(sorted(token.scopes)),
                digest=token.digest,
                made_at=to_micros(token.made_at),
                made_by=token.made_by,
                expires_at=to_micros(token.expires_at),
                revoked_at=None,
                revoked_by="",
                used_at=None,
            )
        )

    def revoke_token(self, token: ApiToken, *, by: str, at: datetime) -> ApiToken:
        """Revoke the token; returns it as revoked."""
        change = API_TOKEN.update().where(API_TOKEN.c.id == token.id)
        self._connection.execute(change.values(revoked_at=to_micros(at), revoked_by=by))
        return replace(token, revoked_at=from_micros(to_micros(at)), revoked_by=by)

    def token_used(self, id: str, at: datetime) -> None:
        """Record a use of the token."""
        self._connection.execute(API_TOKEN.update().where(API_TOKEN.c.id == id).values(used_at=to_micros(at)))

    def begin_request(self, person: str, key: str, digest: str, at: datetime) -> None:
        """Record a requested change before it is made."""
        requests.begin(self._connection, person, key, digest, at)

    def finish_request(self, person: str, key: str, status: int, body: str) -> None:
        """Record the answer to a requested change."""
        requests.finish(self._connection, person, key, status, body)

    def forget_request(self, person: str, key: str) -> None:
        """Delete a request that changed nothing."""
        requests.forget(self._connection, person, key)

    def keep_password(self, password: StoredPassword) -> None:
        """Store the password; replaces an earlier one."""
        passwords.keep(self._connection, password)

    def keep_password_origin(self, known: KnownOrigin) -> None:
        """Store the address; replaces an earlier record."""
        passwords.keep_origin(self._connection, known)

    def forget_password_origins(self, person: str) -> None:
        """Delete the addresses from which the person has signed in."""
        passwords.forget_origins(self._connection, person)

    def keep_second_factor(self, factor: SecondFactor) -> None:
        """Store the second factor; replaces an earlier one."""
        second_factors.keep(self._connection, factor)

    def drop_second_factor(self, person: str) -> None:
        """Delete the person's second factor."""
        second_factors.drop(self._connection, person)

    def invite(self, invitation: Invitation) -> None:
        """Store the invitation; it replaces earlier ones of the person."""
        passwords.invite(self._connection, invitation)

    def end_invitations(self, person: str) -> None:
        """Delete the person's invitations."""
        passwords.end_invitations(self._connection, person)

    def begin_session(self, session: PageSession) -> None:
        """Store a new session and delete expired ones."""
        sessions.begin(self._connection, session)

    def session_seen(self, digest: str, at: datetime) -> None:
        """Record a use of the session."""
        sessions.seen(self._connection, digest, at)

    def end_session(self, digest: str) -> None:
        """Delete the session."""
        sessions.end(self._connection, digest)

    def end_sessions(self, person: str) -> int:
        """Delete all sessions of a person; returns their number."""
        return sessions.end_all(self._connection, person)

    def begin_device_login(self, login: DeviceLogin, *, most: int) -> bool:
        """Delete logins that are over, and store a new one; False if there are ``most`` already."""
        device_logins.end_expired(self._connection, login.made_at)
        if device_logins.count(self._connection) >= most:
            return False
        device_logins.keep(self._connection, login)
        return True

    def keep_device_login(self, login: DeviceLogin) -> None:
        """Store a changed login."""
        device_logins.keep(self._connection, login)

    def end_device_login(self, digest: str) -> None:
        """Delete the login."""
        device_logins.end(self._connection, digest)

    def begin_provider_sign_in(self, pending: PendingSignIn, now: datetime) -> None:
        """Store a sign-in at the identity provider, and delete those that are over."""
        provider_sign_ins.begin(self._connection, pending, now)

    def take_provider_sign_in(self, state: str) -> PendingSignIn | None:
        """The sign-in with that hash of its state, deleted with this; None if unknown."""
        return provider_sign_ins.take(self._connection, state)

    def link_identity(self, issuer: str, subject: str, person: str, at: datetime) -> None:
        """Make an identity of the provider that of the person."""
        provider_sign_ins.link(self._connection, issuer, subject, person, at)

    def log(self, record: AuditRecord) -> int:
        """Append a line to the audit log; its number."""
        number = (self._connection.scalar(select(func.max(AUDIT.c.number))) or 0) + 1
        self._connection.execute(
            AUDIT.insert().values(
                number=number,
                at=to_micros(record.at),
                person=record.person,
                origin=str(record.origin),
                token=record.token,
                action=record.action,
                subject=record.subject,
                outcome=record.outcome.value,
                before=record.before,
                after=record.after,
                reason=record.reason,
            )
        )
        return number


class AccessStore:
    """Reached as ``store.access``. Every method may raise `StoreProblem`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def reading(self) -> Iterator[AccessReading]:
        """A consistent look; changes nothing."""
        with self._database.reading() as connection:
            yield AccessReading(connection)

    @contextmanager
    def writing(self) -> Iterator[AccessWriting]:
        """Committed on leaving, rolled back on any exception. Does not nest."""
        with self._database.writing() as connection:
            yield AccessWriting(connection)


_OF_TOKEN = len(API_TOKEN.c)
_OWNED = API_TOKEN.join(PERSON, PERSON.c.name == API_TOKEN.c.person)
_TOKEN_AND_OWNER = select(*API_TOKEN.c, *PERSON.c).select_from(_OWNED).where(API_TOKEN.c.id == bindparam("asked"))
_SESSION_AND_OWNER = (
    select(*API_TOKEN.c, *PERSON.c, *PAGE_SESSION.c)
    .select_from(_OWNED.join(PAGE_SESSION, PAGE_SESSION.c.token == API_TOKEN.c.id))
    .where(PAGE_SESSION.c.digest == bindparam("asked"))
)


def _part(row: Any, table: Table, at: int) -> SimpleNamespace:
    """The columns of one table in a row of several, the first of them at that place."""
    return SimpleNamespace(**dict(zip(table.c.keys(), row[at : at + len(table.c)], strict=True)))


def _person(row: Any) -> Person:
    return Person(
        name=row.name,
        added_at=from_micros(row.added_at),
        service=row.service,
        roles=frozenset(Role(name) for name in json.loads(row.roles)),
        teams={team: TeamRole(role) for team, role in json.loads(row.teams).items()},
        disabled_at=_moment(row.disabled_at),
    )


def _token(row: Any) -> ApiToken:
    return ApiToken(
        id=row.id,
        person=row.person,
        label=row.label,
        scopes=frozenset(TokenScope(name) for name in json.loads(row.scopes)),
        digest=row.digest,
        made_at=from_micros(row.made_at),
        made_by=row.made_by,
        expires_at=from_micros(row.expires_at),
        revoked_at=_moment(row.revoked_at),
        revoked_by=row.revoked_by,
        used_at=_moment(row.used_at),
    )


def _record(row: Any) -> AuditRecord:
    return AuditRecord(
        at=from_micros(row.at),
        person=row.person,
        origin=row.origin,
        action=row.action,
        subject=row.subject,
        outcome=AuditOutcome(row.outcome),
        token=row.token,
        before=row.before,
        after=row.after,
        reason=row.reason,
    )


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)
