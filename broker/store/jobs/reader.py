"""One consistent snapshot of the store: jobs, money and the market, and lists for people."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import CompoundSelect, Connection, Select, bindparam, func, select, union_all
from sqlalchemy.orm import join

from broker.core.errors import UnreadableJob
from broker.core.events.events import Event, EventBody, body_from_json
from broker.core.events.views import JobView
from broker.core.market.offers import MoneyKind
from broker.core.policy.policy import LiveAttempt
from broker.core.purchases.purchases import Purchase
from broker.core.records import UnreadableRecord
from broker.economics.reserve.holdings import RecordedHolding
from broker.ledger.entries import Balance
from broker.ledger.journal import TaskCounts
from broker.store.engine.database import query
from broker.store.engine.fields import from_micros, to_micros
from broker.store.engine.statements import distinct
from broker.store.jobs import job_rows, live
from broker.store.ledger import (
    anomalies,
    billing_months,
    charges,
    ledger,
    machine_time,
    metering,
    month_runs,
    month_use,
    movement_sums,
    spending,
    spent_sums,
)
from broker.store.ledger.machine_time import MachineTime
from broker.store.ledger.spending import SpendingPeriod
from broker.store.market import holdings, market, polls
from broker.store.market.holdings import HeldWork
from broker.store.market.market import PlanStamp
from broker.store.policy import approvals, policies
from broker.store.purchases import purchases
from broker.store.schema.jobs import IS_JOB_END, UNCLOSED, VIEW_COLUMNS, AttemptEventRow, JobRow, SettingRow

_TREE = re.compile(r'"tree":\s*"([0-9a-f]{64})"')
_SNAPSHOT_COLUMNS = (JobRow.id, JobRow.closed, JobRow.view)
_POOL = re.compile(r'"pool":\s*"([^"]+)"')


@dataclass(frozen=True, slots=True)
class SnapshotUse:
    """A job with the trees of its files, and the pools named in its view. A tree may be in any of these. Read from the
    text of views, so that jobs that this version cannot read are included."""

    job: str
    closed: bool
    pools: frozenset[str]
    trees: frozenset[str]


def snapshot_uses(connection: Connection) -> Iterator[SnapshotUse]:
    """Every job of the store with a snapshot, including unreadable ones; oldest first, streamed."""
    query = select(*_SNAPSHOT_COLUMNS).where(JobRow.view.contains('"tree"'))
    return _read_uses(connection, query.order_by(JobRow.submitted_at, JobRow.id))


def trees_since(connection: Connection, pool: str, since: datetime) -> frozenset[str]:
    """The ids of trees in that pool of snapshots, of jobs that are open or were submitted since that time (UTC)."""
    in_pool = select(*_SNAPSHOT_COLUMNS).where(JobRow.view.contains(pool, autoescape=True))
    # Two queries: for a single one with `or`, SQLite would read all jobs.
    query = union_all(in_pool.where(UNCLOSED), in_pool.where(JobRow.submitted_at >= to_micros(since)))
    return frozenset(tree for use in _read_uses(connection, query) for tree in use.trees)


def _read_uses(
    connection: Connection, query: Select[str, bool, str] | CompoundSelect[str, bool, str]
) -> Iterator[SnapshotUse]:
    for rows in connection.execute(query, execution_options={"yield_per": 500}).partitions():
        for id, closed, view in rows:
            yield SnapshotUse(id, bool(closed), frozenset(_POOL.findall(view)), frozenset(_TREE.findall(view)))


_STREAMED = {"yield_per": 500}  # rows fetched at a time
_SETTING = select(SettingRow.value).where(SettingRow.key == bindparam("key"))
_VIEW = select(*VIEW_COLUMNS).where(JobRow.id == bindparam("job"))


class StoreReader:
    """One consistent snapshot. Times are UTC, amounts USD. Lists omit jobs that this version cannot read and report
    them in `unreadable`. ``for_leader``: as `Quarantine`."""

    def __init__(self, connection: Connection, *, for_leader: bool = False) -> None:
        self._connection = connection
        self._quarantine = job_rows.Quarantine(for_leader=for_leader)
        self._stamp: PlanStamp | None = None
        self._live: Sequence[LiveAttempt] | None = None

    @property
    def unreadable(self) -> Sequence[UnreadableJob]:
        """The jobs found so far in this snapshot that this version cannot read."""
        return self._quarantine.jobs

    def job(self, job_id: str) -> JobView | None:
        """The projection of one job. Raises `UnreadableJob`."""
        row = self._connection.execute(_VIEW, {"job": job_id}).first()
        return None if row is None else self._quarantine.view(row)

    def unclosed(self, teams: Collection[str] | None = None) -> Sequence[JobView]:
        """Every job that is not closed, oldest first; with ``teams``, only those of these teams."""
        query = select(*VIEW_COLUMNS).where(UNCLOSED).order_by(JobRow.submitted_at, JobRow.id)
        if teams is not None:
            query = query.where(func.coalesce(JobRow.team, "").in_(sorted(teams)))  # not by the index of all jobs
        return self._quarantine.views(self._connection.execute(query))

    def has_open_jobs(self) -> bool:
        """Whether any job is not closed."""
        return self._connection.scalar(select(JobRow.id).where(UNCLOSED).limit(1)) is not None

    last_events = query(job_rows.last_events)

    def views(self, job_ids: Sequence[str]) -> Sequence[JobView]:
        """The projections of those jobs, in any order."""
        return self._quarantine.views(job_rows.open_views(self._connection, job_ids))

    open_balances = query(job_rows.open_balances)
    sums = query(movement_sums.read)
    meters = query(metering.read)

    def task_counts(self, array: str) -> TaskCounts:
        """The number of tasks of an array, by state."""
        return job_rows.task_counts(self._connection, [array])[array]

    counts_of = query(job_rows.whole_counts)
    end_counts = query(job_rows.end_counts)
    failure_counts = query(job_rows.failure_counts)

    def open_tasks(self, array: str) -> Sequence[JobView]:
        """The tasks of an array that are not closed, oldest first."""
        return self._quarantine.views(job_rows.task_rows(self._connection, JobRow.array_id == array, ~JobRow.closed))

    def tasks_of(self, array: str, states: Sequence[str] = (), limit: int | None = None) -> Sequence[JobView]:
        """The started tasks of an array, or those in these states, oldest first: of a retried array, the newest run of
        each task."""
        conditions = [
            job_rows.newest_runs(array, self._earlier(array)),
            *([JobRow.state.in_(states)] if states else []),
        ]
        return self._quarantine.views(job_rows.task_rows(self._connection, *conditions, limit=limit))

    def _earlier(self, array: str) -> Sequence[str]:
        view = self.job(array)
        return view.job.array.again if view is not None and view.job.array is not None else ()

    def task_money(self, array: str, *, closed: bool | None = None) -> Mapping[MoneyKind, Balance]:
        """The total hold and spend of the tasks of an array: of all, of closed, or of open ones."""
        return job_rows.task_money(self._connection, [array], closed).get(array, {})

    money_of_tasks = query(job_rows.task_money)
    posted = query(metering.posted_spend)

    def jobs(
        self,
        *,
        name: str | None = None,
        states: Sequence[str] = (),
        users: Collection[str] = (),
        teams: Collection[str] = (),
        limit: int | None = None,
        with_tasks: bool = False,
    ) -> Sequence[JobView]:
        """The jobs that match all arguments, newest first; ``with_tasks``: include tasks of arrays."""
        filters = {"name": () if name is None else (name,), "user_name": users, "team": teams}
        rows = job_rows.newest(self._connection, filters, states=states, limit=limit, with_tasks=with_tasks)
        return self._quarantine.views(rows)

    def jobs_begun(self, prefix: str, *, limit: int, with_tasks: bool = False) -> Sequence[JobView]:
        """Jobs whose ids begin with ``prefix``, in the order of their ids; ``with_tasks``: include tasks of arrays."""
        return self._quarantine.views(
            job_rows.with_id_prefix(self._connection, prefix, limit=limit, with_tasks=with_tasks)
        )

    job_page = query(job_rows.page)

    def submitted_before(self, moment: datetime, since: datetime | None = None) -> Iterator[JobView]:
        """Every job submitted from ``since`` (None: no limit) to before ``moment`` (UTC), oldest first, streamed."""
        query = select(*VIEW_COLUMNS).where(JobRow.submitted_at < to_micros(moment))
        if since is not None:
            query = query.where(JobRow.submitted_at >= to_micros(since))
        streamed = self._connection.execute(query.order_by(JobRow.submitted_at), execution_options=_STREAMED)
        for rows in streamed.partitions():
            yield from self._quarantine.views(rows)

    def ended_between(self, since: datetime | None, before: datetime) -> Iterator[JobView]:
        """Every job that ended in the half-open period (UTC; None: no limit), closed or not, earliest end first,
        streamed.
        """
        query = select(*VIEW_COLUMNS).select_from(join(AttemptEventRow, JobRow, JobRow.id == AttemptEventRow.job_id))
        query = query.where(IS_JOB_END, AttemptEventRow.at < to_micros(before))
        if since is not None:
            query = query.where(AttemptEventRow.at >= to_micros(since))
        streamed = self._connection.execute(query.order_by(AttemptEventRow.at), execution_options=_STREAMED)
        for rows in streamed.partitions():
            yield from self._quarantine.views(rows)

    snapshot_uses = query(snapshot_uses)
    trees_since = query(trees_since)

    def names_in_jobs(self) -> Mapping[str, frozenset[str]]:
        """The names of users, teams, projects and environments of all jobs, with these four words as keys."""
        columns = {
            "user": JobRow.user_name,
            "team": JobRow.team,
            "project": JobRow.project,
            "environment": JobRow.environment,
        }
        return {kind: frozenset(filter(None, distinct(self._connection, column))) for kind, column in columns.items()}

    rented_hours = query(machine_time.rented_hours)

    def machine_time(
        self, *, since: datetime | None = None, job_ids: Sequence[str] | None = None
    ) -> Sequence[MachineTime]:
        """The machine time of attempts, oldest first: of machines that existed at ``since`` (UTC) or later, or of some
        jobs. Without simulated machines.
        """
        return list(machine_time.read(self._connection, since=since, job_ids=job_ids))

    def events(self, job_id: str) -> Sequence[Event]:
        """A job's stream of events, in order. Raises `UnreadableJob`."""
        query = select(AttemptEventRow).where(AttemptEventRow.job_id == job_id).order_by(AttemptEventRow.seq)
        return [event_from_row(row) for row in self._connection.execute(query)]

    entries = query(ledger.read)
    entries_of = query(ledger.read_each)
    all_entries = query(ledger.all_entries)
    balance = query(ledger.balance)
    balances = query(ledger.balances)
    spent = query(spent_sums.spent)
    spent_on_own = query(spent_sums.spent_on_own)
    daily_spending = query(spent_sums.daily)
    spent_until = query(spent_sums.spent_until)
    kept_sums = query(spent_sums.nonzero_sums)
    names_with_money = query(spent_sums.names)
    open_holds = query(ledger.open_holds)
    holds_behind = query(ledger.holds_behind)
    held_under = query(ledger.holding_jobs)
    held = query(ledger.held)

    paid_attempts = query(charges.paid_attempts)

    charges = query(charges.read)
    standing_grants = query(approvals.standing_grants)
    standing_share = query(approvals.share)
    asked_about = query(approvals.jobs_with_approvals)

    def approval_events(self, job_ids: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """The events of those jobs that request, give or refuse an approval, in order.

        Without jobs with such events that this version cannot read.
        """
        events_by_job: dict[str, list[Event]] = {}
        unreadable_jobs = set()
        for row in approvals.approval_events(self._connection, job_ids):
            try:
                events_by_job.setdefault(row.job_id, []).append(event_from_row(row))
            except UnreadableJob:
                unreadable_jobs.add(row.job_id)
        return {job_id: events for job_id, events in events_by_job.items() if job_id not in unreadable_jobs}

    def undecided(self) -> Sequence[JobView]:
        """Every job with a pending approval request, oldest first."""
        views = self._quarantine.views(approvals.with_approval_events(self._connection))
        return [view for view in views if view.asked is not None]

    purchase = query(purchases.read)

    def purchases(self, *, closed: bool = False) -> Sequence[Purchase]:
        """The open purchases, oldest first; with ``closed``, all."""
        is_empty = self._stamp is not None and not self._stamp.owns and not closed
        return [] if is_empty else purchases.list_purchases(self._connection, closed=closed)

    def policy_number(self) -> int:
        """The number of the policy version in force; 0 if none was ever activated."""
        return policies.number(self._connection) if self._stamp is None else self._stamp.policy

    def plan_stamp(self) -> PlanStamp:
        """The stamp of the inputs of plans, from one query; later queries of its parts reuse it."""
        if self._stamp is None:
            self._stamp = market.plan_stamp(self._connection)
        return self._stamp

    in_hand = query(holdings.in_hand)
    held_as_of = query(holdings.held_as_of)

    def holdings(self) -> Sequence[RecordedHolding]:
        """As `Store.holdings`."""
        return [] if self._stamp is not None and not self._stamp.owns else holdings.holdings(self._connection)

    def runs(self) -> str | None:
        """The recorded URL of the run store; None if there is none."""
        return self.setting("runs") if self._stamp is None else self._stamp.runs

    active_policy = query(policies.active)

    def work_on_held(self, since: datetime) -> HeldWork:
        """The work on owned and reserved machines since that time (UTC), to be used by several calls of `in_hand`."""
        return holdings.HeldWork(self._connection, since - holdings.LOOKS_BACK)

    def live_attempts(self) -> Sequence[LiveAttempt]:
        """Every attempt whose machine may still exist, including requested attempts."""
        if self._live is None:
            self._live = live.attempts(self._connection)
        return self._live

    price_series = query(market.price_series)
    offers = query(market.offers)

    names_in_market = query(market.names)
    count_offers = query(market.count_offers)
    rejected_in_sql = query(market.rejected_in_sql)
    last_polls = query(polls.last_polls)

    def setting(self, key: str) -> str | None:
        """A setting of this store; None if it was never set."""
        return self._connection.scalar(_SETTING, {"key": key})

    judged_by = query(policies.judged_by)
    last_judged = query(policies.last_judged)
    decisions = query(policies.decisions)

    # The ledger by periods, for reports.

    first_machine_time = query(spending.first_machine_time)
    spent_by = query(spending.spent_by)
    bought_in_advance = query(spending.bought_in_advance)
    billed_in = query(billing_months.billed_entries)
    used_in = query(month_use.period_use)
    team_spending = query(billing_months.team_spending)
    last_entry = query(billing_months.last_entry)
    recorded_after = query(billing_months.recorded_after)
    statement = query(billing_months.statement)
    statements = query(billing_months.statements)
    daily_by_team = query(anomalies.daily_by_team)
    spending_by_job = query(anomalies.spending_by_job)
    jobs_spent_on_own = query(anomalies.spent_on_own)
    anomaly_answers = query(anomalies.answers)
    advice_answers = query(anomalies.advice_answers)
    succeeded_runs = query(month_runs.count_succeeded)
    succeeded_jobs = query(month_runs.succeeded_jobs)
    last_reports = query(month_runs.last_reports)
    machine_hours = query(month_runs.machine_hours)

    def plans_and_ends(self, job_ids: Sequence[str]) -> Sequence[tuple[str, datetime, EventBody]]:
        """The requests for machines and the ends of attempts of those jobs, in order, with their times (UTC).

        Omits those that this version cannot read.
        """
        result = []
        for job_id, at, text in month_runs.plans_and_ends(self._connection, job_ids):
            with suppress(UnreadableRecord):
                result.append((job_id, from_micros(at), body_from_json(text)))
        return result

    gpu_attempts = query(month_runs.gpu_attempts)
    served_attempts = query(month_runs.served_attempts)
    token_counts = query(month_runs.token_counts)
    reported_metrics = query(month_runs.reported_metrics)
    spent_by_jobs = query(month_runs.spent_by_jobs)

    def groups_of(self, dimension: str, period: SpendingPeriod, job_ids: Sequence[str]) -> Set[tuple[str, str]]:
        """The pairs of job and group in which `spent_by` counts these jobs."""
        return spending.groups_of(self._connection, dimension, period, list(job_ids))

    holding = query(spending.holding)


def event_from_row(row: Any) -> Event:
    """Converts a row of the table of events. Raises `UnreadableJob`."""
    try:
        body = body_from_json(row.body)
    except UnreadableRecord as error:
        raise UnreadableJob(row.job_id, f"event {row.seq} ({row.kind}): {error}", newer=error.newer) from error
    return Event(row.job_id, row.seq, from_micros(row.at), row.attempt, body)
