"""Sessions of the page, by the hash of their ids."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from broker.core.access.sessions import PageSession
from broker.store.engine.fields import columns_of, value_of
from broker.store.engine.times import to_micros
from broker.store.tables.access import PAGE_SESSION


def read(connection: Connection, digest: str) -> PageSession | None:
    """The page session with that hash; None if unknown."""
    row = connection.execute(select(PAGE_SESSION).where(PAGE_SESSION.c.digest == digest)).first()
    return None if row is None else value_of(PageSession, row)


def begin(connection: Connection, session: PageSession) -> None:
    """Store a new session and delete expired ones."""
    connection.execute(PAGE_SESSION.delete().where(PAGE_SESSION.c.ends_at <= to_micros(session.made_at)))
    connection.execute(PAGE_SESSION.insert().values(columns_of(PAGE_SESSION, session)))


def seen(connection: Connection, digest: str, at: datetime) -> None:
    """Record a use of the session."""
    change = PAGE_SESSION.update().where(PAGE_SESSION.c.digest == digest)
    connection.execute(change.values(seen_at=to_micros(at)))


def end(connection: Connection, digest: str) -> None:
    """Delete the session."""
    connection.execute(PAGE_SESSION.delete().where(PAGE_SESSION.c.digest == digest))


def end_all(connection: Connection, person: str) -> int:
    """Delete all sessions of a person; returns their number."""
    return connection.execute(PAGE_SESSION.delete().where(PAGE_SESSION.c.person == person)).rowcount
