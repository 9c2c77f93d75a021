"""The records of the archive's files: which files exist, and which jobs or series they contain."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, func, select, update

from broker.core.errors import StoreProblem
from broker.store.engine.times import from_micros, to_micros
from broker.store.records import ArchiveFile, ArchiveKind, UnfinishedFile
from broker.store.tables.jobs import ARCHIVE_FILE, ARCHIVE_INTENT, ARCHIVED_JOB

_F, _I = ARCHIVE_FILE.c, ARCHIVE_INTENT.c
_SAID = (_F.kind, _F.path, _F.digest, _F.rows, _F.size, _F.since, _F.until, _F.runs)
_COLUMNS = (*_SAID, _F.first_series, _F.last_series, _F.before)


def begin(connection: Connection, file: UnfinishedFile, at: datetime) -> None:
    """Record that a file is to be written."""
    noted = ARCHIVE_INTENT.insert().values(path=file.path, runs=file.runs, at=to_micros(at), abandoned=False)
    connection.execute(noted)


def abandon(connection: Connection) -> list[UnfinishedFile]:
    """Mark the files that were begun and not recorded as abandoned, and return them. They cannot be recorded
    any more.
    """
    connection.execute(update(ARCHIVE_INTENT).values(abandoned=True))
    return [UnfinishedFile(*row) for row in connection.execute(select(_I.path, _I.runs).order_by(_I.at, _I.path))]


def forget(connection: Connection, file: UnfinishedFile) -> None:
    """Delete the record of an unfinished file, once the file is deleted."""
    connection.execute(delete(ARCHIVE_INTENT).where(_I.path == file.path))


def add(connection: Connection, file: ArchiveFile, at: datetime) -> int:
    """Record a file that was begun; returns its number. Raises `StoreProblem` if it was abandoned."""
    if connection.execute(delete(ARCHIVE_INTENT).where(_I.path == file.path, ~_I.abandoned)).rowcount != 1:
        raise StoreProblem(
            "another process archives now, and took over; nothing of this file was deleted",
            where=file.path,
            hint="repeat it",
        )
    first, last = file.series or (None, None)
    added = connection.execute(
        ARCHIVE_FILE.insert().values(
            kind=file.kind.value,
            path=file.path,
            digest=file.digest,
            rows=file.rows,
            size=file.size,
            since=to_micros(file.since),
            until=to_micros(file.until),
            first_series=first,
            last_series=last,
            at=to_micros(at),
            runs=file.runs,
            before=None if file.before is None else to_micros(file.before),
        )
    )
    (number,) = added.inserted_primary_key or (0,)
    return int(number)


def every(connection: Connection) -> list[ArchiveFile]:
    """All files, in the order of their creation."""
    return [_file(row) for row in connection.execute(select(*_COLUMNS).order_by(_F.number))]


def has_prices(connection: Connection) -> bool:
    """Whether there is a file of prices or signals."""
    return connection.scalar(select(_F.number).where(_F.kind != ArchiveKind.EVENTS.value).limit(1)) is not None


def of_job(connection: Connection, job_id: str) -> ArchiveFile | None:
    """The file with archived events of that job; None if it has none."""
    query = select(*_COLUMNS).join_from(ARCHIVED_JOB, ARCHIVE_FILE, ARCHIVED_JOB.c.file == _F.number)
    row = connection.execute(query.where(ARCHIVED_JOB.c.job_id == job_id)).first()
    return None if row is None else _file(row)


def of_series(connection: Connection, series: int, start: datetime, end: datetime) -> list[ArchiveFile]:
    """The files with changes of that series between two times (UTC); none if the store itself has all of them."""
    # The state in force at a file's cut-off is still in the store.
    time = _F.since <= to_micros(end), _F.before > to_micros(start)
    about = _F.kind != ArchiveKind.EVENTS.value, _F.first_series <= series, _F.last_series >= series
    return [_file(row) for row in connection.execute(select(*_COLUMNS).where(*about, *time).order_by(_F.number))]


def at_moment(connection: Connection, when: datetime) -> list[ArchiveFile]:
    """The files of prices and signals that may contain the values in force at that time (UTC)."""
    moment = to_micros(when)
    about = (_F.kind != ArchiveKind.EVENTS.value, _F.since <= moment, _F.before > moment)
    return [_file(row) for row in connection.execute(select(*_COLUMNS).where(*about).order_by(_F.number))]


def events_until(connection: Connection) -> int | None:
    """The latest end of a job whose events were archived (microseconds); None if none were."""
    latest: int | None = connection.scalar(select(func.max(_F.until)).where(_F.kind == ArchiveKind.EVENTS.value))
    return latest


def _file(row: Any) -> ArchiveFile:
    kind, path, digest, rows, size, since, until, runs, first, last, before = row
    about = None if first is None else (first, last)
    cut = None if before is None else from_micros(before)
    return ArchiveFile(
        ArchiveKind(kind), path, digest, rows, size, from_micros(since), from_micros(until), runs, about, cut
    )
