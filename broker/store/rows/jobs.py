"""The rows of `broker.store.tables.jobs`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Index, text
from sqlmodel import Field

from broker.store.rows.row import Row
from broker.store.tables.conditions import ABOUT_APPROVAL, ENDED, ENDED_BADLY, REPORTED


class JobRow(Row, table=True):
    """Projection of one job's events: ``view`` is the whole `JobView` as JSON, the other columns are for queries.

    ``live``: its attempts that may still have machines, as JSON; empty without any, None in rows of earlier
    versions.
    ``array_id``: the array that it is a task of."""

    __table_args__ = (
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
        # Only PostgreSQL needs it, for the beginnings of ids; on SQLite it has no rows.
        # On PostgreSQL with text_pattern_ops, as a migration makes it: naming that here would import its dialect, and
        # with it asyncio, for every command.
        Index("job_id_begins", "id", sqlite_where=text("0")),
    )

    id: str = Field(primary_key=True)
    name: str
    user_name: str
    team: str | None
    project: str | None
    environment: str | None = None
    state: str
    closed: bool
    submitted_at: int = Field(sa_type=BigInteger)
    view: str
    live: str | None
    array_id: str | None = None


class AttemptEventRow(Row, table=True):
    """One fact of a job's stream. Append-only."""

    __table_args__ = (
        Index("attempt_event_approval", "at", sqlite_where=ABOUT_APPROVAL),
        Index("attempt_event_asking", "job_id", sqlite_where=ABOUT_APPROVAL),
        Index("attempt_event_lost", "job_id", "attempt", sqlite_where=ENDED_BADLY),
        Index("attempt_event_metrics", "job_id", "seq", sqlite_where=REPORTED),
        Index("attempt_event_ended", "at", sqlite_where=ENDED),
    )

    job_id: str = Field(primary_key=True)
    seq: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    attempt: int | None
    at: int = Field(sa_type=BigInteger)
    kind: str
    body: str


class MachineTimeRow(Row, table=True):
    """The machine time of an attempt: a projection of events. ``until``: `STILL_THERE` until the machines are known to
    be gone. ``micros``: the price of one machine per hour at the placement, None if unknown; ``count``: accelerators
    per machine. Attempts whose machines never came up have no row. ``folded``: the slot of time whose sums contain it
    (`broker.store.ledger.use_sums`); None: none do."""

    __table_args__ = (
        Index("machine_time_until", "until"),
        Index("machine_time_folded", "folded", "until"),
        {"sqlite_with_rowid": False},
    )

    job_id: str = Field(primary_key=True)
    attempt: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    since: int = Field(sa_type=BigInteger)
    until: int = Field(sa_type=BigInteger)
    user_name: str
    team: str | None
    project: str | None
    workload: str
    environment: str | None
    money: str
    provider: str
    region: str
    capacity_type: str
    instance_type: str
    accelerator: str | None
    count: int
    nodes: int
    micros: int | None = Field(sa_type=BigInteger)
    folded: int | None = Field(default=None, sa_type=BigInteger)


class SettingRow(Row, table=True):
    """Settings of this store."""

    key: str = Field(primary_key=True)
    value: str
