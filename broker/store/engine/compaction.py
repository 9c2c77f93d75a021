"""Frees the space of deleted rows: VACUUM of SQLite and of PostgreSQL."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from broker.core.errors import StoreProblem
from broker.store.engine.database import BUSY_SECONDS, Database, explain

_CHECKPOINT = "PRAGMA wal_checkpoint(TRUNCATE)"


@dataclass(frozen=True, slots=True)
class Compaction:
    """The size of the database before and after (bytes)."""

    size_before: int
    size_after: int


def compact(database: Database) -> Compaction:
    """Free the space of deleted rows.

    SQLite rewrites the whole file: other writers wait meanwhile, and twice its size must be free. PostgreSQL keeps the
    space for new rows and updates its statistics, without blocking. Idempotent. Raises `StoreProblem`.
    """
    return _sqlite(database) if database.path is not None else _postgresql(database)


def _sqlite(database: Database) -> Compaction:
    path = database.path
    assert path is not None, "a file"
    with _opened(database) as connection:
        connection.execute(_CHECKPOINT)  # the newest writes are in another file, the write-ahead log
    before, free = path.stat().st_size, shutil.disk_usage(path.parent).free
    if free < 2 * before:
        raise StoreProblem(
            f"compacting needs {2 * before / 1e6:,.0f} MB of free space, and {free / 1e6:,.0f} MB are free",
            where=database.where,
            hint="free some space, then try again",
        )
    with _opened(database) as connection:
        connection.execute("VACUUM")
        connection.execute(_CHECKPOINT)
    return Compaction(before, path.stat().st_size)


@contextmanager
def _opened(database: Database) -> Iterator[sqlite3.Connection]:
    assert database.path is not None, "a file"
    database.close()  # an idle connection in the pool may still have a read transaction
    try:
        with closing(sqlite3.connect(database.path, timeout=BUSY_SECONDS, isolation_level=None)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise explain(error, database.where) from error


def _postgresql(database: Database) -> Compaction:
    size = "SELECT pg_database_size(current_database())"
    with database.apart() as connection:
        before = connection.exec_driver_sql(size).scalar_one()
        connection.exec_driver_sql("VACUUM (ANALYZE)")
        return Compaction(before, connection.exec_driver_sql(size).scalar_one())
