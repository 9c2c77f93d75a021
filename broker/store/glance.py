"""The cheapest current price of each kind of machine, read without the weight of the whole store.

A command that only asks what a GPU costs should not pay for importing an object mapper (0.2 s). This reads a SQLite
store with the standard library, read-only, and answers None for anything unusual; the caller then asks `Store`.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote, unquote

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SQLITE = "sqlite:///"

# SQLite takes the other columns from the row that has the minimum. Simulated and owned machines are not for rent.
_CHEAPEST = """
SELECT pool.accelerator, pool.count, pool.capacity_type, pool.provider, pool.region, pool.instance_type,
       pool.term_months, offer.interconnect, offer.as_of, offer.source, offer.reference,
       NOT offer.reference AND offer.max_age IS NOT NULL AND offer.as_of + offer.max_age < :now AS stale,
       count(*), min(offer.micros)
FROM offer JOIN pool ON offer.pool_id = pool.id
WHERE offer.ended_at IS NULL AND NOT offer.superseded AND offer.micros > 0 AND offer.money = 'cash'
  AND offer.availability NOT IN ('unavailable', 'no_quota') AND pool.count > 0 AND pool.accelerator <> ''
GROUP BY pool.accelerator, pool.count, pool.capacity_type, pool.term_months, offer.interconnect, offer.reference, stale
"""


@dataclass(frozen=True, slots=True)
class Cheapest:
    """The cheapest of ``offers`` current offers of one kind of machine. ``micros``: micro-dollars per hour of the
    machine; ``stale``: older than its provider's limit."""

    accelerator: str
    count: int
    capacity_type: str
    provider: str
    region: str
    instance_type: str
    term_months: int | None
    interconnect: str | None
    as_of: datetime
    source: str
    reference: bool
    stale: bool
    offers: int
    micros: int


def cheapest(store_url: str, now: datetime) -> tuple[Cheapest, ...] | None:
    """What the store at ``store_url`` knows of prices at ``now`` (UTC); None when it is no SQLite file, is not there
    yet, is empty, is locked or has another schema. Read-only; creates nothing."""
    if not store_url.startswith(_SQLITE) or "?" in store_url:
        return None
    path = Path(unquote(store_url.removeprefix(_SQLITE)))
    if not path.is_file():
        return None
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=2)
        try:
            rows = connection.execute(_CHEAPEST, {"now": (now - _EPOCH) // timedelta(microseconds=1)}).fetchall()
        finally:
            connection.close()
    except sqlite3.Error:
        return None
    return tuple(
        Cheapest(
            accelerator=accelerator,
            count=count,
            capacity_type=capacity_type,
            provider=provider,
            region=region,
            instance_type=instance_type,
            term_months=term,
            interconnect=interconnect,
            as_of=_EPOCH + timedelta(microseconds=as_of),
            source=source,
            reference=bool(reference),
            stale=bool(stale),
            offers=offers,
            micros=micros,
        )
        for (
            accelerator, count, capacity_type, provider, region, instance_type, term, interconnect, as_of, source,
            reference, stale, offers, micros,
        ) in rows
    ) or None  # fmt: skip
