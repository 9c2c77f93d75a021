"""`store.access`: people, API tokens, sessions, logins of programs and the audit log, in transactions of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update
from sqlalchemy.orm import join

from broker.core.access.api_tokens import ApiToken
from broker.core.access.audit import AuditRecord
from broker.core.access.people import Person
from broker.core.access.sessions import SESSION_LABELS, PageSession
from broker.store.access import requests, sign_ins
from broker.store.engine.database import Database, query
from broker.store.engine.fields import columns_of, value_of
from broker.store.engine.times import from_micros, to_micros
from broker.store.schema.access import ApiTokenRow, AuditLogRow, PageSessionRow, PersonRow
from broker.store.schema.row import Row, table_of


class AccessReader:
    """One consistent snapshot of people, tokens and the audit log."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def person(self, name: str) -> Person | None:
        """The person with that name; None if unknown."""
        row = self._connection.execute(select(PersonRow).where(PersonRow.name == name)).first()
        return None if row is None else value_of(Person, row)

    def people(self) -> Sequence[Person]:
        """All persons by name, including disabled ones."""
        return [value_of(Person, row) for row in self._connection.execute(select(PersonRow).order_by(PersonRow.name))]

    def token(self, id: str) -> ApiToken | None:
        """The token with that id; None if unknown."""
        row = self._connection.execute(select(ApiTokenRow).where(ApiTokenRow.id == id)).first()
        return None if row is None else value_of(ApiToken, row)

    def token_and_owner(self, id: str) -> tuple[ApiToken, Person] | None:
        """The token with that id and its owner, from one query; None if either is unknown."""
        row = self._connection.execute(_TOKEN_AND_OWNER, {"asked": id}).first()
        return None if row is None else _token_and_person(row)

    def session_and_owner(self, digest: str) -> tuple[PageSession, ApiToken, Person] | None:
        """The page session with that hash, its token and the token's owner, from one query; None if one of them is
        unknown.
        """
        row = self._connection.execute(_SESSION_AND_OWNER, {"asked": digest}).first()
        if row is None:
            return None
        return value_of(
            PageSession, _part(row, PageSessionRow, _OF_TOKEN + len(table_of(PersonRow).c))
        ), *_token_and_person(row)

    def tokens(self, person: str | None = None) -> Sequence[ApiToken]:
        """Every token, or those of a person, oldest first, including revoked and expired ones."""
        query = select(ApiTokenRow).order_by(ApiTokenRow.made_at, ApiTokenRow.id)
        if person is not None:
            query = query.where(ApiTokenRow.person == person)
        return [value_of(ApiToken, row) for row in self._connection.execute(query)]

    def self_given_tokens(self, person: str) -> Sequence[ApiToken]:
        """The person's unrevoked tokens created by their owner, as by a program's login, without those of sessions."""
        query = select(ApiTokenRow).where(
            ApiTokenRow.person == person,
            ApiTokenRow.made_by == person,
            ApiTokenRow.revoked_at.is_(None),
            ApiTokenRow.label.not_in(SESSION_LABELS),
        )
        return [value_of(ApiToken, row) for row in self._connection.execute(query)]

    request = query(requests.read)
    session = query(sign_ins.session)
    device_login = query(sign_ins.device_login)
    device_login_of = query(sign_ins.device_login_of)
    person_of = query(sign_ins.person_of)

    def audit(
        self, *, limit: int, person: str | None = None, subject: str | None = None
    ) -> Sequence[tuple[int, AuditRecord]]:
        """The newest lines of the audit log that match all arguments, with their numbers, newest first."""
        query = select(AuditLogRow).order_by(AuditLogRow.number.desc()).limit(limit)
        filters = {"person": person, "subject": subject}
        query = query.where(
            *(getattr(AuditLogRow, column) == value for column, value in filters.items() if value is not None)
        )
        return [(row.number, value_of(AuditRecord, row)) for row in self._connection.execute(query)]


