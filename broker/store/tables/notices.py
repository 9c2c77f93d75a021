"""The tables of watches on prices, and of notices to deliver."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, String, Table, text

from broker.store.tables.rows import METADATA

# One watch on prices. ``body``: a `broker.core.market.watches.Watch` as JSON; ``state``: its `WatchState`, also
# compared to detect concurrent changes.
WATCH = Table(
    "price_watch",
    METADATA,
    Column("name", String, primary_key=True),
    Column("body", String, nullable=False),
    Column("state", String, nullable=False),
)

# One notice to one target (the name of a setting, never an address). ``next_try`` is set while it is to be sent;
# ``tries`` counts the attempts, the one under way included. ``thread``: the incident that it belongs to.
NOTICE = Table(
    "notice",
    METADATA,
    Column("key", String, primary_key=True),
    Column("target", String, primary_key=True),
    Column("title", String, nullable=False),
    Column("body", String, nullable=False),
    Column("severity", String, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("next_try", BigInteger),
    Column("delivered_at", BigInteger),
    Column("error", String, nullable=False),
    Column("thread", String, nullable=False, default="", server_default=""),
    Index(
        "notice_waiting",
        "next_try",
        sqlite_where=text("next_try IS NOT NULL"),
    ),
)
