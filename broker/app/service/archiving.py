"""Use case: moving old events and price history from the database to files in the run store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from broker.app.access.audit import log
from broker.app.jobs.runs_root import chosen
from broker.app.wiring import Broker
from broker.core.access.audit import AuditRecord
from broker.core.actors import Actor
from broker.core.errors import BrokerError, InvalidInput, StoreProblem, Unreachable
from broker.core.ports import LEAST_HISTORY
from broker.core.values.units import print_duration
from broker.runfolder import archive
from broker.store.engine.leader import LeaderRole
from broker.store.engine.times import from_micros
from broker.store.records import ArchivedRow, ArchiveFile, ArchiveKind, PrunedPrices, UnfinishedFile


@dataclass(frozen=True, slots=True)
class ArchivedHistory:
    """What was moved, or would be. ``events_before``, ``prices_before``: the cut-offs (UTC), None if nothing is to
    move; ``jobs``, ``events``: closed jobs and their rows; ``left``: files that an earlier run did not finish and that
    could not be deleted, each with the reason."""

    events_before: datetime | None
    prices_before: datetime | None
    jobs: int
    events: int
    prices: PrunedPrices
    left: tuple[str, ...] = ()


def archive_history(
    broker: Broker,
    *,
    keep_events: timedelta | None = None,
    keep_prices: timedelta | None = None,
    dry_run: bool = False,
    by: Actor | None,
) -> ArchivedHistory:
    """Move events of jobs that ended longer ago than ``keep_events``, and price history older than ``keep_prices``, by
    whole months (UTC); None: the time in the active policy, which may be unlimited. ``by``: who requested it; None: the
    service.

    Each file is announced in the store, written and read back before its rows are deleted. Idempotent; may be
    interrupted at any time: the next call deletes files that were written but not recorded. Raises `InvalidInput` for a
    time shorter than `LEAST_HISTORY`, `MissingExtra`, `Unreachable`, `StoreProblem`, also if another process archives
    now.
    """
    said, now = broker.policy().defaults, broker.clock.now()
    events_before = _month(now, said.keep_events if keep_events is None else keep_events, "--keep-events")
    prices_before = _month(now, said.keep_prices if keep_prices is None else keep_prices, "--keep-prices")
    with ExitStack() as alone:
        files = None if dry_run else alone.enter_context(_writing(broker, prices_before))
        jobs, events = (0, 0) if events_before is None else _events(broker, events_before, files)
        prices = PrunedPrices(0, 0, 0, 0)
        if prices_before is not None:
            into = None if files is None else files.keep
            prices = broker.store.market.prune(prices_before, dry_run=dry_run, archive=into)
        left = () if files is None else tuple(files.left)
    if by is not None and not dry_run:
        about = f"{events} events, {prices.prices} prices"
        log(broker, AuditRecord(now, by.identity, by.origin, "store.archive", about))
    return ArchivedHistory(events_before, prices_before, jobs, events, prices, left)


@contextmanager
def _writing(broker: Broker, prices_before: datetime | None) -> Iterator[_Files]:
    """A writer of the archive; only one process of a store has it at a time. Unfinished files are deleted at the start,
    and after an error."""
    with broker.store.lead(LeaderRole.ARCHIVE) as leading:
        if leading is None:
            raise StoreProblem(
                "another process archives now", where=broker.store.where, hint="repeat it when that one has ended"
            )
        files = _Files(broker, chosen(broker), prices_before)
        files.clear()
        try:
            yield files
        except BaseException:  # Ctrl-C included
            with suppress(BrokerError):
                files.clear()
            raise


def _events(broker: Broker, before: datetime, files: _Files | None) -> tuple[int, int]:
    store, after, jobs, events = broker.store.archive, None, 0, 0
    while (due := store.due_events(before, after)) is not None:
        if files is not None:
            store.take_out(due, files.write(ArchiveKind.EVENTS, due.rows, (due.since, due.until)))
        after, jobs, events = due.last, jobs + len(due.jobs), events + len(due.rows)
    return jobs, events


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


class _Files:
    """Writes rows into new files of the run store at that URL. ``left``: unfinished ones that could not be deleted, and
    why."""

    def __init__(self, broker: Broker, runs: str, prices_before: datetime | None) -> None:
        self._archive, self._runs, self._prices_before = broker.store.archive, runs, prices_before
        self.left: list[str] = []

    def keep(self, kind: ArchiveKind, rows: Sequence[ArchivedRow]) -> ArchiveFile:
        """Write rows of series into a new file; its time is that of the rows."""
        series, times = _whole(rows, 0), _whole(rows, 3)
        written = self.write(kind, rows, (from_micros(min(times)), from_micros(max(times))))
        return replace(written, series=(min(series), max(series)), before=self._prices_before)

    def write(self, kind: ArchiveKind, rows: Sequence[ArchivedRow], time: tuple[datetime, datetime]) -> ArchiveFile:
        """Write rows into a new file. ``time``: the earliest and the latest time in the rows (UTC)."""
        packed = archive.packed(kind.value, rows)
        self._archive.begin(UnfinishedFile(packed.path, self._runs))
        archive.write(self._runs, packed)
        return ArchiveFile(kind, packed.path, packed.digest, len(rows), len(packed.data), *time, self._runs)

    def clear(self) -> None:
        """Delete files that were begun and are not recorded."""
        self.left.clear()
        for file in self._archive.abandon():
            try:
                archive.remove(file.runs, file.path)
            except Unreachable as error:  # a run store that no longer exists must not stop archiving
                self.left.append(f"{file.runs}/{file.path}: {error}")
                continue
            self._archive.forget(file)


def _whole(rows: Sequence[ArchivedRow], column: int) -> list[int]:
    return [value for row in rows if isinstance(value := row[column], int)]
