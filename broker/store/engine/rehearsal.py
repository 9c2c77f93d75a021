"""A database whose writes are rolled back: determines the result of an action by executing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection

from broker.store.engine.database import Database


class _Undo(Exception):
    """Rolls the transaction back."""


class RehearsalDatabase(Database):
    """One transaction of ``before`` that contains all reads and writes. For one thread."""

    def __init__(self, before: Database, connection: Connection) -> None:
        self.url, self.is_sqlite, self.path, self.where = before.url, before.is_sqlite, before.path, before.where
        self._connection = connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        yield self._connection

    @contextmanager
    def asking(self) -> Iterator[Connection]:
        yield self._connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._connection.begin_nested():
            yield self._connection

    @contextmanager
    def apart(self) -> Iterator[Connection]:
        """The same connection: nothing in a rehearsal needs one beyond it."""
        yield self._connection

    def close(self) -> None:
        """Does nothing: the connection belongs to the original database."""


@contextmanager
def rehearse(database: Database) -> Iterator[Database]:
    """A database during the block; its writes are always rolled back at the end. Other writers wait meanwhile, so keep
    it short."""
    with suppress(_Undo), database.writing() as connection:
        yield RehearsalDatabase(database, connection)
        raise _Undo
