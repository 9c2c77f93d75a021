"""Passwords and invitations."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from broker.core.access.passwords import MOST_KNOWN, Invitation, KnownOrigin, StoredPassword
from broker.store.engine.times import from_micros, to_micros
from broker.store.tables.access import INVITATION, PASSWORD, PASSWORD_ORIGIN


def read(connection: Connection, person: str) -> StoredPassword | None:
    """The person's password; None without one."""
    row = connection.execute(select(PASSWORD).where(PASSWORD.c.person == person)).first()
    if row is None:
        return None
    waits = None if row.waits_until is None else from_micros(row.waits_until)
    return StoredPassword(row.person, row.digest, from_micros(row.set_at), row.failures, waits)


def keep(connection: Connection, password: StoredPassword) -> None:
    """Store the password; replaces an earlier one."""
    connection.execute(PASSWORD.delete().where(PASSWORD.c.person == password.person))
    waits = None if password.waits_until is None else to_micros(password.waits_until)
    connection.execute(
        PASSWORD.insert().values(
            person=password.person,
            digest=password.digest,
            set_at=to_micros(password.set_at),
            failures=password.failures,
            waits_until=waits,
        )
    )


def origin(connection: Connection, person: str, origin: str) -> KnownOrigin | None:
    """The address, if the person has signed in from there with a password."""
    c = PASSWORD_ORIGIN.c
    row = connection.execute(select(PASSWORD_ORIGIN).where(c.person == person, c.origin == origin)).first()
    if row is None:
        return None
    waits = None if row.waits_until is None else from_micros(row.waits_until)
    return KnownOrigin(row.person, row.origin, from_micros(row.right_at), row.failures, waits)


def keep_origin(connection: Connection, known: KnownOrigin) -> None:
    """Store the address; replaces an earlier record. Of more than `MOST_KNOWN`, the oldest are deleted."""
    c = PASSWORD_ORIGIN.c
    connection.execute(PASSWORD_ORIGIN.delete().where(c.person == known.person, c.origin == known.origin))
    connection.execute(
        PASSWORD_ORIGIN.insert().values(
            person=known.person,
            origin=known.origin,
            right_at=to_micros(known.right_at),
            failures=known.failures,
            waits_until=None if known.waits_until is None else to_micros(known.waits_until),
        )
    )
    newest = select(c.origin).where(c.person == known.person).order_by(c.right_at.desc(), c.origin)
    old = list(connection.scalars(newest.offset(MOST_KNOWN)))
    connection.execute(PASSWORD_ORIGIN.delete().where(c.person == known.person, c.origin.in_(old)))


def forget_origins(connection: Connection, person: str) -> None:
    """Delete the addresses from which the person has signed in."""
    connection.execute(PASSWORD_ORIGIN.delete().where(PASSWORD_ORIGIN.c.person == person))


def invite(connection: Connection, invitation: Invitation) -> None:
    """Store the invitation; it replaces earlier ones of the person."""
    end_invitations(connection, invitation.person)
    connection.execute(
        INVITATION.insert().values(
            digest=invitation.digest,
            person=invitation.person,
            made_by=invitation.made_by,
            made_at=to_micros(invitation.made_at),
            ends_at=to_micros(invitation.ends_at),
        )
    )


def invitation(connection: Connection, digest: str, now: datetime) -> Invitation | None:
    """The invitation with that hash of its secret; None if it is unknown, was accepted or is over."""
    row = connection.execute(select(INVITATION).where(INVITATION.c.digest == digest)).first()
    if row is None or row.ends_at <= to_micros(now):
        return None
    return Invitation(row.digest, row.person, row.made_by, from_micros(row.made_at), from_micros(row.ends_at))


def end_invitations(connection: Connection, person: str) -> None:
    """Delete the person's invitations."""
    connection.execute(INVITATION.delete().where(INVITATION.c.person == person))
