"""The tables of the market: polls, offers, their prices and availability, and what a person accepted."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    String,
    Table,
    UniqueConstraint,
)

from broker.store.tables.rows import ID, METADATA

# One poll of one provider. ``status``: a `broker.store.records.PollStatus`; ``gone``: the number of offers it ended;
# ``samples``: details of skipped rows, as JSON by reason.
POLL = Table(
    "poll_run",
    METADATA,
    Column("id", ID, primary_key=True, autoincrement=True),
    Column("provider", String, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("finished", BigInteger, nullable=False),
    Column("seen", Integer, nullable=False),
    Column("changed", Integer, nullable=False),
    Column("complete", Boolean, nullable=False),
    Column("skipped", String, nullable=False),
    Column("error", String, nullable=False),
    Column("status", String, nullable=False, default="ok", server_default="ok"),
    Column("hint", String, nullable=False, default="", server_default=""),
    Column("gone", Integer, nullable=False, default=0, server_default="0"),
    Column("samples", String, nullable=False, default="{}", server_default="{}"),
    Index("poll_run_provider", "provider", "finished"),
    Index("poll_run_started", "provider", "started"),
    Index("poll_run_newest", "provider", "id"),
)

# One resolution of doubts by a person. ``what``: the offers, as JSON: ids with the doubt and price (micro-dollars) of
# each; ``ended``: the number of missing ones that ended.
ACCEPTANCE = Table(
    "price_acceptance",
    METADATA,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("accepted_by", String, nullable=False),
    Column("provider", String, nullable=False),
    Column("ended", Integer, nullable=False),
    Column("what", String, nullable=False),
    Column("note", String, nullable=False),
)

# One pool. ``accelerator`` is empty for machines without one; ``key`` is `Offer.pool`.
POOL = Table(
    "pool",
    METADATA,
    Column("id", ID, primary_key=True, autoincrement=False),
    Column("key", String, nullable=False),
    Column("provider", String, nullable=False),
    Column("region", String, nullable=False),
    Column("zone", String),
    Column("instance_type", String, nullable=False),
    Column("accelerator", String, nullable=False),
    Column("count", Integer, nullable=False),
    Column("capacity_type", String, nullable=False),
    Column("term_months", Integer),
    UniqueConstraint("key", name="pool_key"),
    Index("pool_machine", "accelerator", "count"),
    Index("pool_place", "provider", "region", "instance_type"),
)

# The current offer of one source for one pool; its id is the price series' id. ``polled_by``: the adapter that reports
# it; ``run``: the last poll that reported it; ``changed_at``: of its newest ``price_change``; ``ended_at``: since when
# it is no longer reported; ``superseded``: a reference price for which a live one is known; ``signalled_at``: of its
# newest ``signal_change``; ``doubt``: a `Doubt`, with its figures in ``doubt_detail``; ``trusted``: while the price is
# in doubt, the last one that was not.
OFFER = Table(
    "offer",
    METADATA,
    Column("id", ID, primary_key=True, autoincrement=False),
    Column("pool_id", BigInteger, ForeignKey("pool.id"), nullable=False),
    Column("source", String, nullable=False),
    Column("polled_by", String, nullable=False),
    Column("run", BigInteger, nullable=False),
    Column("as_of", BigInteger, nullable=False),
    Column("changed_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("superseded", Boolean, nullable=False),
    Column("micros", BigInteger),
    Column("availability", String, nullable=False),
    Column("unavailable_because", String, nullable=False),
    Column("score", Float),
    Column("interruption_rate", Float),
    Column("slots", Integer),
    Column("amortised", BigInteger),
    Column("cpus", Float),
    Column("memory_gib", Float),
    Column("interconnect", String),
    Column("engine", String),
    Column("money", String, nullable=False),
    Column("reference", Boolean, nullable=False),
    Column("bill_minimum", BigInteger, nullable=False),
    Column("bill_granularity", BigInteger, nullable=False),
    Column("bill_free_within", BigInteger, nullable=False),
    Column("max_age", BigInteger),
    Column("signalled_at", BigInteger),
    Column("doubt", String),
    Column("doubt_detail", String, nullable=False, default="", server_default=""),
    Column("trusted", BigInteger),
    UniqueConstraint("pool_id", "source", name="offer_source"),
    Index("offer_polled_by", "polled_by"),
)

# One change of an offer's price or availability, in force from ``at`` until the next of its series. ``learned``: when
# it became known, if after ``at``. ``availability``: a code of `broker.store.market.polls.CODES`. Few columns: a year
# of a large market has some thirty million rows.
PRICE = Table(
    "price_change",
    METADATA,
    Column("series", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("micros", BigInteger),
    Column("availability", SmallInteger, nullable=False),
    Column("learned", BigInteger),
    sqlite_with_rowid=False,
)

# One change of the provider's score and interruptions per hour of an offer.
SIGNAL = Table(
    "signal_change",
    METADATA,
    Column("series", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, primary_key=True, autoincrement=False),
    Column("score", Float),
    Column("interruption_rate", Float),
    sqlite_with_rowid=False,
)
