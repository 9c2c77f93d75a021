"""How much a database does for some statements, counted and not timed: the same on every machine."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import event

from broker.store import Store


@dataclass
class DatabaseWork:
    """``done``: instructions of SQLite's virtual machine. Each row that a statement reads, or adds up, takes some."""

    done: int = 0


@contextmanager
def statements_work(store: Store) -> Iterator[DatabaseWork]:
    """Counts what the store does in this block. Skips the test on PostgreSQL, which does not count instructions."""
    database, work = store._database, DatabaseWork()
    if not database.is_sqlite:
        pytest.skip("only SQLite counts the instructions of its statements")

    def count() -> int:
        work.done += 1
        return 0

    def counted(connection: sqlite3.Connection, *_: object) -> None:
        connection.set_progress_handler(count, 1)

    def not_counted(connection: sqlite3.Connection, *_: object) -> None:
        connection.set_progress_handler(None, 1)

    event.listen(database.engine, "checkout", counted)
    event.listen(database.engine, "checkin", not_counted)
    try:
        yield work
    finally:
        event.remove(database.engine, "checkout", counted)
        event.remove(database.engine, "checkin", not_counted)
