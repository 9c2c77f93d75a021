"""Inserts many rows into a table by one statement, to keep the time short during which other writers wait."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Connection,
    Float,
    Integer,
    SmallInteger,
    String,
    Table,
    TextClause,
    text,
)

_TYPES = {
    BigInteger: "bigint",
    Boolean: "boolean",
    Float: "double precision",
    Integer: "integer",
    SmallInteger: "smallint",
    String: "text",
}


def insert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], conflict: str = "") -> None:
    """Insert rows that all have the same columns, in their order.

    ``conflict``: an ``ON CONFLICT`` clause. PostgreSQL gets them as one JSON document, which takes a tenth of the
    messages and half of the server's time.
    """
    names = tuple(rows[0])
    if connection.dialect.name == "postgresql":
        document = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
        connection.execute(_from_document(table, names, conflict), {"rows": document})
    else:
        connection.execute(_from_values(table, names, conflict), rows)


@cache
def _from_document(table: Table, names: tuple[str, ...], conflict: str) -> TextClause:
    columns = ", ".join(names)
    typed = ", ".join(f"{name} {_TYPES[type(table.c[name].type)]}" for name in names)
    return text(
        f"INSERT INTO {table.name} ({columns}) SELECT {columns}"  # noqa: S608  # our own names
        f" FROM json_to_recordset(CAST(:rows AS json)) AS given ({typed}) {conflict}"
    )


@cache
def _from_values(table: Table, names: tuple[str, ...], conflict: str) -> TextClause:
    return text(
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES (:{', :'.join(names)}) {conflict}"  # noqa: S608  # our own names
    )
