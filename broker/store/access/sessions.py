"""Sessions of the page, by the hash of their ids."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from broker.core.access.sessions import PageSession
from broker.store.engine.times import from_micros, to_micros
from broker.store.tables.access import PAGE_SESSION


def read(connection: Connection, digest: str) -> PageSession | None:
    """The page session with that hash; None if unknown."""
    row = connection.execute(select(PAGE_SESSION).where(PAGE_SESSION.c.digest == digest)).first()
    return None if row is None else of_row(row)


def of_row(row: Any) -> PageSession:
    """The session in a row of its table."""
    return PageSession(
        digest=row.digest,
        person=row.person,
        token=row.token,
        made_at=from_micros(row.made_at),
        seen_at=from_micros(row.seen_at),
        ends_at=from_micros(row.ends_at),
    )


def begin(connection: Connection, session: PageSession) -> None:
    """Store a new session and delete expired ones."""
    connection.execute(PAGE_SESSION.delete().where(PAGE_SESSION.c.ends_at <= to_micros(session.made_at)))
    connection.execute(
        PAGE_SESSION.insert().values(
            digest=session.digest,
            person=session.person,
            token=session.token,
            made_at=to_micros(session.made_at),
            seen_at=to_micros(session.seen_at),
            ends_at=to_micros(session.ends_at),
        )
    )


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
