"""The tables of closed months and spending alerts: marks of budgets, charges, statements, answers to anomalies."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, String, Table

from broker.store.tables.rows import METADATA

# When (``at``) a budget of that ``amount`` was first seen past a ``mark`` (``80%``) in a period.
MARK = Table(
    "budget_mark",
    METADATA,
    Column("budget", String, primary_key=True),
    Column("period_start", BigInteger, primary_key=True, autoincrement=False),
    Column("amount", BigInteger, primary_key=True, autoincrement=False),
    Column("mark", String, primary_key=True),
    Column("at", BigInteger, nullable=False),
)

# A provider's charge for a time, by attempt's ``key`` (empty: for no known attempt). ``line`` distinguishes several for
# the same time. ``source``: ``api``, or the name of the imported file.
CHARGE = Table(
    "charge",
    METADATA,
    Column("provider", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("starts", BigInteger, primary_key=True, autoincrement=False),
    Column("ends", BigInteger, primary_key=True, autoincrement=False),
    Column("line", String, primary_key=True),
    Column("micros", BigInteger, nullable=False),
    Column("estimated", Boolean, nullable=False),
    Column("source", String, nullable=False),
    Column("read_at", BigInteger, nullable=False),
    Index("charge_period", "provider", "ends"),
    Index("charge_ends", "ends"),
)

# What each team is charged for a closed month (``2026-10``), as a `broker.finops.statements.Statement` in JSON.
# Append-only.
STATEMENT = Table(
    "statement",
    METADATA,
    Column("month", String, primary_key=True),
    Column("frozen_at", BigInteger, nullable=False),
    Column("frozen_by", String, nullable=False),
    Column("body", String, nullable=False),
)

# What somebody said of an incident of a team (empty: of jobs without one), which began on a ``day`` (``2026-11-20``).
# The last word counts.
ANSWER = Table(
    "anomaly_answer",
    METADATA,
    Column("team", String, primary_key=True),
    Column("day", String, primary_key=True),
    Column("answer", String, nullable=False),
    Column("answered_at", BigInteger, nullable=False),
    Column("answered_by", String, nullable=False),
    Column("reason", String, nullable=False),
)
