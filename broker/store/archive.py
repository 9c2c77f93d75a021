"""The archive in files of the run store: which events of closed jobs may be archived, and their deletion from the
store.

Events that reports read stay in the store: requests for machines, ends of attempts and jobs, approvals, and the last
checkpoints and figures of each attempt and month. A file is written first; then one transaction records it and deletes
the events that it contains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, exists, func, or_, select

from broker.core.errors import StoreProblem
from broker.core.events.events import Event
from broker.core.market.offers import Offer
from broker.core.values.clock import Clock
from broker.store import archive_files
from broker.store.engine.database import Database
from broker.store.engine.queries import looks
from broker.store.engine.times import from_micros, to_micros
from broker.store.jobs.reading import event_from_row
from broker.store.market import archived_prices, history
from broker.store.market.market_history import ArchivedSeries
from broker.store.records import ArchivedRow, ArchiveFile, UnfinishedFile
from broker.store.tables.conditions import ENDED
from broker.store.tables.jobs import ARCHIVED_JOB, EVENT, JOB

# The kinds of events that reports of any period read, besides the last ones of the kinds in `_LAST_COUNT`.
_STAY = frozenset(
    {"launch_requested", "machine_up", "attempt_ended", "job_ended"}
    | {"approval_asked", "approval_given", "approval_refused"}
)
_LAST_COUNT = frozenset({"checkpoint_saved", "metrics_reported"})
_JOBS, _ROWS = 2_000, 200_000  # limits of one file, which is built in memory: a job may have many events
# A job that is closed later than other jobs with the same end is still found within this time.
_LATE = timedelta(days=60)
_ZONES = timedelta(hours=14)  # no time zone differs from UTC by more

_DROP = delete(EVENT).where(EVENT.c.job_id == bindparam("job"), EVENT.c.seq == bindparam("number"))


class _EventRow(NamedTuple):
    job_id: str
    seq: int
    attempt: int | None
    at: int
    kind: str
    body: str


@dataclass(frozen=True, slots=True)
class DueEvents:
    """Events that may be archived in one file, in the order of job and number.

    ``since``, ``until``: the first and the last end of their jobs (UTC); ``last``: the position after which the next
    ones begin.
    """

    jobs: Sequence[str]
    rows: Sequence[ArchivedRow]
    since: datetime
    until: datetime
    last: tuple[int, str]


class Archive:
    """Reached as ``store.archive``. Each method is one transaction and may raise `StoreProblem`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    files = looks(lambda: archive_files.every)
    has_prices = looks(lambda: archive_files.has_prices)
    file_of = looks(lambda: archive_files.of_job)

    def files_of(self, offer: Offer, start: datetime, end: datetime) -> tuple[int, Sequence[ArchiveFile]]:
        """The number of the offer's series (0 if it has none), and the archive files with its changes between two times
        (UTC); no files if the store itself has all of them.
        """
        with self._database.reading() as connection:
            series = history.series_of(connection, offer)
            return (0, []) if series is None else (series, archive_files.of_series(connection, series, start, end))

    def files_at(self, when: datetime) -> Sequence[ArchiveFile]:
        """The files of prices and signals that may contain the values in force at that time (UTC)."""
        with self._database.reading() as connection:
            return archive_files.at_moment(connection, when)

    def begin(self, file: UnfinishedFile) -> None:
        """Record that a file is to be written, so that it can be found and deleted if it is never completed."""
        with self._database.writing() as connection:
            archive_files.begin(connection, file, self._clock.now())

    def abandon(self) -> Sequence[UnfinishedFile]:
        """Mark the files that were begun and never recorded as abandoned, so that they cannot be recorded any more, and
        return them. Delete each, then call `forget`.
        """
        with self._database.writing() as connection:
            return archive_files.abandon(connection)

    def forget(self, file: UnfinishedFile) -> None:
        """Delete the record of an unfinished file, once the file is deleted. Idempotent."""
        with self._database.writing() as connection:
            archive_files.forget(connection, file)

    def due_events(self, before: datetime, after: tuple[int, str] | None = None) -> DueEvents | None:
        """The next events that may be archived, of closed jobs that ended before a time (UTC), the earliest end first;
        None if there are no more. ``after``: `DueEvents.last` of the previous ones.
        """
        with self._database.reading() as connection:
            if after is None:
                newest = archive_files.events_until(connection)
                after = (0 if newest is None else newest - _micros(_LATE), "")
            while ended := _of_one_file(connection, _ended(connection, after, to_micros(before))):
                after = ended[-1][1], ended[-1][0]
                rows = _may_go(connection, [job_id for job_id, _ in ended])
                if rows:
                    jobs = sorted({row.job_id for row in rows})
                    return DueEvents(jobs, rows, from_micros(ended[0][1]), from_micros(after[0]), after)
        return None

    def take_out(self, due: DueEvents, file: ArchiveFile) -> None:
        """Record a file that was begun and delete the events that it contains, all or nothing.

        Raises `StoreProblem` if another process has done so, or has abandoned the file.
        """
        jobs = list(due.jobs)
        with self._database.writing() as connection:
            number = archive_files.add(connection, file, self._clock.now())
            known = connection.scalars(select(ARCHIVED_JOB.c.job_id).where(ARCHIVED_JOB.c.job_id.in_(jobs))).first()
            before = _count(connection, jobs)
            if known is None:
                connection.execute(ARCHIVED_JOB.insert(), [{"job_id": job_id, "file": number} for job_id in jobs])
                connection.execute(_DROP, [{"job": row[0], "number": row[1]} for row in due.rows])
            if known is not None or before - _count(connection, jobs) != len(due.rows):
                raise StoreProblem(
                    f"the events of {known or jobs[0]} were archived meanwhile; nothing was deleted",
                    where=self._database.where,
                    hint="repeat it",
                )


