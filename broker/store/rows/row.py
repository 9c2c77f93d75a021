"""The base class of all rows."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer
from sqlmodel import SQLModel

# Only an INTEGER PRIMARY KEY is SQLite's row id; it is as wide as BIGINT there.
ID = BigInteger().with_variant(Integer, "sqlite")


class Row(SQLModel):
    """Base of all rows. Rows are never validated, so pydantic's validators are not built."""

    model_config = {"defer_build": True}
