"""Sign-ins that have begun at the identity provider, and the people behind its identities."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from broker.core.access.provider_sign_ins import PendingSignIn
from broker.store.engine.fields import columns_of, value_of
from broker.store.engine.times import to_micros
from broker.store.tables.access import IDENTITY, PROVIDER_SIGN_IN


def begin(connection: Connection, pending: PendingSignIn, now: datetime) -> None:
    """Store a sign-in at the identity provider, and delete those that are over."""
    connection.execute(PROVIDER_SIGN_IN.delete().where(PROVIDER_SIGN_IN.c.ends_at <= to_micros(now)))
    connection.execute(PROVIDER_SIGN_IN.insert().values(columns_of(PROVIDER_SIGN_IN, pending)))


def take(connection: Connection, state: str) -> PendingSignIn | None:
    """The sign-in with that hash of its state, deleted with this: an answer counts once. None if unknown."""
    row = connection.execute(select(PROVIDER_SIGN_IN).where(PROVIDER_SIGN_IN.c.state == state)).first()
    if row is None:
        return None
    connection.execute(PROVIDER_SIGN_IN.delete().where(PROVIDER_SIGN_IN.c.state == state))
    return value_of(PendingSignIn, row)


def person_of(connection: Connection, issuer: str, subject: str) -> str | None:
    """The name of the person behind an identity of the provider; None if unknown."""
    c = IDENTITY.c
    return connection.scalar(select(c.person).where(c.issuer == issuer, c.subject == subject))


def link(connection: Connection, issuer: str, subject: str, person: str, at: datetime) -> None:
    """Make the identity that of the person; replaces an earlier one."""
    c = IDENTITY.c
    connection.execute(IDENTITY.delete().where(c.issuer == issuer, c.subject == subject))
    values = {"issuer": issuer, "subject": subject, "person": person, "linked_at": to_micros(at)}
    connection.execute(IDENTITY.insert().values(**values))
