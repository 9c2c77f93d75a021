"""The tables of capacity that is owned, reserved or bought."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, String, Table, text

from broker.store.tables.rows import METADATA

# Paid or committed capacity: ``gpus`` from ``starts`` to ``ends`` for ``upfront`` once and ``hourly`` per hour.
# ``removed_at``: when the record was removed.
HOLDING = Table(
    "holding",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("accelerator", String, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("provider", String, nullable=False),
    Column("site", String, nullable=False),
    Column("starts", BigInteger, nullable=False),
    Column("ends", BigInteger, nullable=False),
    Column("upfront", BigInteger, nullable=False),
    Column("hourly", BigInteger, nullable=False),
    Column("watts", Float, nullable=False),
    Column("note", String, nullable=False),
    Column("added_at", BigInteger, nullable=False),
    Column("added_by", String, nullable=False),
    Column("removed_at", BigInteger),
    Column("removed_by", String, nullable=False),
)

# Projection of one purchase's events: ``view`` is the whole `Purchase` as JSON.
PURCHASE = Table(
    "purchase",
    METADATA,
    Column("id", String, primary_key=True),
    Column("intended_at", BigInteger, nullable=False),
    Column("closed", Boolean, nullable=False),
    Column("view", String, nullable=False),
    Index("purchase_open", "intended_at", sqlite_where=text("NOT closed")),
)

# One fact of a purchase. Append-only.
PURCHASE_EVENT = Table(
    "purchase_event",
    METADATA,
    Column("purchase_id", String, primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("kind", String, nullable=False),
    Column("body", String, nullable=False),
)

# One quote: a `CapacityQuote` as JSON.
QUOTE = Table(
    "purchase_quote",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("body", String, nullable=False),
)
