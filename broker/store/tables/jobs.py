"""The tables of jobs: their projections, their events, and the machine time of their attempts."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, String, Table, text

from broker.store.tables.rows import METADATA

_ABOUT_APPROVAL = text("kind IN ('approval_asked', 'approval_given', 'approval_refused')")

# Projection of one job's events: ``view`` is the whole `JobView` as JSON, the other columns are for queries. ``live``:
# its attempts that may still have machines, as JSON; empty without any, None in rows of earlier versions. ``array_id``:
# the array that it is a task of.
JOB = Table(
    "job",
    METADATA,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("user_name", String, nullable=False),
    Column("team", String),
    Column("project", String),
    Column("environment", String),
    Column("state", String, nullable=False),
    Column("closed", Boolean, nullable=False),
    Column("submitted_at", BigInteger, nullable=False),
    Column("view", String, nullable=False),
    Column("live", String),
    Column("array_id", String),
    Index("job_unclosed", "submitted_at", sqlite_where=text("NOT closed")),
    Index("job_submitted", "submitted_at"),
    Index("job_name", "name", "submitted_at"),
    Index("job_user", "user_name", "submitted_at"),
    Index("job_team", "team", "submitted_at"),
    Index("job_state", "state", "submitted_at"),
    Index("job_project", "project"),
    Index("job_array", "array_id", "closed", "state", sqlite_where=text("array_id IS NOT NULL")),
    Index("job_top", "submitted_at", sqlite_where=text("array_id IS NULL")),
    Index("job_environment", "environment"),
    # Only PostgreSQL needs it, for the beginnings of ids (`text_pattern_ops`); on SQLite it has no rows.
    Index("job_id_begins", "id", sqlite_where=text("0")),
)

# One fact of a job's stream. Append-only.
EVENT = Table(
    "attempt_event",
    METADATA,
    Column("job_id", String, primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer),
    Column("at", BigInteger, nullable=False),
    Column("kind", String, nullable=False),
    Column("body", String, nullable=False),
    Index(
        "attempt_event_approval",
        "at",
        sqlite_where=_ABOUT_APPROVAL,
    ),
    Index("attempt_event_asking", "job_id", sqlite_where=_ABOUT_APPROVAL),
)

# The machine time of an attempt: a projection of events. ``until``: `STILL_THERE` until the machines are known to be
# gone. ``micros``: the price of one machine per hour at the placement, None if unknown; ``count``: accelerators per
# machine. Attempts whose machines never came up have no row.
MACHINE_TIME = Table(
    "machine_time",
    METADATA,
    Column("job_id", String, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("since", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("user_name", String, nullable=False),
    Column("team", String),
    Column("project", String),
    Column("workload", String, nullable=False),
    Column("environment", String),
    Column("money", String, nullable=False),
    Column("provider", String, nullable=False),
    Column("region", String, nullable=False),
    Column("capacity_type", String, nullable=False),
    Column("instance_type", String, nullable=False),
    Column("accelerator", String),
    Column("count", Integer, nullable=False),
    Column("nodes", Integer, nullable=False),
    Column("micros", BigInteger),
    Index("machine_time_until", "until"),
    sqlite_with_rowid=False,
)

# The end of machine time that continues: greater than any time in microseconds.
STILL_THERE = 2**62

# Literally the condition of the index ``job_unclosed``. SQLite uses a partial index only for a query that repeats its
# condition without parameters; SQLAlchemy would render ``job.closed = 0``.
UNCLOSED = text("NOT job.closed")
