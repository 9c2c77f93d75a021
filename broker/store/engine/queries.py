"""Functions that take a connection, as methods of what has one, or has a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from broker.store.engine.database import Database

P = ParamSpec("P")
R = TypeVar("R")
Query = Callable[[], Callable[Concatenate[Connection, P], R]]
"""Returns a function of a module that is imported only then."""


class HasConnection(Protocol):
    """A look at the store, or a transaction."""

    _connection: Connection


class HasDatabase(Protocol):
    """A part of the store whose methods are transactions of their own."""

    _database: Database


def asks(query: Query[P, R]) -> Callable[Concatenate[HasConnection, P], R]:
    """The function that ``query`` returns, as a method: it gets the connection of the object."""

    def method(self: HasConnection, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return query()(self._connection, *args, **kwargs)

    return method


def does(work: Callable[[], Callable[Concatenate[Database, P], R]]) -> Callable[Concatenate[HasDatabase, P], R]:
    """The function that ``work`` returns, as a method: it gets the database of the object."""

    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return work()(self._database, *args, **kwargs)

    return method


def looks(query: Query[P, R]) -> Callable[Concatenate[HasDatabase, P], R]:
    """The function that ``query`` returns, as a method: it gets the connection of a consistent look of its own."""

    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._database.reading() as connection:
            return query()(connection, *args, **kwargs)

    return method


def asks_once(query: Query[P, R]) -> Callable[Concatenate[HasDatabase, P], R]:
    """The function that ``query`` returns, as a method: it executes one statement, on a connection for that."""

    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._database.asking() as connection:
            return query()(connection, *args, **kwargs)

    return method
