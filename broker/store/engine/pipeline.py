"""Statements that PostgreSQL executes without waiting for a round trip after each, as all other writers wait
meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError


@contextmanager
def pipelined(connection: Connection) -> Iterator[None]:
    """Send the statements of the block without waiting for their answers.

    At the end of the block, raises `DBAPIError` with the first error among them; then nothing of the transaction is
    kept. Only for statements without rows whose row count is not used. No effect on SQLite.
    """
    driver = _driver(connection)
    if driver is None:
        yield
        return
    try:
        with driver.pipeline():
            yield
    except connection.dialect.loaded_dbapi.Error as error:  # an error that SQLAlchemy has not converted
        raise DBAPIError("of several at once", None, error) from error


def in_pipeline(connection: Connection) -> bool:
    """Whether answers arrive later: a statement must then itself fail in cases that the caller would otherwise detect
    by its row count.
    """
    driver = _driver(connection)
    return driver is not None and driver.pgconn.pipeline_status != 0


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection if connection.dialect.name == "postgresql" else None
