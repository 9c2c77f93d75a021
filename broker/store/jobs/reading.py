"""One consistent snapshot of the store: `broker.ledger.journal.Reading`, and lists for people."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, bindparam, func, select

from broker.core.errors import UnreadableJob
from broker.core.events.events import Event, body_from_json
from broker.core.events.record_format import UnreadableRecord
from broker.core.events.views import JobView
from broker.core.job.reasons import Reason
from broker.core.job.stop_when import ReportedValue
from broker.core.market.capacity import Charge
from broker.core.market.offer_order import OfferOrder
from broker.core.market.offers import MoneyKind, Offer, OfferQuery
from broker.core.policy.approvals import StandingGrant
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, CapacityInHand, LiveAttempt
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Balance, Entry, Sum
from broker.ledger.journal import Judgement, OpenHold, Posted, TaskCounts
from broker.ledger.meter import Meter
from broker.store import later
from broker.store.engine.statement_cache import distinct
from broker.store.engine.times import from_micros, to_micros
from broker.store.jobs import live, machine_time, open_jobs, pages, quarantine, snapshots, tasks
from broker.store.jobs.machine_time import MachineTime
from broker.store.jobs.pages import FoundPage, JobPlace, WantedJobs
from broker.store.jobs.snapshots import SnapshotUse
from broker.store.ledger import ledger, metering, movement_sums, spent_sums
from broker.store.ledger.reading import SpendingReading
from broker.store.policy import approvals, decisions, policies
from broker.store.records import PolicyVersion, PollRun
from broker.store.tables.conditions import ENDED
from broker.store.tables.jobs import EVENT, JOB, UNCLOSED
from broker.store.tables.setting import SETTING

if TYPE_CHECKING:
    from broker.core.purchases.purchases import Purchase
    from broker.economics.reserve.holdings import RecordedHolding
    from broker.store.market.in_hand import WorkOnHeld
    from broker.store.market.plan_stamp import PlanStamp

_STREAMED = {"yield_per": 500}  # rows fetched at a time
_SETTING = select(SETTING.c.value).where(SETTING.c.key == bindparam("key"))
_VIEW = select(*quarantine.COLUMNS).where(JOB.c.id == bindparam("job"))


class StoreReading(SpendingReading):
    """One consistent snapshot: `broker.ledger.journal.Reading`, and lists for people. Lists omit jobs that this version
    cannot read and report them in `unreadable`."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._quarantine = quarantine.Quarantine()
        self._stamp: PlanStamp | None = None
        self._live: Sequence[LiveAttempt] | None = None

    @property
    def unreadable(self) -> Sequence[UnreadableJob]:
        """The jobs that this snapshot has met so far and that this version cannot read."""
        return self._quarantine.jobs

    def job(self, job_id: str) -> JobView | None:
        """The projection of one job. Raises `UnreadableJob`."""
        row = self._connection.execute(_VIEW, {"job": job_id}).first()
        return None if row is None else self._quarantine.view(row)

    def unclosed(self, teams: Collection[str] | None = None) -> Sequence[JobView]:
        """Every job that is not closed, oldest first; with ``teams``, those of these teams."""
        query = select(*quarantine.COLUMNS).where(UNCLOSED).order_by(JOB.c.submitted_at, JOB.c.id)
        if teams is not None:
            query = query.where(func.coalesce(JOB.c.team, "").in_(sorted(teams)))  # not by the index of all jobs
        return self._quarantine.views(self._connection.execute(query))

    def has_open_jobs(self) -> bool:
        """Whether any job is not closed."""
        return self._connection.scalar(select(JOB.c.id).where(UNCLOSED).limit(1)) is not None

    def last_events(self, job_ids: Sequence[str] | None = None) -> Mapping[str, int]:
        """The number of the last event of each job that is not closed (or of those jobs, but for closed ones), oldest
        job first."""
        return open_jobs.last_events(self._connection, job_ids)

    def views(self, job_ids: Sequence[str]) -> Sequence[JobView]:
        """The projections of those jobs, in any order."""
        return self._quarantine.views(open_jobs.views(self._connection, job_ids))

    def open_balances(self) -> Mapping[str, Mapping[MoneyKind, Balance]]:
        """`balance` of each job that is not closed and has entries."""
        return open_jobs.balances(self._connection)

    def sums(self, job_ids: Sequence[str]) -> Mapping[str, Sequence[Sum]]:
        """The entries of those jobs, summed by attempt, movement, account and kind of money."""
        return movement_sums.read(self._connection, job_ids)

    def meters(self, job_ids: Sequence[str]) -> Mapping[str, Mapping[int, Meter]]:
        """How far the machine time of those jobs' attempts is settled, by job and number of the attempt."""
        return metering.read(self._connection, job_ids)

    def task_counts(self, array: str) -> TaskCounts:
        """The number of tasks of an array, by state."""
        return tasks.counts(self._connection, [array])[array]

    def counts_of(self, arrays: Sequence[str]) -> Mapping[str, TaskCounts]:
        """`task_counts` of each of those."""
        return tasks.counts(self._connection, arrays)

    def open_tasks(self, array: str) -> Sequence[JobView]:
        """The tasks of an array that are not closed, oldest first."""
        return self._quarantine.views(tasks.rows(self._connection, array, ~JOB.c.closed))

    def tasks_of(self, array: str, states: Sequence[str] = (), limit: int | None = None) -> Sequence[JobView]:
        """The tasks of an array that were started, or those in these states, oldest first."""
        in_states = [JOB.c.state.in_(states)] if states else []
        return self._quarantine.views(tasks.rows(self._connection, array, *in_states, limit=limit))

    def tasks_succeeded(self, array: str) -> Sequence[str]:
        """The ids of the tasks of an array that have succeeded, in any order."""
        return tasks.succeeded(self._connection, array)

    def reported(self, job_ids: Sequence[str], metric: str) -> Mapping[str, Sequence[ReportedValue]]:
        """The values of a metric that those jobs reported with a step, in the order of their reports."""
        return tasks.reported(self._connection, job_ids, metric)

    def task_money(self, array: str, *, closed: bool | None = None) -> Mapping[MoneyKind, Balance]:
        """The total hold and spend of the tasks of an array: of all, of closed, or of open ones."""
        return tasks.money(self._connection, [array], closed).get(array, {})

    def money_of_tasks(self, arrays: Sequence[str]) -> Mapping[str, Mapping[MoneyKind, Balance]]:
        """`task_money` of each of those that have any."""
        return tasks.money(self._connection, arrays)

    def posted(self, job_id: str, attempt: int) -> Posted:
        """Posted spend of an attempt, from all entries of its job."""
        return metering.posted(self._connection, job_id, attempt)

    def jobs(
        self,
        *,
        name: str | None = None,
        states: Sequence[str] = (),
        user: str | None = None,
        team: str | None = None,
        limit: int | None = None,
        with_tasks: bool = False,
    ) -> Sequence[JobView]:
        """The jobs that match all arguments, newest first; ``with_tasks``: also tasks of arrays."""
        wanted = {"name": name, "user_name": user, "team": team}
        found = pages.newest(self._connection, wanted, states=states, limit=limit, with_tasks=with_tasks)
        return self._quarantine.views(found)

    def jobs_begun(self, prefix: str, *, limit: int, with_tasks: bool = False) -> Sequence[JobView]:
        """Jobs whose ids begin with that, in the order of their ids; ``with_tasks``: also tasks of arrays."""
        return self._quarantine.views(pages.begun(self._connection, prefix, limit=limit, with_tasks=with_tasks))

    def job_page(self, wanted: WantedJobs, *, after: JobPlace | None, limit: int) -> FoundPage:
        """One page of the jobs that match, newest first."""
        return pages.page(self._connection, wanted, after=after, limit=limit)

    def submitted_before(self, moment: datetime, since: datetime | None = None) -> Iterator[JobView]:
        """Every job submitted from ``since`` (None: no bound) to before ``moment`` (UTC), oldest first, streamed."""
        query = select(*quarantine.COLUMNS).where(JOB.c.submitted_at < to_micros(moment))
        if since is not None:
            query = query.where(JOB.c.submitted_at >= to_micros(since))
        streamed = self._connection.execute(query.order_by(JOB.c.submitted_at), execution_options=_STREAMED)
        for rows in streamed.partitions():
            yield from self._quarantine.views(rows)

    def ended_between(self, since: datetime | None, before: datetime) -> Iterator[JobView]:
        """Every job that ended in a half-open time (UTC; None: no bound), closed or not, oldest end first, streamed."""
        query = select(*quarantine.COLUMNS).select_from(EVENT.join(JOB, JOB.c.id == EVENT.c.job_id))
        query = query.where(ENDED, EVENT.c.at < to_micros(before))
        if since is not None:
            query = query.where(EVENT.c.at >= to_micros(since))
        streamed = self._connection.execute(query.order_by(EVENT.c.at), execution_options=_STREAMED)
        for rows in streamed.partitions():
            yield from self._quarantine.views(rows)

    def snapshot_uses(self) -> Iterator[SnapshotUse]:
        """Every job of the store with a snapshot, also one that this version cannot read; oldest first, streamed."""
        return snapshots.uses(self._connection)

    def trees_since(self, pool: str, since: datetime) -> frozenset[str]:
        """The ids of trees in that pool of snapshots, of jobs that are open or were submitted since then (UTC)."""
        return snapshots.trees_since(self._connection, pool, since)

    def names_in_jobs(self) -> Mapping[str, frozenset[str]]:
        """Every user, team, project and environment named by a job, by these four words."""
        of = JOB.c
        columns = {"user": of.user_name, "team": of.team, "project": of.project, "environment": of.environment}
        return {what: frozenset(filter(None, distinct(self._connection, one))) for what, one in columns.items()}

    def machine_time(
        self, *, since: datetime | None = None, job_ids: Sequence[str] | None = None
    ) -> Sequence[MachineTime]:
        """The machine time of attempts, oldest first: of machines that existed at ``since`` (UTC) or later, or of some
        jobs. Without simulated machines."""
        return list(machine_time.read(self._connection, since=since, job_ids=job_ids))

    def events(self, job_id: str) -> Sequence[Event]:
        """A job's stream, in order, without what was archived of it. Raises `UnreadableJob`."""
        query = select(EVENT).where(EVENT.c.job_id == job_id).order_by(EVENT.c.seq)
        return [event_from_row(row) for row in self._connection.execute(query)]

    def entries(self, job_id: str | None = None) -> Sequence[Entry]:
        """The ledger, or one job's part of it, in posting order."""
        return ledger.read(self._connection, job_id)

    def entries_of(self, job_ids: Sequence[str]) -> Iterator[tuple[str, Sequence[Entry]]]:
        """`entries` of each of those jobs, read for a few hundred jobs at a time."""
        return ledger.read_each(self._connection, job_ids)

    def all_entries(self) -> Iterator[Entry]:
        """The whole ledger in posting order, streamed."""
        return ledger.streamed(self._connection)

    def balance(self, job_id: str) -> Mapping[MoneyKind, Balance]:
        """The balance of a job's entries, by kind of money."""
        return ledger.balance(self._connection, job_id)

    def balances(self, job_ids: Sequence[str]) -> Mapping[str, Mapping[MoneyKind, Balance]]:
        """`balance` of each of those jobs that has entries."""
        return ledger.balances(self._connection, job_ids)

    def spent(self, budget: BudgetSpec, start: datetime, end: datetime) -> Money:
        """The spend that counts under that budget in the half-open time (UTC); entries across an edge count in part."""
        return spent_sums.spent(self._connection, budget, start, end)

    def spent_on_own(self, budget: BudgetSpec, start: datetime, end: datetime) -> Money:
        """The part of `spent` that was for owned and reserved capacity; read entry by entry."""
        return spent_sums.spent_on_own(self._connection, budget, start, end)

    def daily_spending(self, budget: BudgetSpec, since: datetime, until: datetime) -> Sequence[Money]:
        """The spend of attempts under that budget on each whole day between two midnights (UTC), oldest first."""
        return spent_sums.daily(self._connection, budget, since, until)

    def spent_until(self, budget: BudgetSpec) -> datetime:
        """A time (UTC) after which no spend counts under that budget; not necessarily the earliest such time."""
        return spent_sums.spent_until(self._connection, budget)

    def kept_sums(self) -> Mapping[tuple[str, int, int], int]:
        """The stored sums that `spent` uses, for comparison."""
        return spent_sums.kept(self._connection)

    def open_holds(self, budget: BudgetSpec) -> Sequence[OpenHold]:
        """The holds not yet settled or released that count under that budget."""
        return ledger.open_holds(self._connection, budget)

    def held_behind(self, budget: BudgetSpec, job_id: str, since: datetime) -> Sequence[Burn]:
        """The holds under that budget of jobs that wait and had their money set aside after that time (UTC)."""
        return ledger.held_behind(self._connection, budget, job_id, since)

    def held_under(self, prefix: str) -> Sequence[str]:
        """The ids that hold money and begin with ``prefix``, in order."""
        return ledger.held_under(self._connection, prefix)

    def held(self, budget: BudgetSpec, until: datetime) -> Sequence[Burn]:
        """`open_holds`, with those that end by ``until`` (UTC) added up to one."""
        return ledger.held(self._connection, budget, until)

    def charges(self, provider: str | None = None, *, since: datetime | None = None) -> Sequence[Charge]:
        """Every charge, or a provider's, or those that end after ``since`` (UTC); oldest first."""
        return later.charges.read(self._connection, provider, since)

    def standing_grants(self, at: datetime | None = None) -> Sequence[StandingGrant]:
        """Every standing grant, or those valid ``at`` a time (UTC), oldest first, with the spend and holds of the jobs
        that use it."""
        return approvals.standing(self._connection, at)

    def standing_share(self, number: int, job_id: str) -> Money:
        """This job's share of a standing grant's use; zero if it does not use it."""
        return approvals.share(self._connection, number, job_id)

    def asked_about(self, limit: int) -> Sequence[str]:
        """The jobs with approval requests or answers, by their newest one, newest first."""
        return approvals.asked_about(self._connection, limit)

    def approval_events(self, job_ids: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """The events of those jobs that request, give or refuse an approval, in order. Without jobs that have one that
        this version cannot read."""
        found: dict[str, list[Event]] = {}
        left_out = set()
        for row in approvals.approval_events(self._connection, job_ids):
            try:
                found.setdefault(row.job_id, []).append(event_from_row(row))
            except UnreadableJob:
                left_out.add(row.job_id)
        return {job_id: events for job_id, events in found.items() if job_id not in left_out}

    def undecided(self) -> Sequence[JobView]:
        """Every job with a pending approval request, oldest first."""
        views = self._quarantine.views(approvals.maybe_asking(self._connection))
        return [view for view in views if view.asked is not None]

    def purchase(self, id: str) -> Purchase | None:
        """One purchase of capacity; None if the id is unknown."""
        return later.purchases.read(self._connection, id)

    def purchases(self, *, closed: bool = False) -> Sequence[Purchase]:
        """The open purchases, oldest first; with ``closed``, all."""
        none = self._stamp is not None and not self._stamp.owns and not closed
        return [] if none else later.purchases.listed(self._connection, closed=closed)

    def policy_number(self) -> int:
        """The number of the policy version in force; 0 if none was ever activated."""
        return policies.number(self._connection) if self._stamp is None else self._stamp.policy

    def plan_stamp(self) -> PlanStamp:
        """The inputs of plans, in one query; later queries of its parts use it."""
        if self._stamp is None:
            self._stamp = later.plan_stamp.plan_stamp(self._connection)
        return self._stamp

    def holdings(self) -> Sequence[RecordedHolding]:
        """As `Store.holdings`."""
        return [] if self._stamp is not None and not self._stamp.owns else later.holdings.holdings(self._connection)

    def runs(self) -> str | None:
        """The URL on record as the place of run folders; None if there is none."""
        return self.setting("runs") if self._stamp is None else self._stamp.runs

    def active_policy(self) -> PolicyVersion | None:
        """The policy set in force; None if none was ever activated."""
        return policies.active(self._connection)

    def work_on_held(self, since: datetime) -> WorkOnHeld:
        """The work on owned and reserved machines since that time (UTC), for several calls of `in_hand`."""
        return later.in_hand.WorkOnHeld(self._connection, since - later.in_hand.LOOKS_BACK)

    def in_hand(self, now: datetime, work: WorkOnHeld | None = None) -> Mapping[str, CapacityInHand]:
        """Owned and reserved capacity on record at that time (UTC), by accelerator, and its use in the week before."""
        return later.in_hand.in_hand(self._connection, now, work)

    def live_attempts(self) -> Sequence[LiveAttempt]:
        """Every attempt whose machine may still exist, including requested ones."""
        if self._live is None:
            self._live = live.attempts(self._connection, self._quarantine.views)
        return self._live

    def price_series(self, offer: Offer, start: datetime, end: datetime) -> Sequence[tuple[datetime, Money]]:
        """The observed prices of the offer's pool and source: the one in force at ``start``, then each reported up to
        ``end`` (UTC)."""
        return later.market.price_series(self._connection, offer, start, end)

    def offers(self, query: OfferQuery) -> list[Offer]:
        """The current offers that match, including unavailable ones.

        ``query.count`` is the minimum number of accelerators; ``"cpu"`` among the accelerators means machines without
        one. Reference prices superseded by a live one are not current.
        """
        return later.market.offers(self._connection, query)

    def offers_by_price(self, query: OfferQuery, order: OfferOrder = OfferOrder.PRICE) -> Iterator[Offer]:
        """The offers of `offers` with a known price, the cheapest machine or (``GPU_PRICE``) GPU first; read only as
        far as they are taken. In doubt, sold out and stale ones are among them."""
        from broker.store.market.by_price import by_price  # few commands need it

        return by_price(self._connection, query, order)

    def names_in_market(self, what: str) -> Sequence[str]:
        """Every ``provider`` or ``region`` of an offer on record, current or not."""
        return later.market.names(self._connection, what)

    def count_offers(self) -> int:
        """The number of current offers."""
        return later.market.count_offers(self._connection)

    def rejected_in_sql(self, query: OfferQuery, *, simulated: bool = False) -> Mapping[Reason, int]:
        """The number of current offers that `offers` omits, by reason (ignoring ``max_price``)."""
        return later.market.rejected_in_sql(self._connection, query, simulated=simulated)

    def last_polls(self) -> Mapping[str, PollRun]:
        """The newest poll of each provider."""
        return later.polls.last_polls(self._connection)

    def setting(self, key: str) -> str | None:
        """A setting of this store; None if it was never set."""
        return self._connection.scalar(_SETTING, {"key": key})

    def decisions(
        self,
        *,
        job_id: str | None = None,
        action: ActionKind | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[Decision]:
        """The decisions that match all arguments, newest first. ``since``: UTC. Decisions that this version cannot read
        are logged and omitted."""
        return decisions.read(self._connection, job_id=job_id, action=action, since=since, limit=limit)

    def judged_by(self, job_id: str) -> str | None:
        """The version of the policies that last judged the job, not counting judgements of running attempts; None if
        none did. Reads far less than `decisions`."""
        return decisions.judged_by(self._connection, job_id)

    def last_judged(self, job_id: str, attempt: int) -> Judgement | None:
        """The last judgement of that attempt's start, not of the running attempt; None if unknown."""
        return decisions.last_judged(self._connection, job_id, attempt)


def event_from_row(row: Any) -> Event:
    """A row of the table of events, or of the archive. Raises `UnreadableJob`."""
    try:
        body = body_from_json(row.body)
    except UnreadableRecord as error:
        raise UnreadableJob(row.job_id, f"event {row.seq} ({row.kind}): {error}", newer=error.newer) from error
    return Event(row.job_id, row.seq, from_micros(row.at), row.attempt, body)
