"""Recorded holdings: paid or committed capacity. Removed ones stay in the table."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, func, or_, select

from broker.core.errors import UnknownName
from broker.economics.reserve.holdings import Holding, RecordedHolding
from broker.store.engine.fields import columns_of, value_of
from broker.store.engine.times import from_micros, to_micros
from broker.store.tables.market import HOLDING, HOLDING_PROOF


def holdings(connection: Connection) -> list[RecordedHolding]:
    """Recorded owned machines, reservations and commitments that were not removed, in the order of addition."""
    rows = connection.execute(select(HOLDING).where(HOLDING.c.removed_at.is_(None)).order_by(HOLDING.c.number))
    return [_recorded(row) for row in rows]


def held_as_of(connection: Connection, at: datetime) -> list[RecordedHolding]:
    """The recorded capacity held at that time (UTC): without later additions, including later removals."""
    c, moment = HOLDING.c, to_micros(at)
    there = (c.added_at < moment, or_(c.removed_at.is_(None), c.removed_at >= moment))
    return [_recorded(row) for row in connection.execute(select(HOLDING).where(*there).order_by(c.number))]


def add(connection: Connection, holding: Holding, *, by: str, at: datetime) -> RecordedHolding:
    """Record a holding. Numbers increase and are never reused."""
    number = (connection.scalar(select(func.max(HOLDING.c.number))) or 0) + 1
    record = {"number": number, "added_at": at, "added_by": by, "removed_at": None, "removed_by": ""}
    connection.execute(HOLDING.insert().values(columns_of(HOLDING, holding, **record)))
    return RecordedHolding(number, holding, from_micros(to_micros(at)), by)


def keep_proof(connection: Connection, name: str, content: bytes) -> str:
    """Store a document; returns its SHA-256 (hex). Idempotent: equal content is stored once."""
    digest = sha256(content).hexdigest()
    if connection.scalar(select(HOLDING_PROOF.c.sha256).where(HOLDING_PROOF.c.sha256 == digest)) is None:
        connection.execute(HOLDING_PROOF.insert().values(sha256=digest, name=name, content=content))
    return digest


def proof(connection: Connection, digest: str) -> tuple[str, bytes]:
    """Name and content of a document that proves a holding. Raises `UnknownName` if it is not stored."""
    row = connection.execute(select(HOLDING_PROOF).where(HOLDING_PROOF.c.sha256 == digest)).first()
    if row is None:
        raise UnknownName("proof of a holding", digest or "none", [])
    return str(row.name), bytes(row.content)


def remove(connection: Connection, number: int, *, by: str, at: datetime) -> RecordedHolding:
    """Remove a holding and return it. Raises `UnknownName` if the number does not exist."""
    known = {recorded.number: recorded for recorded in holdings(connection)}
    if number not in known:
        raise UnknownName("holding", str(number), [str(known_number) for known_number in known])
    change = HOLDING.update().where(HOLDING.c.number == number)
    connection.execute(change.values(removed_at=to_micros(at), removed_by=by))
    return known[number]


def remove_if_there(connection: Connection, number: int, *, by: str, at: datetime) -> None:
    """Remove a holding of capacity. Idempotent: does nothing if there is none with that number."""
    change = HOLDING.update().where(HOLDING.c.number == number, HOLDING.c.removed_at.is_(None))
    connection.execute(change.values(removed_at=to_micros(at), removed_by=by))


def _recorded(row: Any) -> RecordedHolding:
    return RecordedHolding(row.number, value_of(Holding, row), from_micros(row.added_at), row.added_by)
