"""The rows of jobs: pages, newest first; the tasks of an array; all open jobs, for the reconciler, with a number of
queries that does not depend on their number. Every function works inside the caller's transaction.

`Quarantine` reads the stored views, and collects unreadable ones with the reason. Each task of an array is a separate
job, whose row names the array.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Connection, Select, and_, func, literal_column, or_, select, true, tuple_, union

from broker.core.errors import UnreadableJob
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.market.offers import MoneyKind
from broker.core.records import UnreadableRecord, add_stamp, read_stamped, unknown_fields
from broker.core.values.money import Money
from broker.ledger.entries import Balance
from broker.ledger.journal import TaskCounts
from broker.store.engine.fields import from_micros, to_micros
from broker.store.engine.statements import begins_with, for_jobs, in_jobs, one_of
from broker.store.ledger.ledger import BALANCE_COLUMNS, balance_from
from broker.store.schema.jobs import IS_FAILED_END, UNCLOSED, VIEW_COLUMNS, AttemptEventRow, JobRow
from broker.store.schema.ledger import LedgerBalanceRow, LedgerEntryRow


class Quarantine:
    """The unreadable jobs found in one snapshot of the store. ``for_leader``: to run the jobs; then also those that use
    a field that this version does not know."""

    def __init__(self, *, for_leader: bool = False) -> None:
        self._for_leader = for_leader
        self._jobs: dict[str, UnreadableJob] = {}

    @property
    def jobs(self) -> Sequence[UnreadableJob]:
        """Each unreadable job once, in the order in which they were found."""
        return tuple(self._jobs.values())

    def view(self, row: Any) -> JobView:
        """The view of a row of `VIEW_COLUMNS`. Raises `UnreadableJob`."""
        try:
            view = read_stamped(row.view, _parse_view)
            if self._for_leader and (fields := ", ".join(unknown_fields(view.job))):
                raise UnreadableRecord(f"it uses {fields}, which this version does not know", newer=True)
        except UnreadableRecord as error:
            unreadable = UnreadableJob(
                row.id, str(error), newer=error.newer, name=row.name, user=row.user_name, state=row.state
            )
            self._jobs[row.id] = unreadable
            raise unreadable from error
        return view

    def views(self, rows: Iterable[Any]) -> list[JobView]:
        result = []
        for row in rows:
            try:
                result.append(self.view(row))
            except UnreadableJob:  # listed in `jobs`
                continue
        return result


def to_text(view: JobView) -> str:
    return add_stamp(_views().dump_json(view, exclude_defaults=True).decode())


@lru_cache(maxsize=256)
def _parse_view(text: str) -> JobView:
    """Cached: views are immutable, and one snapshot reads the same ones several times."""
    return _views().validate_json(text)


@cache
def _views() -> TypeAdapter[JobView]:
    return TypeAdapter(JobView)


@dataclass(frozen=True, slots=True)
class JobListFilter:
    """A filter of jobs: all fields must match; an empty one matches all. ``visible``: only jobs of these teams, which
    excludes jobs without a team; None for all. ``text``: part of the id, name, user or project, in any case; ``since``:
    submitted then or later (UTC)."""

    states: Collection[str] = ()
    users: Collection[str] = ()
    teams: Collection[str] = ()
    visible: Collection[str] | None = None
    text: str = ""
    since: datetime | None = None


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
    if job_filter.since is not None:
        query = query.where(JobRow.submitted_at >= to_micros(job_filter.since))
    if job_filter.text:
        columns = (JobRow.id, JobRow.name, JobRow.user_name, JobRow.project)
        query = query.where(or_(*(column.icontains(job_filter.text, autoescape=True) for column in columns)))
    if after is not None:
        query = query.where(tuple_(JobRow.submitted_at, JobRow.id) < (to_micros(after.submitted_at), after.id))
    filters = {"team": job_filter.teams, "user_name": job_filter.users}
    rows = connection.execute(_matching(query, filters, job_filter.states)).all()
    page_rows, reader = rows[:limit], Quarantine()
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
    """The rows, for `Quarantine`, of the jobs that match, newest first.

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


def no_task(*, alone: bool) -> ColumnElement[bool]:
    """The condition that a job is not a task.

    ``alone``: it is the only condition. Next to others, it must not make the database use the index of jobs that are
    not tasks instead of theirs.
    """
    is_no_task = JobRow.array_id.is_(None)
    return is_no_task if alone else is_no_task == true()  # PostgreSQL simplifies it, and so estimates it well


def newest_runs(array: str, earlier: Sequence[str]) -> ColumnElement[bool]:
    """The condition for the newest run of each task of an array: its own tasks, and those of the ``earlier`` arrays
    that it retries which succeeded, as it runs all others again."""
    own = JobRow.array_id == array
    if not earlier:
        return own
    finished = JobRow.array_id.in_(earlier), JobRow.array_id.is_not(None), JobRow.state == JobState.SUCCEEDED.value
    return or_(own, and_(*finished))


def task_counts(connection: Connection, arrays: Sequence[str]) -> dict[str, TaskCounts]:
    """The number of tasks of each array, by state."""
    states: dict[str | None, dict[JobState, int]] = {array: {} for array in arrays}
    open_counts: dict[str | None, int] = dict.fromkeys(arrays, 0)
    query = select(JobRow.array_id, JobRow.state, JobRow.closed, func.count()).where(
        JobRow.array_id.in_(arrays), JobRow.array_id.is_not(None)
    )
    for array, state, closed, count in connection.execute(query.group_by(JobRow.array_id, JobRow.closed, JobRow.state)):
        counts_by_state = states[array]
        counts_by_state[JobState(state)] = counts_by_state.get(JobState(state), 0) + count
        open_counts[array] += 0 if closed else count
    return {array: TaskCounts(states[array], open_counts[array]) for array in arrays}


