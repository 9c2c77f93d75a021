"""Sessions of the page, by the hash of their ids."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from broker.core.access.sessions import PageSession
from broker.store.engine.times import from_micros, to_micros
from broker.store.tables import PAGE_SESSION


def read(connection: Connection, digest: str) -> PageSession | None:
    """The session of that hash."""
    row = connection.execute(select(PAGE_SESSION).where(PAGE_SESSION.c.digest == digest)).first()
    if row is None:
        return None
    return PageSession(
        digest=row.digest,
        person=row.person,
        token=row.token,
        made_at=from_micros(row.made_at),
        seen_at=from_micros(row.seen_at),
        ends_at=from_micros(row.ends_at),
    )


def begin(connection: Connection, session: PageSession) -> None:
    """Put it on record; forget those that are over."""
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
    """It was used."""
    change = PAGE_SESSION.update().where(PAGE_SESSION.c.digest == digest)
    connection.execute(change.values(seen_at=to_micros(at)))


def end(connection: Connection, digest: str) -> None:
    """It is good for nothing from now on."""
    connection.execute(PAGE_SESSION.delete().where(PAGE_SESSION.c.digest == digest))


def end_all(connection: Connection, person: str) -> int:
    """The same for all of a person; how many there were."""
    return connection.execute(PAGE_SESSION.delete().where(PAGE_SESSION.c.person == person)).rowcount
