"""`store.access`: people, API tokens, sessions, logins of programs and the audit log, in transactions of their own."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from types import SimpleNamespace
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, bindparam, delete, insert, select, update
from sqlalchemy.orm import join

from broker.core.access.api_tokens import ApiToken, AuditRecord
from broker.core.access.people import Person
from broker.core.access.sessions import SESSION_LABELS, DeviceLogin, PageSession, PendingSignIn, SignInLink
from broker.core.actors import network_of
from broker.store.engine.database import Database
from broker.store.engine.fields import columns_of, from_micros, to_micros, value_of
from broker.store.schema.access import (
    ApiRequestRow,
    ApiTokenRow,
    AuditLogRow,
    DeviceLoginRow,
    IdentityRow,
    PageSessionRow,
    PersonRow,
    ProviderSignInRow,
    SignInLinkRow,
)
from broker.store.schema.jobs import SettingRow
from broker.store.schema.row import Row, table_of

T = TypeVar("T")
_LAST_DIGEST = "audit_digest"  # the setting of the store with the digest of the last line, which tells if it is missing
_REQUEST_RETENTION = timedelta(days=7)  # after that, the same key is a new request


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A change requested over the network, by person and idempotency key.

    ``digest``: hash of its content; ``status``: that of the answer, None while the request is processed or if the
    server died before it answered; ``body``: the document of the answer.
    """

    digest: str
    status: int | None
    body: str


@dataclass(frozen=True, slots=True)
class AuditChain:
    """Whether the audit log is as it was written: each line has a hash of itself and of the line before. ``lines``: so
    many from the first one hold; ``digest``: the hash of the last of them; ``intact``: these are all; ``is_noted``: the
    hash that was asked for is one of theirs."""

    lines: int
    digest: str
    intact: bool
    is_noted: bool


class AccessReader:
    """One consistent snapshot of people, tokens and the audit log."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _find(self, kind: type[T], table: type[Row], **key: object) -> T | None:
        """The value in the row with these columns; None if there is none."""
        conditions = (getattr(table, name) == value for name, value in key.items())
        row = self._connection.execute(select(table).where(*conditions)).first()
        return None if row is None else value_of(kind, row)

    def person(self, name: str) -> Person | None:
        """The person with that name; None if unknown."""
        return self._find(Person, PersonRow, name=name)

    def people(self) -> Sequence[Person]:
        """All persons by name, including disabled ones."""
        return [value_of(Person, row) for row in self._connection.execute(select(PersonRow).order_by(PersonRow.name))]

    def token(self, id: str) -> ApiToken | None:
        """The token with that id; None if unknown."""
        return self._find(ApiToken, ApiTokenRow, id=id)

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

    def request(self, person: str, key: str) -> StoredRequest | None:
        """The person's request with that idempotency key; None if there is none."""
        return self._find(StoredRequest, ApiRequestRow, person=person, key=key)

    def session(self, digest: str) -> PageSession | None:
        """The page session with that hash; None if unknown."""
        return self._find(PageSession, PageSessionRow, digest=digest)

    def device_login(self, digest: str) -> DeviceLogin | None:
        """The login with that hash of the program's code; None if unknown."""
        return self._find(DeviceLogin, DeviceLoginRow, digest=digest)

    def device_login_of(self, user_code: str) -> DeviceLogin | None:
        """The login with that code, which people enter; None if unknown."""
        return self._find(DeviceLogin, DeviceLoginRow, user_code=user_code)

    def person_of(self, issuer: str, subject: str) -> str | None:
        """The name of the person with that identity of the provider; None if unknown."""
        is_same = (IdentityRow.issuer == issuer, IdentityRow.subject == subject)
        return self._connection.scalar(select(IdentityRow.person).where(*is_same))

    def audit(
        self, *, limit: int, person: str | None = None, subject: str | None = None, before: int | None = None
    ) -> Sequence[tuple[int, AuditRecord]]:
        """The newest lines of the audit log that match all arguments, with their numbers, newest first. ``before``:
        only those with a lower number."""
        query = select(AuditLogRow).order_by(AuditLogRow.number.desc()).limit(limit)
        if before is not None:
            query = query.where(AuditLogRow.number < before)
        filters = {"person": person, "subject": subject}
        query = query.where(
            *(getattr(AuditLogRow, column) == value for column, value in filters.items() if value is not None)
        )
        return [(row.number, value_of(AuditRecord, row)) for row in self._connection.execute(query)]

    def audit_chain(self, noted: str = "") -> AuditChain:
        """Compute the digests of all lines again. ``noted``: a digest that was printed earlier."""
        lines, digest, is_noted = 0, "", not noted
        query = select(AuditLogRow).order_by(AuditLogRow.number)
        for row in self._connection.execute(query, execution_options={"yield_per": 500}):
            if row.digest != _digest(digest, row._asdict()):
                return AuditChain(lines, digest, intact=False, is_noted=is_noted)
            lines, digest = lines + 1, row.digest
            is_noted = is_noted or digest == noted
        last = self._connection.scalar(select(SettingRow.value).where(SettingRow.key == _LAST_DIGEST))
        return AuditChain(lines, digest, intact=digest == (last or ""), is_noted=is_noted)


