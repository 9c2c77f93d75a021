"""Statements that PostgreSQL executes without waiting for a round trip after each, and many rows inserted by one
statement, as all other writers wait meanwhile.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import Connection, Dialect, Table, TextClause, text
from sqlalchemy.exc import DBAPIError

from broker.store.schema.row import Row, table_of


@contextmanager
def pipeline(connection: Connection) -> Iterator[None]:
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
        raise DBAPIError("one of several pipelined statements", None, error) from error


def in_pipeline(connection: Connection) -> bool:
    """Whether answers arrive later: a statement must then itself fail in cases that the caller would otherwise detect
    by its row count.
    """
    driver = _driver(connection)
    return driver is not None and driver.pgconn.pipeline_status != 0


def _driver(connection: Connection) -> Any:
    return connection.connection.driver_connection if connection.dialect.name == "postgresql" else None


def insert_rows(connection: Connection, into: type[Row], rows: Sequence[Mapping[str, Any]], conflict: str = "") -> None:
    """Insert rows that all have the same columns, in their order.

    ``conflict``: an ``ON CONFLICT`` clause. PostgreSQL gets them as one JSON document, which takes a tenth of the
    messages and half of the server's time.
    """
    table, names = table_of(into), tuple(rows[0])
    if connection.dialect.name == "postgresql":
        document = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
        connection.execute(_from_document(connection.dialect, table, names, conflict), {"rows": document})
    else:
        connection.execute(_from_values(table, names, conflict), rows)


@cache
def _from_document(dialect: Dialect, table: Table, names: tuple[str, ...], conflict: str) -> TextClause:
    columns = ", ".join(names)
    typed = ", ".join(f"{name} {table.c[name].type.compile(dialect)}" for name in names)
    return text(
        f"INSERT INTO {table.name} ({columns}) SELECT {columns}"  # noqa: S608  # our own names
        f" FROM json_to_recordset(CAST(:rows AS json)) AS given ({typed}) {conflict}"
    )


@cache
def _from_values(table: Table, names: tuple[str, ...], conflict: str) -> TextClause:
    return text(
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES (:{', :'.join(names)}) {conflict}"  # noqa: S608  # our own names
    )