class AccessWriter(AccessReader):
    """A serialized transaction: a change and its line in the audit log are stored together."""

    def keep_person(self, person: Person) -> None:
        """Store the person; replaces an earlier record."""
        self._connection.execute(delete(PersonRow).where(PersonRow.name == person.name))
        self._connection.execute(insert(PersonRow).values(columns_of(PersonRow, person)))

    def add_token(self, token: ApiToken) -> None:
        """Store a new token."""
        self._connection.execute(insert(ApiTokenRow).values(columns_of(ApiTokenRow, token)))

    def revoke_token(self, token: ApiToken, *, by: str, at: datetime) -> ApiToken:
        """Revoke the token; returns it with the revocation."""
        change = update(ApiTokenRow).where(ApiTokenRow.id == token.id)
        self._connection.execute(change.values(revoked_at=to_micros(at), revoked_by=by))
        return replace(token, revoked_at=from_micros(to_micros(at)), revoked_by=by)

    def record_token_use(self, id: str, at: datetime) -> None:
        """Record a use of the token."""
        self._connection.execute(update(ApiTokenRow).where(ApiTokenRow.id == id).values(used_at=to_micros(at)))

    begin_request = query(requests.begin)
    finish_request = query(requests.finish)
    forget_request = query(requests.forget)
    keep_link = query(sign_ins.keep_link)
    use_link = query(sign_ins.use_link)
    end_links = query(sign_ins.end_links)
    begin_session = query(sign_ins.begin_session)
    record_session_use = query(sign_ins.record_session_use)
    end_session = query(sign_ins.end_session)
    end_sessions = query(sign_ins.end_sessions)
    begin_device_login = query(sign_ins.begin_device_login)
    keep_device_login = query(sign_ins.keep_device_login)
    end_device_login = query(sign_ins.end_device_login)
    end_granted_logins = query(sign_ins.end_granted_logins)
    begin_provider_sign_in = query(sign_ins.begin_provider_sign_in)
    take_provider_sign_in = query(sign_ins.take_provider_sign_in)
    link_identity = query(sign_ins.link_identity)

    def log(self, record: AuditRecord) -> int:
        """Append a line to the audit log; returns its number."""
        number = (self._connection.scalar(select(func.max(AuditLogRow.number))) or 0) + 1
        self._connection.execute(insert(AuditLogRow).values(columns_of(AuditLogRow, record, number=number)))
        return number


class AccessStore:
    """Reached as ``store.access``. Every method may raise `StoreProblem`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def reading(self) -> Iterator[AccessReader]:
        """A consistent snapshot; read-only."""
        with self._database.reading() as connection:
            yield AccessReader(connection)

    @contextmanager
    def writing(self) -> Iterator[AccessWriter]:
        """A write transaction: committed on leaving, rolled back on any exception. Does not nest."""
        with self._database.writing() as connection:
            yield AccessWriter(connection)


_OF_TOKEN = len(table_of(ApiTokenRow).c)
_TOKEN_OWNER_JOIN = join(ApiTokenRow, PersonRow, PersonRow.name == ApiTokenRow.person)
_TOKEN_AND_OWNER = (
    select(ApiTokenRow, PersonRow).select_from(_TOKEN_OWNER_JOIN).where(ApiTokenRow.id == bindparam("asked"))
)
_SESSION_AND_OWNER = (
    select(ApiTokenRow, PersonRow, PageSessionRow)
    .select_from(_TOKEN_OWNER_JOIN.join(PageSessionRow, PageSessionRow.token == ApiTokenRow.id))
    .where(PageSessionRow.digest == bindparam("asked"))
)


def _part(row: Any, table: type[Row], start: int) -> SimpleNamespace:
    """The columns of one table in a row of a join; ``start``: the index of the first of them."""
    return SimpleNamespace(
        **dict(zip(table_of(table).c.keys(), row[start : start + len(table_of(table).c)], strict=True))
    )


def _token_and_person(row: Any) -> tuple[ApiToken, Person]:
    return value_of(ApiToken, _part(row, ApiTokenRow, 0)), value_of(Person, _part(row, PersonRow, _OF_TOKEN))
