"""The record of the files of the archive: which there are, and what they are about."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, select

from broker.store.engine.times import from_micros, to_micros
from broker.store.records import ArchiveFile, ArchiveKind
from broker.store.tables.archive import ARCHIVE_FILE, ARCHIVED_JOB
from broker.store.tables.market import PRICE

_F = ARCHIVE_FILE.c
_COLUMNS = (_F.kind, _F.path, _F.digest, _F.rows, _F.size, _F.since, _F.until, _F.first_series, _F.last_series)


def add(connection: Connection, file: ArchiveFile, at: datetime) -> int:
    """Put a file on record; returns its number."""
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
        )
    )
    (number,) = added.inserted_primary_key or (0,)
    return int(number)


def every(connection: Connection) -> list[ArchiveFile]:
    """All files, in the order in which they were made."""
    return [_file(row) for row in connection.execute(select(*_COLUMNS).order_by(_F.number))]


def has_prices(connection: Connection) -> bool:
    """Whether there is a file of prices or signals."""
    return connection.scalar(select(_F.number).where(_F.kind != ArchiveKind.EVENTS.value).limit(1)) is not None


def of_job(connection: Connection, job_id: str) -> ArchiveFile | None:
    """The file with archived events of that job; None if none are."""
    query = select(*_COLUMNS).join_from(ARCHIVED_JOB, ARCHIVE_FILE, ARCHIVED_JOB.c.file == _F.number)
    row = connection.execute(query.where(ARCHIVED_JOB.c.job_id == job_id)).first()
    return None if row is None else _file(row)


def of_series(connection: Connection, series: int, start: datetime, end: datetime) -> list[ArchiveFile]:
    """The files that tell the course of that series between two times (UTC); none where the store does without."""
    about = (_F.kind != ArchiveKind.EVENTS.value, _F.first_series <= series, _F.last_series >= series)
    rows = connection.execute(select(*_COLUMNS).where(*about, _F.since <= to_micros(end)).order_by(_F.number))
    found = [_file(row) for row in rows]
    before = select(PRICE.c.at).where(PRICE.c.series == series, PRICE.c.at <= to_micros(start))
    kept = before.order_by(PRICE.c.at.desc()).limit(1)  # unordered, PostgreSQL may read the whole table
    if all(file.until < start for file in found) and connection.scalar(kept) is not None:
        return []
    return found  # what was in force at the start may be in any earlier one


def events_until(connection: Connection) -> int | None:
    """The latest end of a job whose events were archived (microseconds); None if none were."""
    latest: int | None = connection.scalar(select(func.max(_F.until)).where(_F.kind == ArchiveKind.EVENTS.value))
    return latest


def _file(row: Any) -> ArchiveFile:
    kind, path, digest, rows, size, since, until, *series = row
    about = None if series[0] is None else (series[0], series[1])
    return ArchiveFile(ArchiveKind(kind), path, digest, rows, size, from_micros(since), from_micros(until), about)
