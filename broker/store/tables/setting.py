"""The table of settings of a store."""

from __future__ import annotations

from sqlalchemy import Column, String, Table

from broker.store.tables.rows import METADATA

# Settings of this store.
SETTING = Table(
    "setting",
    METADATA,
    Column("key", String, primary_key=True),
    Column("value", String, nullable=False),
)
