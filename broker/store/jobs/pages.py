"""Lists and pages of jobs, newest first."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, func, literal_column, select, tuple_

from broker.core.errors import UnreadableJob
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.store.engine.fields import from_micros, to_micros
from broker.store.engine.statement_cache import begins_with, one_of
from broker.store.jobs import quarantine
from broker.store.jobs.tasks import no_task
from broker.store.schema.jobs import VIEW_COLUMNS, JobRow


@dataclass(frozen=True, slots=True)
class JobListFilter:
    """A filter of jobs: all fields must match; an empty one matches all. ``visible``: only jobs of these teams, which
    excludes jobs without a team; None for all."""

    states: Collection[str] = ()
    users: Collection[str] = ()
    teams: Collection[str] = ()
    visible: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class JobPlace:
    """A job's position in the list: the time of its submission (UTC) and its id."""

    submitted_at: datetime
    id: str


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page. ``unreadable``: its jobs that this version cannot read; ``next``: the position after which the next
    page begins, None if nothing follows."""

    views: Sequence[JobView]
    unreadable: Sequence[UnreadableJob]
    next: JobPlace | None


def page(connection: Connection, job_filter: JobListFilter, *, after: JobPlace | None, limit: int) -> JobPage:
    """At most ``limit`` jobs after that position, newest first; without tasks of arrays."""
    query = (
        select(*VIEW_COLUMNS, JobRow.submitted_at)
        .order_by(JobRow.submitted_at.desc(), JobRow.id.desc())
        .limit(limit + 1)
    )
    if job_filter.visible is not None:
        team = func.coalesce(JobRow.team, "") if _all_open(job_filter.states) else JobRow.team
        query = query.where(team.in_(sorted(job_filter.visible)))
    if after is not None:
        query = query.where(tuple_(JobRow.submitted_at, JobRow.id) < (to_micros(after.submitted_at), after.id))
    filters = {"team": job_filter.teams, "user_name": job_filter.users}
    rows = connection.execute(_matching(query, filters, job_filter.states)).all()
    page_rows, reader = rows[:limit], quarantine.Quarantine()
    views = reader.views(page_rows)
    last = page_rows[-1] if len(rows) > limit else None
    return JobPage(views, reader.jobs, None if last is None else JobPlace(from_micros(last.submitted_at), last.id))


def newest(
    connection: Connection,
    filters: Mapping[str, Collection[str]],
    *,
    states: Sequence[str],
    limit: int | None,
    with_tasks: bool = False,
) -> Sequence[Any]:
    """The rows, for `broker.store.jobs.quarantine`, of the jobs that match, newest first.

    ``filters``: values by column; none: any. ``with_tasks``: include tasks of arrays.
    """
    query = select(*VIEW_COLUMNS).order_by(JobRow.submitted_at.desc(), JobRow.id.desc()).limit(limit)
    return connection.execute(_matching(query, filters, states, with_tasks=with_tasks)).all()


def _matching(
    query: Select[*tuple[Any, ...]],
    filters: Mapping[str, Collection[str]],
    states: Collection[str],
    with_tasks: bool = False,
) -> Select[*tuple[Any, ...]]:
    for name, values in filters.items():
        if values:
            column = getattr(JobRow, name)
            query = query.where(one_of(func.coalesce(column, "") if _all_open(states) else column, values))
    if states:
        query = query.where(JobRow.state.in_(states))
    if not with_tasks:
        query = query.where(no_task(alone=query.whereclause is None))
    return query


def _all_open(states: Collection[str]) -> bool:
    """Whether no such state is final. Few jobs are in these: another filter must not make the database use the index
    of all jobs of a team or a name."""
    return bool(states) and not any(JobState(state).final for state in states)


def with_id_prefix(connection: Connection, prefix: str, *, limit: int, with_tasks: bool = False) -> Sequence[Any]:
    """The rows of jobs whose ids begin with ``prefix``, in the order of their ids.

    ``with_tasks``: include tasks of arrays.
    """
    # In another order than that of the range, PostgreSQL may read all jobs instead of the range.
    id_column = JobRow.id
    order = id_column if connection.dialect.name == "sqlite" else id_column.op("USING")(literal_column("~<~"))
    query = select(*VIEW_COLUMNS).where(*begins_with(connection, id_column, prefix))
    if not with_tasks:
        query = query.where(no_task(alone=False))
    return connection.execute(query.order_by(order).limit(limit)).all()
