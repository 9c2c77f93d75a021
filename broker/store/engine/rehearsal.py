"""A database in which everything that is written is undone: to see what would come of something, by doing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import Connection

from broker.store.engine.database import Database


class _Undo(Exception):
    """Ends the transaction without a trace."""


class RehearsedDatabase(Database):
    """One transaction of ``before``, in which every look and every transaction takes part. For one thread."""

    def __init__(self, before: Database, connection: Connection) -> None:
        self.url, self.is_sqlite, self.path, self.where = before.url, before.is_sqlite, before.path, before.where
        self._connection = connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        yield self._connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._connection.begin_nested():
            yield self._connection

    @contextmanager
    def apart(self) -> Iterator[Connection]:
        """What is rehearsed needs nothing that outlasts it."""
        yield self._connection

    def close(self) -> None:
        """The connection is not its own."""


@contextmanager
def rehearsed(database: Database) -> Iterator[Database]:
    """A database for the time of the block; what is written in it is undone at the end, whatever happens. Other
    writers wait meanwhile, so it is to be short."""
    with suppress(_Undo), database.writing() as connection:
        yield RehearsedDatabase(database, connection)
        raise _Undo
