"""What all tables have in common."""

from __future__ import annotations

from sqlalchemy import BigInteger, Integer, MetaData

METADATA = MetaData()
# Only an INTEGER PRIMARY KEY is SQLite's row id; it is as wide as BIGINT there.
ID = BigInteger().with_variant(Integer, "sqlite")