class AccessWriter(AccessReader):
    """A serialized transaction: a change and its line in the audit log are stored together."""

    def _add(self, table: type[Row], value: object, **columns: object) -> None:
        self._connection.execute(insert(table).values(columns_of(table, value, **columns)))

    def _drop(self, table: type[Row], *conditions: ColumnElement[bool]) -> int:
        return self._connection.execute(delete(table).where(*conditions)).rowcount

    def keep_person(self, person: Person) -> None:
        """Store the person; replaces an earlier record."""
        self._drop(PersonRow, PersonRow.name == person.name)
        self._add(PersonRow, person)

    def add_token(self, token: ApiToken) -> None:
        self._add(ApiTokenRow, token)

    def revoke_token(self, token: ApiToken, *, by: str, at: datetime) -> ApiToken:
        """Revoke the token; returns it with the revocation."""
        change = update(ApiTokenRow).where(ApiTokenRow.id == token.id)
        self._connection.execute(change.values(revoked_at=to_micros(at), revoked_by=by))
        return replace(token, revoked_at=from_micros(to_micros(at)), revoked_by=by)

    def record_token_use(self, id: str, at: datetime) -> None:
        self._connection.execute(update(ApiTokenRow).where(ApiTokenRow.id == id).values(used_at=to_micros(at)))

    def begin_request(self, person: str, key: str, digest: str, at: datetime) -> None:
        """Record a request before anything is changed, and delete old ones."""
        self._drop(ApiRequestRow, ApiRequestRow.at < to_micros(at - _REQUEST_RETENTION))
        self._add(ApiRequestRow, StoredRequest(digest, None, ""), person=person, key=key, at=at)

    def finish_request(self, person: str, key: str, status: int, body: str) -> None:
        change = update(ApiRequestRow).where(ApiRequestRow.person == person, ApiRequestRow.key == key)
        self._connection.execute(change.values(status=status, body=body))

    def forget_request(self, person: str, key: str) -> None:
        """Delete a request that changed nothing, so that the key may be used again."""
        self._drop(ApiRequestRow, ApiRequestRow.person == person, ApiRequestRow.key == key)

    def keep_link(self, link: SignInLink) -> None:
        """Store a new link. It replaces the person's unused ones; links that have expired are deleted."""
        self.end_links(link.person)
        self._drop(SignInLinkRow, SignInLinkRow.ends_at <= to_micros(link.made_at))
        self._add(SignInLinkRow, link)

    def use_link(self, digest: str, now: datetime) -> SignInLink | None:
        """Use up the link with that hash of its secret; None if it is unknown, used or has expired."""
        use = update(SignInLinkRow).where(
            SignInLinkRow.digest == digest, SignInLinkRow.used_at.is_(None), SignInLinkRow.ends_at > to_micros(now)
        )
        is_used = self._connection.execute(use.values(used_at=to_micros(now))).rowcount
        return self._find(SignInLink, SignInLinkRow, digest=digest) if is_used else None

    def end_links(self, person: str) -> None:
        """Delete the person's unused links."""
        self._drop(SignInLinkRow, SignInLinkRow.person == person, SignInLinkRow.used_at.is_(None))

    def begin_session(self, session: PageSession) -> None:
        """Store a new session and delete expired ones."""
        self._drop(PageSessionRow, PageSessionRow.ends_at <= to_micros(session.made_at))
        self._add(PageSessionRow, session)

    def record_session_use(self, digest: str, at: datetime) -> None:
        change = update(PageSessionRow).where(PageSessionRow.digest == digest)
        self._connection.execute(change.values(seen_at=to_micros(at)))

    def end_session(self, digest: str) -> None:
        self._drop(PageSessionRow, PageSessionRow.digest == digest)

    def end_sessions(self, person: str) -> int:
        """Delete all sessions of a person; returns their number."""
        return self._drop(PageSessionRow, PageSessionRow.person == person)

    def begin_device_login(self, login: DeviceLogin, *, most: int, per_network: int) -> bool:
        """Delete expired logins, and store a new one; False, without storing it, if there are ``most`` already, or
        ``per_network`` of its network (`network_of`)."""
        self._drop(DeviceLoginRow, DeviceLoginRow.ends_at <= to_micros(login.made_at))
        networks = [network_of(address) for address in self._connection.scalars(select(DeviceLoginRow.address))]
        if len(networks) >= most or networks.count(network_of(login.address)) >= per_network:
            return False
        self.keep_device_login(login)
        return True

    def keep_device_login(self, login: DeviceLogin) -> None:
        """Store the login; replaces an earlier record."""
        self.end_device_login(login.digest)
        self._add(DeviceLoginRow, login)

    def end_device_login(self, digest: str) -> None:
        """Delete the login."""
        self._drop(DeviceLoginRow, DeviceLoginRow.digest == digest)

    def end_granted_logins(self, person: str) -> None:
        """Delete the logins that the person granted and whose programs have not collected their tokens."""
        self._drop(DeviceLoginRow, DeviceLoginRow.person == person, DeviceLoginRow.granted.is_(True))

    def begin_provider_sign_in(self, pending: PendingSignIn, now: datetime) -> None:
        """Store a sign-in at the identity provider, and delete expired ones."""
        self._drop(ProviderSignInRow, ProviderSignInRow.ends_at <= to_micros(now))
        self._add(ProviderSignInRow, pending)

    def take_provider_sign_in(self, state: str) -> PendingSignIn | None:
        """Delete the sign-in with that hash of its state and return it, so that an answer counts once. None if
        unknown."""
        pending = self._find(PendingSignIn, ProviderSignInRow, state=state)
        self._drop(ProviderSignInRow, ProviderSignInRow.state == state)
        return pending

    def link_identity(self, issuer: str, subject: str, person: str, at: datetime) -> None:
        """Assign the identity to the person; replaces an earlier assignment."""
        self._drop(IdentityRow, IdentityRow.issuer == issuer, IdentityRow.subject == subject)
        values = {"issuer": issuer, "subject": subject, "person": person, "linked_at": to_micros(at)}
        self._connection.execute(insert(IdentityRow).values(**values))

    def log(self, record: AuditRecord) -> int:
        """Append a line to the audit log; returns its number."""
        query = select(AuditLogRow.number, AuditLogRow.digest).order_by(AuditLogRow.number.desc()).limit(1)
        number, previous = self._connection.execute(query).first() or (0, "")
        cells = columns_of(AuditLogRow, record, number=number + 1, digest="")
        cells["digest"] = _digest(previous, cells)
        self._connection.execute(insert(AuditLogRow).values(cells))
        self._drop(SettingRow, SettingRow.key == _LAST_DIGEST)
        self._connection.execute(insert(SettingRow).values(key=_LAST_DIGEST, value=cells["digest"]))
        return int(number) + 1


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


def _digest(previous: str, cells: Mapping[str, object]) -> str:
    """The digest of a line of the audit log with these columns, after the one with the digest ``previous``."""
    return sha256(json.dumps({**cells, "digest": previous}, sort_keys=True, default=str).encode()).hexdigest()


def _part(row: Any, table: type[Row], start: int) -> SimpleNamespace:
    """The columns of one table in a row of a join; ``start``: the index of the first of them."""
    return SimpleNamespace(
        **dict(zip(table_of(table).c.keys(), row[start : start + len(table_of(table).c)], strict=True))
    )


def _token_and_person(row: Any) -> tuple[ApiToken, Person]:
    return value_of(ApiToken, _part(row, ApiTokenRow, 0)), value_of(Person, _part(row, PersonRow, _OF_TOKEN))
