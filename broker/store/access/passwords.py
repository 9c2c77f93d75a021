"""Passwords and invitations."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from broker.core.access.passwords import MOST_KNOWN, Invitation, KnownOrigin, StoredPassword
from broker.store.engine.fields import columns_of, value_of
from broker.store.engine.times import to_micros
from broker.store.tables.access import INVITATION, PASSWORD, PASSWORD_ORIGIN


def read(connection: Connection, person: str) -> StoredPassword | None:
    """The person's password; None without one."""
    row = connection.execute(select(PASSWORD).where(PASSWORD.c.person == person)).first()
    return None if row is None else value_of(StoredPassword, row)


def keep(connection: Connection, password: StoredPassword) -> None:
    """Store the password; replaces an earlier one."""
    connection.execute(PASSWORD.delete().where(PASSWORD.c.person == password.person))
    connection.execute(PASSWORD.insert().values(columns_of(PASSWORD, password)))


def origin(connection: Connection, person: str, origin: str) -> KnownOrigin | None:
    """The address, if the person has signed in with a password from there; else None."""
    c = PASSWORD_ORIGIN.c
    row = connection.execute(select(PASSWORD_ORIGIN).where(c.person == person, c.origin == origin)).first()
    return None if row is None else value_of(KnownOrigin, row)


def keep_origin(connection: Connection, known: KnownOrigin) -> None:
    """Store the address; replaces an earlier record. If there are more than `MOST_KNOWN`, the oldest are deleted."""
    c = PASSWORD_ORIGIN.c
    connection.execute(PASSWORD_ORIGIN.delete().where(c.person == known.person, c.origin == known.origin))
    connection.execute(PASSWORD_ORIGIN.insert().values(columns_of(PASSWORD_ORIGIN, known)))
    newest = select(c.origin).where(c.person == known.person).order_by(c.right_at.desc(), c.origin)
    old = list(connection.scalars(newest.offset(MOST_KNOWN)))
    connection.execute(PASSWORD_ORIGIN.delete().where(c.person == known.person, c.origin.in_(old)))


def forget_origins(connection: Connection, person: str) -> None:
    """Delete the addresses from which the person has signed in."""
    connection.execute(PASSWORD_ORIGIN.delete().where(PASSWORD_ORIGIN.c.person == person))


def invite(connection: Connection, invitation: Invitation) -> None:
    """Store the invitation; it replaces earlier ones of the person."""
    end_invitations(connection, invitation.person)
    connection.execute(INVITATION.insert().values(columns_of(INVITATION, invitation)))


def invitation(connection: Connection, digest: str, now: datetime) -> Invitation | None:
    """The invitation with that hash of its secret; None if it is unknown, was accepted or has expired."""
    row = connection.execute(select(INVITATION).where(INVITATION.c.digest == digest)).first()
    return None if row is None or row.ends_at <= to_micros(now) else value_of(Invitation, row)


def end_invitations(connection: Connection, person: str) -> None:
    """Delete the person's invitations."""
    connection.execute(INVITATION.delete().where(INVITATION.c.person == person))
