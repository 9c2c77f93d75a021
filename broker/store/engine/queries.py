"""Turns functions that take a connection into methods of objects that have a connection or a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from broker.store.engine.database import Database

P = ParamSpec("P")
R = TypeVar("R")
Query = Callable[[], Callable[Concatenate[Connection, P], R]]
"""Returns a function from a module that is imported only when it is called."""


class HasConnection(Protocol):
    """A snapshot of the store, or a transaction."""

    _connection: Connection


class HasDatabase(Protocol):
    """A part of the store whose methods are transactions of their own."""

    _database: Database


def asks(query: Query[P, R]) -> Callable[Concatenate[HasConnection, P], R]:
    """Makes the function that ``query`` returns a method, called with the object's connection."""

    def method(self: HasConnection, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return query()(self._connection, *args, **kwargs)

    return method


def does(work: Callable[[], Callable[Concatenate[Database, P], R]]) -> Callable[Concatenate[HasDatabase, P], R]:
    """Makes the function that ``work`` returns a method, called with the object's database."""

    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return work()(self._database, *args, **kwargs)

    return method


def looks(query: Query[P, R]) -> Callable[Concatenate[HasDatabase, P], R]:
    """Makes the function that ``query`` returns a method, called with the connection of a new consistent snapshot."""

    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._database.reading() as connection:
            return query()(connection, *args, **kwargs)

    return method


def asks_once(query: Query[P, R]) -> Callable[Concatenate[HasDatabase, P], R]:
    """Makes the function that ``query`` returns a method; it executes one statement, on a connection outside a
    transaction.
    """

    def method(self: HasDatabase, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._database.asking() as connection:
            return query()(connection, *args, **kwargs)

    return method
