"""When machines were there, as a table; jobs found by name, user, team, state, project and environment."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_STILL_THERE = 2**62
_BATCH = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INDEXES = (
    ("job_name", ["name", "submitted_at"]),
    ("job_user", ["user_name", "submitted_at"]),
    ("job_team", ["team", "submitted_at"]),
    ("job_state", ["state", "submitted_at"]),
    ("job_project", ["project"]),
    ("job_environment", ["environment"]),
)


def upgrade() -> None:
    """Add a table, a column and indexes; fill both from the jobs as they are stored."""
    op.create_table(
        "machine_time",
        sa.Column("job_id", sa.String(), primary_key=True),
        sa.Column("attempt", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=False),
        sa.Column("team", sa.String(), nullable=True),
        sa.Column("project", sa.String(), nullable=True),
        sa.Column("workload", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=True),
        sa.Column("money", sa.String(), nullable=False),
        sa.Column("provider", sa.String(), nullable=False),
        sa.Column("region", sa.String(), nullable=False),
        sa.Column("capacity_type", sa.String(), nullable=False),
        sa.Column("instance_type", sa.String(), nullable=False),
        sa.Column("accelerator", sa.String(), nullable=True),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("micros", sa.BigInteger(), nullable=True),
        sqlite_with_rowid=False,
    )
    op.add_column("job", sa.Column("environment", sa.String(), nullable=True))
    _fill(op.get_bind())
    op.create_index("machine_time_until", "machine_time", ["until"])
    for name, columns in _INDEXES:
        op.create_index(name, "job", columns)
    beginnings = {"id": "text_pattern_ops"}
    op.create_index("job_id_begins", "job", ["id"], postgresql_ops=beginnings, sqlite_where=sa.text("0"))
    kinds = sa.text("kind IN ('approval_asked', 'approval_given', 'approval_refused')")
    op.create_index("attempt_event_asking", "attempt_event", ["job_id"], sqlite_where=kinds, postgresql_where=kinds)


def _fill(connection: sa.Connection) -> None:
    """As `broker.store.jobs.machine_time` keeps it from now on. Jobs that cannot be read are left out."""
    last = ""
    query = sa.text("SELECT id, user_name, view FROM job WHERE id > :last ORDER BY id LIMIT :batch")
    while jobs := connection.execute(query, {"last": last, "batch": _BATCH}).all():
        last = jobs[-1].id
        environments, rows = [], list[dict[str, Any]]()
        for job in jobs:
            try:
                view = json.loads(job.view)
                own = list(_rows(job.id, job.user_name, view))
            except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
                continue
            rows += own
            if view["job"].get("environment"):
                environments.append({"id": job.id, "environment": view["job"]["environment"]})
        if environments:
            connection.execute(sa.text("UPDATE job SET environment = :environment WHERE id = :id"), environments)
        if rows:
            names = list(rows[0])
            insert = f"INSERT INTO machine_time ({', '.join(names)}) VALUES (:{', :'.join(names)})"  # noqa: S608  # constants of this file
            connection.execute(sa.text(insert), rows)


def _rows(job_id: str, user: str, view: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    job = view["job"]
    for attempt in view.get("attempts") or ():
        if attempt.get("up_since") is None:
            continue
        placement = attempt["placement"]
        offer, gone = placement["offer"], attempt.get("gone_at")
        yield {
            "job_id": job_id,
            "attempt": attempt["number"],
            "since": _micros(attempt["up_since"]),
            "until": _STILL_THERE if gone is None else _micros(gone),
            "user_name": user,
            "team": job.get("team"),
            "project": job.get("project"),
            "workload": job.get("workload", "training"),
            "environment": job.get("environment"),
            "money": offer.get("money", "cash"),
            "provider": offer["provider"],
            "region": offer["region"],
            "capacity_type": offer["capacity_type"],
            "instance_type": offer["instance_type"],
            "accelerator": offer.get("accelerator"),
            "count": offer["count"],
            "nodes": placement["nodes"],
            "micros": None if offer.get("price") is None else int(Decimal(offer["price"]) * 1_000_000),
        }


def _micros(time: str) -> int:
    return (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1)
