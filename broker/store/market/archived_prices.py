"""Converts changes of prices and signals to rows of the archive, and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from sqlalchemy import Connection, select

from broker.store.engine.times import from_micros
from broker.store.market.doubts import ENDED
from broker.store.market.history import PastChange
from broker.store.market.polls import CODES
from broker.store.records import ArchivedRow, ArchiveKind, SignalPoint
from broker.store.tables.market import OFFER, POOL, PRICE, SIGNAL

_WORDS = {**{code: word for word, code in CODES.items()}, ENDED: "ended"}
_CODES = {word: code for code, word in _WORDS.items()}
_PLACE = select(POOL.c.key, OFFER.c.source).join_from(OFFER, POOL, OFFER.c.pool_id == POOL.c.id)


def taken(
    connection: Connection, kind: ArchiveKind, series: int, before: int, only: Collection[int] | None = None
) -> list[ArchivedRow]:
    """The changes of a series before ``before`` (microseconds), or those of them at the times ``only``,
    oldest first.
    """
    table = PRICE if kind is ArchiveKind.PRICES else SIGNAL
    place = tuple(connection.execute(_PLACE.where(OFFER.c.id == series)).one())
    found = connection.execute(select(table).where(table.c.series == series, table.c.at < before).order_by(table.c.at))
    return [(series, *place, row.at, *_said(kind, row)) for row in found if only is None or row.at in only]


def _said(kind: ArchiveKind, row: Any) -> ArchivedRow:
    if kind is ArchiveKind.PRICES:
        return row.micros, _WORDS[row.availability], row.learned
    return row.score, row.interruption_rate


def changes(rows: Iterable[Any]) -> list[PastChange]:
    """Converts archived price changes to the form of the store, oldest first."""
    found = [PastChange(at, micros, _CODES[word], learned) for *_, at, micros, word, learned in rows]
    return sorted(found, key=lambda one: one.at)


def signals(rows: Iterable[Any]) -> list[SignalPoint]:
    """Converts archived changes of scores and rates, oldest first."""
    found = [SignalPoint(from_micros(at), score, rate) for *_, at, score, rate in rows]
    return sorted(found, key=lambda one: one.at)
