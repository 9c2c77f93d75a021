"""Jobs: their projections, their events, the machine time of their attempts; the settings of a store."""

from typing import Final

from sqlalchemy import Index, func, text
from sqlmodel import Field

from broker.store.schema.row import (
    WITHOUT_ROWID,
    BigInt,
    Column,
    OptionalBigInt,
    Row,
    append_only,
    partial_index,
    prefix_index,
)

STILL_RUNNING: Final = 2**62
"""The end of machine time that continues: later than any time in microseconds."""


class JobRow(Row, table=True):
    """Projection of one job's events: ``view`` is the whole `JobView` as JSON, the other columns are for queries.

    ``live``: its attempts that may still have machines, as JSON; empty without any.
    ``array_id``: the array that it is a task of."""

    __table_args__ = (
        Index("job_submitted", "submitted_at"),
        Index("job_name", "name", "submitted_at"),
        Index("job_user", "user_name", "submitted_at"),
        Index("job_team", "team", "submitted_at"),
        Index("job_state", "state", "submitted_at"),
        Index("job_project", "project"),
        Index("job_environment", "environment"),
    )

    id: Column[str] = Field(primary_key=True)
    name: Column[str]
    user_name: Column[str]
    team: Column[str | None]
    project: Column[str | None]
    environment: Column[str | None] = Field(default=None)
    state: Column[str]
    closed: Column[bool]
    submitted_at: BigInt
    view: Column[str]
    live: Column[str]
    array_id: Column[str | None] = Field(default=None)


UNCLOSED = ~JobRow.closed
IS_TASK, IS_NOT_TASK = JobRow.array_id.is_not(None), JobRow.array_id.is_(None)
partial_index("job_unclosed", JobRow.submitted_at, where=UNCLOSED)
partial_index("job_array", JobRow.array_id, JobRow.closed, JobRow.state, where=IS_TASK)
partial_index("job_top", JobRow.submitted_at, where=IS_NOT_TASK)
prefix_index("job_id_begins", JobRow.id)


class AttemptEventRow(Row, table=True):
    """One fact of a job's stream. Append-only."""

    job_id: Column[str] = Field(primary_key=True)
    seq: Column[int] = Field(primary_key=True)
    attempt: Column[int | None]
    at: BigInt
    kind: Column[str]
    body: Column[str]


IS_FAILED_END = text("""kind = 'attempt_ended' AND body NOT LIKE '%"cause":"completed"%'""")
"""Most attempts complete. In JSON, a quotation mark within a text is escaped, so nothing else matches."""
IS_METRICS_REPORT = text("kind = 'metrics_reported'")
IS_RESOURCE_USE = text("kind = 'resources_used'")
IS_TOKEN_COUNT = text("kind = 'tokens_served'")
IS_CHECKPOINT = text("kind = 'checkpoint_saved'")
IS_JOB_END = text("kind = 'job_ended'")
IS_APPROVAL_EVENT = text("kind IN ('approval_asked', 'approval_given', 'approval_refused')")
HAS_EVENT = func.coalesce(AttemptEventRow.body, "") != ""
"""An outer join found an event. An expression, as databases turn the join into an inner one for a plain condition."""
partial_index("attempt_event_approval", AttemptEventRow.at, where=IS_APPROVAL_EVENT)
partial_index("attempt_event_asking", AttemptEventRow.job_id, where=IS_APPROVAL_EVENT)
partial_index("attempt_event_lost", AttemptEventRow.job_id, AttemptEventRow.attempt, where=IS_FAILED_END)
partial_index("attempt_event_metrics", AttemptEventRow.job_id, AttemptEventRow.seq, where=IS_METRICS_REPORT)
partial_index("attempt_event_used", AttemptEventRow.at, where=IS_RESOURCE_USE)
partial_index("attempt_event_served", AttemptEventRow.at, where=IS_TOKEN_COUNT)
partial_index("attempt_event_saved", AttemptEventRow.at, where=IS_CHECKPOINT)
partial_index("attempt_event_ended", AttemptEventRow.at, where=IS_JOB_END)
append_only(AttemptEventRow)


class MachineTimeRow(Row, table=True):
    """The machine time of an attempt: a projection of events; or of a launch outside gpubroker, from its end on.
    ``until``: `STILL_RUNNING` until the machines are known to be gone. ``micros``: the price of one machine per hour at
    the placement, None if unknown; ``depreciation``: of an owned one per hour; ``count``: accelerators per machine;
    ``can_use_spot``: by the job's own file. Attempts whose machines never came up have no row."""

    __table_args__ = (Index("machine_time_until", "until"), WITHOUT_ROWID)

    job_id: Column[str] = Field(primary_key=True)
    attempt: Column[int] = Field(primary_key=True)
    since: BigInt
    until: BigInt
    user_name: Column[str]
    team: Column[str | None]
    project: Column[str | None]
    workload: Column[str]
    environment: Column[str | None]
    can_use_spot: Column[bool]
    money: Column[str]
    provider: Column[str]
    region: Column[str]
    capacity_type: Column[str]
    instance_type: Column[str]
    accelerator: Column[str | None]
    count: Column[int]
    nodes: Column[int]
    micros: OptionalBigInt
    depreciation: OptionalBigInt


class SettingRow(Row, table=True):
    """Settings of this store."""

    key: Column[str] = Field(primary_key=True)
    value: Column[str]


VIEW_COLUMNS = (JobRow.id, JobRow.name, JobRow.user_name, JobRow.state, JobRow.view)
"""The columns that `Quarantine` needs: the view, and those that identify the job to people."""
