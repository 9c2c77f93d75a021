"""Makes functions that take a connection methods of a snapshot or a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

P = ParamSpec("P")
R = TypeVar("R")


class HasConnection(Protocol):
    """A snapshot of the store, or a transaction."""

    _connection: Connection


def query(function: Callable[Concatenate[Connection, P], R]) -> Callable[Concatenate[HasConnection, P], R]:
    """The function as a method, called with the object's connection."""

    def method(self: HasConnection, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return function(self._connection, *args, **kwargs)

    method.__doc__ = function.__doc__
    return method
