"""Price history that was moved to the archive of the run store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from broker.core.market.offers import Offer

if TYPE_CHECKING:
    from broker.app.wiring import Broker
    from broker.store.market.market_history import ArchivedSeries
    from broker.store.records import ArchiveFile


def archived(broker: Broker, offers: Sequence[Offer], start: datetime, end: datetime) -> Mapping[str, ArchivedSeries]:
    """What the archive has of these offers' series that tells their course between two times (UTC), by the offers'
    ids; without offers of which it has nothing. Raises `MissingExtra`, `Unreachable`, and `BrokerError` for a file that
    is missing or was changed."""
    found: dict[str, ArchivedSeries] = {}
    if not broker.store.archive.has_prices():
        return found
    for offer in offers:
        series, files = broker.store.archive.files_of(offer, start, end)
        if files:
            found[offer.id] = _read(broker, series, files)
    return found


def _read(broker: Broker, series: int, files: Sequence[ArchiveFile]) -> ArchivedSeries:
    from broker.app.jobs.runs_root import chosen  # most histories are in the database
    from broker.runfolder import archive
    from broker.store.archive import as_series
    from broker.store.records import ArchiveKind

    rows: dict[ArchiveKind, list[tuple[Any, ...]]] = {ArchiveKind.PRICES: [], ArchiveKind.SIGNALS: []}
    for file in files:
        rows[file.kind] += archive.read(chosen(broker), file.path, file.digest, series)
    return as_series(rows[ArchiveKind.PRICES], rows[ArchiveKind.SIGNALS])
