"""The base of all rows, and the lookup of the Core table of a row class."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, Table
from sqlmodel import SQLModel

# Only an INTEGER PRIMARY KEY is SQLite's row id; it is as wide as BIGINT there.
ID = BigInteger().with_variant(Integer, "sqlite")


class Row(SQLModel):
    """Base of all rows. Rows are never validated, so pydantic's validators are not built."""

    model_config = {"defer_build": True}


def table_of(row: type[SQLModel]) -> Table:
    """The Core table of a row class: bulk operations bypass the ORM."""
    table = SQLModel.metadata.tables[str(row.__tablename__)]
    assert isinstance(table, Table)
    return table
