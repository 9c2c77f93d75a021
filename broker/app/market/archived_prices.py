"""Price history that was moved to the archive of the run store, read with what the database has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from broker.core.market.offers import Offer, OfferQuery
from broker.store.records import ArchiveKind

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.store.market.market_history import ArchivedSeries
    from broker.store.records import ArchiveFile, PastOffer

_Rows = dict[ArchiveKind, list[tuple[Any, ...]]]


def archived(broker: Broker, offers: Sequence[Offer], start: datetime, end: datetime) -> Mapping[str, ArchivedSeries]:
    """The archived part of these offers' series that is needed between two times (UTC), by the offers' ids; without
    offers of which nothing is archived. Raises `MissingExtra`, `Unreachable`, and `BrokerError` for a file that is
    missing or was changed."""
    found: dict[str, ArchivedSeries] = {}
    if not broker.store.archive.has_prices():
        return found
    for offer in offers:
        series, files = broker.store.archive.files_of(offer, start, end)
        if files:
            found[offer.id] = _read(broker, series, files)
    return found


def offers_at(
    broker: Broker, when: datetime, known_at: datetime | None = None, query: OfferQuery | None = None
) -> list[PastOffer]:
    """`MarketHistory.offers_at`, including archived prices of that time. Times are UTC. Raises as `archived`."""
    files = broker.store.archive.files_at(when)
    return broker.store.market.offers_at(when, known_at, query, _newest(broker, files, when, known_at) if files else {})


def _newest(
    broker: Broker, files: Sequence[ArchiveFile], when: datetime, known_at: datetime | None
) -> Mapping[int, ArchivedSeries]:
    """The last archived change of each series up to ``when``, by the series' number."""
    from broker.app.jobs.runs_root import archive_places  # most histories are in the database
    from broker.runfolder import archive
    from broker.store.archive import as_series
    from broker.store.engine.times import to_micros

    found: dict[int, _Rows] = defaultdict(_rows)
    known = None if known_at is None else to_micros(known_at)
    for file in files:
        last = archive.newest(archive_places(broker, file), file.path, file.digest, to_micros(when), known)
        for row in last:
            found[row[0]][file.kind].append(row)
    return {series: as_series(rows[ArchiveKind.PRICES], rows[ArchiveKind.SIGNALS]) for series, rows in found.items()}


def _read(broker: Broker, series: int, files: Sequence[ArchiveFile]) -> ArchivedSeries:
    from broker.app.jobs.runs_root import archive_places  # most histories are in the database
    from broker.runfolder import archive
    from broker.store.archive import as_series

    rows = _rows()
    for file in files:
        rows[file.kind] += archive.read(archive_places(broker, file), file.path, file.digest, series)
    return as_series(rows[ArchiveKind.PRICES], rows[ArchiveKind.SIGNALS])


def _rows() -> _Rows:
    return {ArchiveKind.PRICES: [], ArchiveKind.SIGNALS: []}
