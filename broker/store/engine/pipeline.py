"""Statements that PostgreSQL executes one after the other without a round trip each, while all other writers wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError


@contextmanager
def pipelined(connection: Connection) -> Iterator[None]:
    """Send the statements of the block without waiting for their answers; at its end, raise `DBAPIError` with the first
    error among them: nothing of the transaction is kept. For statements without rows, whose count nobody reads. On
    SQLite, which answers at once, nothing changes."""
    driver = _driver(connection)
    if driver is None:
        yield
        return
    try:
        with driver.pipeline():
            yield
    except connection.dialect.loaded_dbapi.Error as error:  # one that SQLAlchemy has not seen
        raise DBAPIError("of several at once", None, error) from error


def in_pipeline(connection: Connection) -> bool:
    """Whether answers are not there yet: statements must say by themselves what is to be an error."""
    driver = _driver(connection)
    return driver is not None and driver.pgconn.pipeline_status != 0


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection if connection.dialect.name == "postgresql" else None
