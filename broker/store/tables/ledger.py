"""The tables of the ledger: entries and balances, and the sums of them that hot queries read."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
    literal_column,
    text,
)

from broker.store.tables.rows import ID, METADATA

# Entries over more than a day, counted one by one: see `broker.store.ledger.spent_sums`.
LONG = text("account = 'spent' AND covers_to - covers_from > 86400000000")

# One ledger entry; ``id`` is the posting order. Append-only.
ENTRY = Table(
    "ledger_entry",
    METADATA,
    Column("id", ID, primary_key=True, autoincrement=True),
    Column("movement_id", String, nullable=False),
    Column("movement", String, nullable=False),
    Column("account", String, nullable=False),
    Column("micros", BigInteger, nullable=False),
    Column("money", String, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("covers_from", BigInteger, nullable=False),
    Column("covers_to", BigInteger, nullable=False),
    Column("job_id", String, nullable=False),
    Column("user_name", String, nullable=False),
    Column("team", String),
    Column("project", String),
    Column("workload", String),
    Column("environment", String),
    Column("attempt", Integer),
    Column("provider", String),
    Column("region", String),
    Column("capacity_type", String),
    Column("accelerator", String),
    Column("gpus", Integer, nullable=False),
    Column("note", String, nullable=False),
    Column("rate", BigInteger),
    UniqueConstraint("movement_id", "account", name="ledger_entry_movement"),
    Index("ledger_entry_job", "job_id"),
    Index(
        "ledger_entry_spent",
        "covers_to",
        sqlite_where=text("account = 'spent'"),
    ),
    Index("ledger_entry_long", "covers_to", sqlite_where=LONG),
)

# Sums of a job's entries per kind of money, and the tags and dates that count its hold under a budget.
BALANCE = Table(
    "ledger_balance",
    METADATA,
    Column("job_id", String, primary_key=True),
    Column("money", String, primary_key=True),
    Column("available", BigInteger, nullable=False),
    Column("held", BigInteger, nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("holds_to", BigInteger, nullable=False),
    Column("user_name", String, nullable=False),
    Column("team", String),
    Column("project", String),
    Column("workload", String),
    Column("environment", String),
    Column("holds_from", BigInteger, nullable=False),
    Column("burns", BigInteger, nullable=False),
    Index("ledger_balance_open", "held", sqlite_where=text("held <> 0")),
)

# One set of tags by which budgets count. ``key``: the tags as JSON.
GROUP = Table(
    "spend_group",
    METADATA,
    Column("id", ID, primary_key=True, autoincrement=True),
    Column("key", String, nullable=False),
    Column("money", String, nullable=False),
    Column("user_name", String, nullable=False),
    Column("team", String),
    Column("project", String),
    Column("workload", String),
    Column("environment", String),
    UniqueConstraint("key", name="spend_group_key"),
)

# The spend of a group in one slot of time: ``size`` microseconds, the ``slot``-th since 1970.
SUM = Table(
    "spend_sum",
    METADATA,
    Column("size", BigInteger, primary_key=True, autoincrement=False),
    Column("group_id", BigInteger, primary_key=True, autoincrement=False),
    Column("slot", BigInteger, primary_key=True, autoincrement=False),
    Column("micros", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# The sum of a job's movements with the same attempt (0: none), kind of money and kind of movement: ``micros`` went from
# the movement's first account to the second, in ``movements`` movements. ``covers_from`` and ``covers_to`` enclose the
# times they cover; ``at``: the latest posting.
MOVED = Table(
    "movement_sum",
    METADATA,
    Column("job_id", String, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("money", String, primary_key=True),
    Column("movement", String, primary_key=True),
    Column("micros", BigInteger, nullable=False),
    Column("movements", BigInteger, nullable=False),
    Column("covers_from", BigInteger, nullable=False),
    Column("covers_to", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("user_name", String, nullable=False),
    sqlite_with_rowid=False,
)

# How far the machine time of an attempt is settled: a `broker.ledger.meter.Meter`. ``cost`` (micro-dollars) and
# ``cost_rest`` (the part of a micro-dollar, times an hour in microseconds) are one exact number.
METERING = Table(
    "metering",
    METADATA,
    Column("job_id", String, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("settled", BigInteger, nullable=False),
    Column("settled_to", BigInteger, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("rate", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    Column("cost_rest", BigInteger, nullable=False),
    Column("moved", BigInteger, nullable=False),
    Column("ended", Boolean, nullable=False),
    sqlite_with_rowid=False,
)

# Literally the condition of the index ``ledger_balance_open``; SQLAlchemy would render ``held != ?``.
STILL_HELD = BALANCE.c.held != literal_column("0")
