"""Changes that were asked over the network, by person and idempotency key, and what was answered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, select

from broker.store.engine.times import to_micros
from broker.store.tables import API_REQUEST

_KEPT = timedelta(days=7)  # after that, the same key is another request


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """One request. ``digest``: of what was asked; ``status``: of the answer, None while it is under way or when the
    server died meanwhile; ``body``: the answer's document."""

    digest: str
    status: int | None
    body: str


def read(connection: Connection, person: str, key: str) -> KeptRequest | None:
    """What that person asked under that key."""
    c = API_REQUEST.c
    row = connection.execute(select(API_REQUEST).where(c.person == person, c.key == key)).first()
    return None if row is None else KeptRequest(row.digest, row.status, row.body)


def begin(connection: Connection, person: str, key: str, digest: str, at: datetime) -> None:
    """Put it on record before anything is changed; forget old ones."""
    connection.execute(API_REQUEST.delete().where(API_REQUEST.c.at < to_micros(at - _KEPT)))
    values = {"person": person, "key": key, "digest": digest, "at": to_micros(at), "status": None, "body": ""}
    connection.execute(API_REQUEST.insert().values(**values))


def finish(connection: Connection, person: str, key: str, status: int, body: str) -> None:
    """Keep the answer."""
    c = API_REQUEST.c
    change = API_REQUEST.update().where(c.person == person, c.key == key)
    connection.execute(change.values(status=status, body=body))


def forget(connection: Connection, person: str, key: str) -> None:
    """It changed nothing, so the key may be used again."""
    c = API_REQUEST.c
    connection.execute(API_REQUEST.delete().where(c.person == person, c.key == key))