def end_counts(connection: Connection) -> dict[str, int]:
    """The number of jobs that are closed, by state."""
    query = select(JobRow.state, func.count()).where(JobRow.closed).group_by(JobRow.state)
    return dict(connection.execute(query).all())


def failure_counts(connection: Connection) -> dict[Cause, int]:
    """The number of attempts that ended otherwise than by completion, by cause."""
    counts = [func.count().filter(AttemptEventRow.body.contains(f'"cause":"{cause}"')) for cause in Cause]
    row = connection.execute(select(*counts).where(IS_FAILED_END)).one()
    return dict(zip(Cause, row, strict=True))


def whole_counts(connection: Connection, arrays: Mapping[str, Sequence[str]]) -> dict[str, TaskCounts]:
    """`counts` of the tasks of each array as in `newest`. ``arrays``: for each the arrays that it retries."""
    own_counts = task_counts(
        connection, list({*arrays, *(earlier_array for earlier in arrays.values() for earlier_array in earlier)})
    )
    totals = {}
    for array, earlier in arrays.items():
        states, earlier_total = dict(own_counts[array].states), 0
        ended = sum(own_counts[earlier_array].states.get(JobState.SUCCEEDED, 0) for earlier_array in earlier)
        if ended:
            states[JobState.SUCCEEDED], earlier_total = states.get(JobState.SUCCEEDED, 0) + ended, ended
        totals[array] = TaskCounts(states, own_counts[array].open, earlier_total)
    return totals


def task_rows(connection: Connection, *conditions: ColumnElement[bool], limit: int | None = None) -> Sequence[Any]:
    """The rows of tasks that satisfy the conditions, in the order of their start, with the columns that
    `Quarantine` needs.
    """
    query = select(*VIEW_COLUMNS).where(*conditions).order_by(JobRow.submitted_at, JobRow.id)
    return connection.execute(query.limit(limit)).all()


def task_money(
    connection: Connection, arrays: Sequence[str], closed: bool | None = None
) -> dict[str, dict[MoneyKind, Balance]]:
    """The total hold and spend of the tasks of each array; with ``closed``, only of closed or of open ones.

    Without the dates of holds.
    """
    query = (
        select(
            JobRow.array_id,
            LedgerBalanceRow.money,
            func.sum(LedgerBalanceRow.available),
            func.sum(LedgerBalanceRow.held),
            func.sum(LedgerBalanceRow.spent),
        )
        .join_from(JobRow, LedgerBalanceRow, LedgerBalanceRow.job_id == JobRow.id)
        .where(JobRow.array_id.in_(arrays), JobRow.array_id.is_not(None))
        .group_by(JobRow.array_id, LedgerBalanceRow.money)
    )
    if closed is not None:
        query = query.where(JobRow.closed if closed else ~JobRow.closed)
    result: dict[str, dict[MoneyKind, Balance]] = {}
    for array, kind, *sums in connection.execute(query):
        available, held, spent = (Money(int(micros)) for micros in sums)
        result.setdefault(str(array), {})[MoneyKind(kind)] = Balance(available, held, spent)
    return result


_LAST = (
    select(func.max(AttemptEventRow.seq)).where(AttemptEventRow.job_id == JobRow.id).correlate(JobRow).scalar_subquery()
)
_LAST_EVENTS = select(JobRow.id, _LAST).where(UNCLOSED).order_by(JobRow.submitted_at, JobRow.id)
_LAST_EVENTS_OF = _LAST_EVENTS.where(in_jobs(JobRow.id))
_VIEWS = select(*VIEW_COLUMNS).where(in_jobs(JobRow.id))
# Not a join: SQLite would start it from the balances of all jobs, closed ones included.
_BALANCES = select(LedgerBalanceRow.job_id, LedgerBalanceRow.money, *BALANCE_COLUMNS).where(
    LedgerBalanceRow.job_id.in_(select(JobRow.id).where(UNCLOSED))
)
_KINDS = {kind.value: kind for kind in MoneyKind}  # faster than a call of the enumeration


def last_events(connection: Connection, job_ids: Sequence[str] | None = None) -> dict[str, int]:
    """The number of the last event of each job that is not closed, oldest job first; with ``job_ids``, only of those
    jobs.
    """
    if job_ids is None:
        rows = connection.execute(_LAST_EVENTS)
    else:
        rows = connection.execute(_LAST_EVENTS_OF, {"jobs": job_ids})
    return dict(tuple(row) for row in rows.all())


def open_views(connection: Connection, job_ids: Sequence[str]) -> Iterator[Any]:
    """The rows of those jobs, with the columns that `Quarantine` needs."""
    return for_jobs(connection, _VIEWS, job_ids)


def open_ids_after(connection: Connection, last: str, limit: int) -> list[str]:
    """The next ``limit`` ids after ``last`` of jobs with any record, open or closed, in the order of the database."""
    parts = (
        select(column.label("job_id")).distinct().where(column > last).order_by(column).limit(limit).subquery()
        for column in (JobRow.id, AttemptEventRow.job_id, LedgerBalanceRow.job_id, LedgerEntryRow.job_id)
    )
    all_ids = union(*(select(part.c.job_id) for part in parts)).subquery()
    return list(connection.scalars(select(all_ids.c.job_id).order_by(all_ids.c.job_id).limit(limit)))


def open_balances(connection: Connection) -> dict[str, dict[MoneyKind, Balance]]:
    """The balances of each job that is not closed and has entries."""
    result: dict[str, dict[MoneyKind, Balance]] = {}
    for job_id, money, *columns in connection.execute(_BALANCES).all():
        result.setdefault(job_id, {})[_KINDS[money]] = balance_from(*columns)
    return result
