"""Changes requested over the network, by person and idempotency key, with their answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, insert, select, update

from broker.store.engine.times import to_micros
from broker.store.schema.access import ApiRequestRow

_RETENTION = timedelta(days=7)  # after that, the same key is a new request


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """One request.

    ``digest``: hash of its content; ``status``: that of the answer, None while the request is processed or if the
    server died before it answered; ``body``: the document of the answer.
    """

    digest: str
    status: int | None
    body: str


def read(connection: Connection, person: str, key: str) -> StoredRequest | None:
    """The person's request with that idempotency key; None if there is none."""
    row = connection.execute(
        select(ApiRequestRow).where(ApiRequestRow.person == person, ApiRequestRow.key == key)
    ).first()
    return None if row is None else StoredRequest(row.digest, row.status, row.body)


def begin(connection: Connection, person: str, key: str, digest: str, at: datetime) -> None:
    """Record a request before anything is changed, and delete old ones."""
    connection.execute(delete(ApiRequestRow).where(ApiRequestRow.at < to_micros(at - _RETENTION)))
    values = {"person": person, "key": key, "digest": digest, "at": to_micros(at), "status": None, "body": ""}
    connection.execute(insert(ApiRequestRow).values(**values))


def finish(connection: Connection, person: str, key: str, status: int, body: str) -> None:
    """Record the answer to a requested change."""
    change = update(ApiRequestRow).where(ApiRequestRow.person == person, ApiRequestRow.key == key)
    connection.execute(change.values(status=status, body=body))


def forget(connection: Connection, person: str, key: str) -> None:
    """Delete a request that changed nothing, so that the key may be used again."""
    connection.execute(delete(ApiRequestRow).where(ApiRequestRow.person == person, ApiRequestRow.key == key))
