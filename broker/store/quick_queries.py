"""Fast queries for prices, machine time and policy files, without importing the whole store.

Commands that only show prices do not import an object mapper (0.2 s). These functions read a SQLite store with the
standard library, read-only, and return None in all unusual cases; the caller then uses `Store`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SQLITE = "sqlite:///"

# SQLite takes the other columns from the row that has the minimum. Without simulated and owned machines, which are not
# for rent.
_CHEAPEST = """
SELECT pool.accelerator, pool.count, pool.capacity_type, pool.provider, pool.region, pool.instance_type,
       pool.term_months, offer.interconnect, offer.as_of, offer.source, offer.reference,
       NOT offer.reference AND offer.max_age IS NOT NULL AND offer.as_of + offer.max_age < :now AS stale,
       offer.engine IS NOT NULL AS launchable, count(*), min(offer.micros)
FROM offer JOIN pool ON offer.pool_id = pool.id
WHERE offer.ended_at IS NULL AND NOT offer.superseded AND offer.micros > 0 AND offer.money = 'cash'
  AND offer.doubt IS NULL
  AND offer.availability NOT IN ('unavailable', 'no_quota') AND pool.count > 0 AND pool.accelerator <> ''
  AND {places}
GROUP BY pool.accelerator, pool.count, pool.capacity_type, pool.term_months, offer.interconnect, offer.reference, stale,
         launchable
"""


# The columns of `broker.store.schema.jobs.MachineTimeRow`. ``until`` of machines that still exist is greater than any
# time.
_RAN = """
SELECT team, accelerator, count * nodes, since, CASE WHEN until < 4611686018427387904 THEN until END
FROM machine_time WHERE until >= :since AND money <> 'sandbox' AND count > 0
"""


@dataclass(frozen=True, slots=True)
class AttemptUse:
    """An attempt whose machines came up, without simulated ones: ``gpus`` in total, from ``up_since`` until ``gone_at``
    (UTC; None: not known to be gone)."""

    team: str | None
    accelerator: str
    gpus: int
    up_since: datetime
    gone_at: datetime | None


@dataclass(frozen=True, slots=True)
class Cheapest:
    """The cheapest of ``offers`` current offers of one kind of machine. ``micros``: micro-dollars per hour of the
    machine; ``stale``: older than its provider's limit; ``launchable``: an engine starts jobs there."""

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
    launchable: bool = True


def cheapest(
    store_url: str,
    now: datetime,
    providers: Sequence[str] = (),
    regions: Sequence[str] = (),
    not_in: Sequence[str] = (),
) -> tuple[Cheapest, ...] | None:
    """The cheapest offers in the store at ``store_url``, by kind of machine.

    ``now``: UTC. ``providers``, ``regions``: shell-style patterns in lower case; empty: any. ``not_in``: patterns of
    excluded regions. None if it is not a SQLite file, does not exist, is empty, is locked or has another schema.
    Read-only; creates nothing.
    """
    values: dict[str, int | str] = {"now": (now - _EPOCH) // timedelta(microseconds=1)}
    region = "lower(pool.region) GLOB {0} OR lower(pool.provider) || '/' || lower(pool.region) GLOB {0}"
    clauses = []
    for name, patterns, test in (
        ("provider", providers, "lower(pool.provider) GLOB {0}"), ("region", regions, region),
        ("without", not_in, region),
    ):  # fmt: skip
        keys = [f"{name}{number}" for number in range(len(patterns))]
        values |= dict(zip(keys, patterns, strict=True))
        if keys:
            either = " OR ".join(test.format(f":{key}") for key in keys)
            clauses.append(f"NOT ({either})" if name == "without" else f"({either})")
    rows = _rows(store_url, _CHEAPEST.replace("{places}", " AND ".join(clauses) or "1"), values)
    if rows is None:
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
            launchable=bool(launchable),
        )
        for (
            accelerator, count, capacity_type, provider, region, instance_type, term, interconnect, as_of, source,
            reference, stale, launchable, offers, micros,
        ) in rows
    ) or None  # fmt: skip


def is_missing(store_url: str) -> bool:
    """Whether the URL names a SQLite file that does not exist."""
    return (
        store_url.startswith(_SQLITE) and not Path(unquote(store_url.removeprefix(_SQLITE).partition("?")[0])).exists()
    )


def ran(store_url: str, since: datetime) -> tuple[AttemptUse, ...] | None:
    """Every attempt that had machines with accelerators at ``since`` (UTC) or later; None as for `cheapest`, except for
    an empty store."""
    rows = _rows(store_url, _RAN, {"since": (since - _EPOCH) // timedelta(microseconds=1)})
    if rows is None:
        return None
    return tuple(
        AttemptUse(team, accelerator, gpus, _time(start), None if end is None else _time(end))
        for team, accelerator, gpus, start, end in rows
    )


def holds_nothing(store_url: str) -> bool:
    """Whether no held capacity is recorded; False if a fast query cannot tell."""
    rows = _rows(store_url, "SELECT count(*) FROM holding WHERE removed_at IS NULL", {})
    return rows is not None and rows[0][0] == 0


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def policy_files(store_url: str) -> dict[str, str] | None:
    """The files of the policy set in force, by name; empty if none was ever activated; None as for `ran`."""
    rows = _rows(store_url, "SELECT files FROM policy_set ORDER BY number DESC LIMIT 1", {})
    if rows is None:
        return None
    return dict(json.loads(rows[0][0])) if rows else {}


def _rows(store_url: str, query: str, values: Mapping[str, int | str]) -> list[tuple[Any, ...]] | None:
    if not store_url.startswith(_SQLITE) or "?" in store_url:
        return None
    path = Path(unquote(store_url.removeprefix(_SQLITE)))
    if not path.is_file():
        return None
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=2)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()
    except sqlite3.Error:
        return None