def as_events(rows: Iterable[Any]) -> list[Event]:
    """Converts archived rows to events. Raises `UnreadableJob`."""
    return [event_from_row(_EventRow(*row)) for row in rows]


def as_series(prices: Iterable[ArchivedRow], signals: Iterable[ArchivedRow]) -> ArchivedSeries:
    """Converts archived rows of one series."""
    return ArchivedSeries(archived_prices.changes(prices), archived_prices.signals(signals))


def _ended(connection: Connection, after: tuple[int, str], before: int) -> list[tuple[str, int]]:
    """The next closed jobs by their end that are not archived, each with the time of its end.

    Without tasks of running arrays: their reports are compared with those of running tasks.
    """
    at, job_id = after
    whole = JOB.alias("whole")
    goes_on = exists().where(whole.c.id == JOB.c.array_id, ~whole.c.closed)
    archived = exists().where(ARCHIVED_JOB.c.job_id == EVENT.c.job_id)
    rows = connection.execute(
        select(EVENT.c.job_id, EVENT.c.at)
        .join_from(EVENT, JOB, JOB.c.id == EVENT.c.job_id)
        .where(ENDED, EVENT.c.at >= at, or_(EVENT.c.at > at, EVENT.c.job_id > job_id))
        .where(EVENT.c.at < before, JOB.c.closed, ~archived, ~goes_on)
        .order_by(EVENT.c.at, EVENT.c.job_id)
        .limit(_JOBS)
    )
    return [(row.job_id, row.at) for row in rows]


def _of_one_file(connection: Connection, ended: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The first of these jobs, as many as have at most `_ROWS` events together, but at least one."""
    mine = EVENT.c.job_id.in_([job_id for job_id, _ in ended])
    rows_of = select(EVENT.c.job_id, func.count()).where(mine).group_by(EVENT.c.job_id)
    counts = {job_id: int(rows) for job_id, rows in connection.execute(rows_of)}
    sums = accumulate(counts.get(job_id, 0) for job_id, _ in ended)
    return [one for number, (one, rows) in enumerate(zip(ended, sums, strict=True)) if rows <= _ROWS or not number]


def _may_go(connection: Connection, jobs: Collection[str]) -> list[_EventRow]:
    query = select(EVENT).where(EVENT.c.job_id.in_(jobs)).order_by(EVENT.c.job_id, EVENT.c.seq)
    rows = [_EventRow(*row) for row in connection.execute(query)]
    last = {_turn(row): row.seq for row in rows if row.kind in _LAST_COUNT}
    return [row for row in rows if row.kind not in _STAY and last.get(_turn(row)) != row.seq and not _at_edge(row)]


def _turn(row: _EventRow) -> tuple[object, ...]:
    return row.job_id, row.kind, row.attempt, _month(row.at)


def _at_edge(row: _EventRow) -> bool:
    """Whether the time may belong to either of two months, as reports use the months of some time zone."""
    if row.kind not in _LAST_COUNT:
        return False
    zones = _micros(_ZONES)
    return _month(row.at - zones) != _month(row.at + zones)


def _month(at: int) -> tuple[int, int]:
    moment = from_micros(at)
    return moment.year, moment.month


def _micros(time: timedelta) -> int:
    return time // timedelta(microseconds=1)


def _count(connection: Connection, jobs: Sequence[str]) -> int:
    return connection.scalar(select(func.count()).select_from(EVENT).where(EVENT.c.job_id.in_(jobs))) or 0
