"""Use case: moving old events and price history from the database to files in the run store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from broker.app.access.audit import log
from broker.app.jobs.runs_root import chosen
from broker.app.wiring import Broker
from broker.core.access.audit import AuditRecord
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.ports import LEAST_HISTORY
from broker.core.values.units import print_duration
from broker.runfolder import archive
from broker.store.engine.times import from_micros
from broker.store.records import ArchivedRow, ArchiveFile, ArchiveKind, PrunedPrices


@dataclass(frozen=True, slots=True)
class ArchivedHistory:
    """What moved, or would. ``events_before``, ``prices_before``: the cut-offs (UTC), None where nothing is to move;
    ``jobs``, ``events``: closed jobs and their rows."""

    events_before: datetime | None
    prices_before: datetime | None
    jobs: int
    events: int
    prices: PrunedPrices


def archive_history(
    broker: Broker,
    *,
    keep_events: timedelta | None = None,
    keep_prices: timedelta | None = None,
    dry_run: bool = False,
    by: Actor | None,
) -> ArchivedHistory:
    """Move events of jobs that ended longer ago than ``keep_events``, and price history older than ``keep_prices``, by
    whole months (UTC); None: as the active policy says, which may be for ever. ``by``: who asked; None: the service.

    Each file is written and read back before its rows are deleted. May be stopped and repeated at any time: what was
    written but not deleted is written again under the same name. Raises `InvalidInput` for less than `LEAST_HISTORY`,
    `MissingExtra`, `Unreachable`, `StoreProblem`.
    """
    said, now = broker.policy().defaults, broker.clock.now()
    events_before = _month(now, said.keep_events if keep_events is None else keep_events, "--keep-events")
    prices_before = _month(now, said.keep_prices if keep_prices is None else keep_prices, "--keep-prices")
    jobs, events = (0, 0) if events_before is None else _events(broker, events_before, dry_run=dry_run)
    prices = PrunedPrices(0, 0, 0, 0)
    if prices_before is not None:
        into = None if dry_run else _Files(chosen(broker)).keep
        prices = broker.store.market.prune(prices_before, dry_run=dry_run, archive=into)
    if by is not None and not dry_run:
        about = f"{events} events, {prices.prices} prices"
        log(broker, AuditRecord(now, by.identity, by.origin, "store.archive", about))
    return ArchivedHistory(events_before, prices_before, jobs, events, prices)


def _month(now: datetime, keep: timedelta | None, option: str) -> datetime | None:
    if keep is None:
        return None
    if keep < LEAST_HISTORY:
        got = f"{keep.days}d" if not keep % timedelta(days=1) else print_duration(keep)
        raise InvalidInput(
            f"expected {LEAST_HISTORY.days}d or more, because plans and reports need a month of history; got {got}",
            where=option,
        )
    return (now - keep).astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _events(broker: Broker, before: datetime, *, dry_run: bool) -> tuple[int, int]:
    store, runs, after, jobs, events = broker.store.archive, chosen(broker), None, 0, 0
    while (due := store.due_events(before, after)) is not None:
        if not dry_run:
            stored = archive.write(runs, ArchiveKind.EVENTS.value, due.rows)
            store.take_out(
                due,
                ArchiveFile(
                    ArchiveKind.EVENTS, stored.path, stored.digest, len(due.rows), stored.size, due.since, due.until
                ),
            )
        after, jobs, events = due.last, jobs + len(due.jobs), events + len(due.rows)
    return jobs, events


class _Files:
    """Writes rows of series into the run store at that URL."""

    def __init__(self, runs: str) -> None:
        self._runs = runs

    def keep(self, kind: ArchiveKind, rows: Sequence[ArchivedRow]) -> ArchiveFile:
        stored = archive.write(self._runs, kind.value, rows)
        series, times = _whole(rows, 0), _whole(rows, 3)
        return ArchiveFile(
            kind,
            stored.path,
            stored.digest,
            len(rows),
            stored.size,
            from_micros(min(times)),
            from_micros(max(times)),
            (min(series), max(series)),
        )


def _whole(rows: Sequence[ArchivedRow], column: int) -> list[int]:
    return [value for row in rows if isinstance(value := row[column], int)]
