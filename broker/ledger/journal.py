"""The store interface of launcher and use cases: jobs as event streams, money as entries, both in one transaction.

`broker.store` implements it. A *write* transaction is serialized with all others of the same store (SQLite: ``BEGIN
IMMEDIATE``; PostgreSQL: one advisory lock), so its reads still hold at commit. Nothing slow happens inside: no network,
no engine, no waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeVar

from broker.core.errors import UnreadableJob
from broker.core.events.events import Event, EventBody
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.market.offers import CapacityType, MoneyKind, Offer, OfferQuery
from broker.core.policy.approvals import StandingGrant
from broker.core.policy.decisions import Decision
from broker.core.policy.policy import ActionKind, Answer, CapacityInHand, LiveAttempt, RentedHours
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.entries import Balance, Entry, Sum
from broker.ledger.meter import Meter

if TYPE_CHECKING:
    from broker.core.purchases.purchases import Purchase


@dataclass(frozen=True, slots=True)
class OpenHold:
    """Money that a job still holds, with the time for which it was judged."""

    job_id: str
    money: MoneyKind
    burn: Burn

    @property
    def held(self) -> Money:
        return self.burn.amount


@dataclass(frozen=True, slots=True)
class Posted:
    """Posted spend of an attempt: machine ``time`` as (from, to, amount), UTC and USD, and ``moved``: egress of data
    and checkpoints.
    """

    time: Sequence[tuple[datetime, datetime, Money]]
    moved: Money


@dataclass(frozen=True, slots=True)
class PaidAttempt:
    """An attempt paid in cash, in USD.

    ``nodes`` machines of the provider existed from ``since`` until ``until`` (UTC), at ``price`` per hour each at the
    placement.

    ``spent``: the total; ``adjusted``: the part that adjusted it to the provider's charge. ``moved``: whether data
    transfer was paid for, too. ``closed``: whether its job is closed.
    """

    job_id: str
    attempt: int
    provider: str
    capacity_type: CapacityType
    since: datetime
    until: datetime
    price: Money
    nodes: int
    closed: bool
    spent: Money
    adjusted: Money
    moved: bool


@dataclass(frozen=True, slots=True)
class Judgement:
    """The record of a decision, to check whether it still applies. ``at`` is UTC."""

    at: datetime
    policy_version: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """The tasks of an array that were started: ``states``: their number by state; ``open``: the number of those not
    closed; ``earlier``: the number of those that an array that this one retries ran."""

    states: Mapping[JobState, int]
    open: int
    earlier: int = 0

    @property
    def started(self) -> int:
        """The number of tasks that this array started; also the turn of the next one."""
        return sum(self.states.values()) - self.earlier


class JournalReader(Protocol):
    """One consistent snapshot of the store. Times are UTC, amounts USD."""

    @property
    def unreadable(self) -> Sequence[UnreadableJob]:
        """The jobs that this snapshot has met so far and that this version cannot read. Lists omit them."""

    def job(self, job_id: str) -> JobView | None:
        """The projection of one job. Raises `UnreadableJob`."""

    def unclosed(self) -> Sequence[JobView]:
        """Every job that is not closed, oldest first: the reconciler's work list."""

    def last_events(self, job_ids: Sequence[str] | None = None) -> Mapping[str, int]:
        """The number of the last event of each job that is not closed, or of those among ``job_ids``; oldest job
        first."""

    def views(self, job_ids: Sequence[str]) -> Sequence[JobView]:
        """The projections of those jobs, in any order, without those of unreadable jobs."""

    def open_balances(self) -> Mapping[str, Mapping[MoneyKind, Balance]]:
        """`balance` of each job that is not closed and has entries."""

    def sums(self, job_ids: Sequence[str]) -> Mapping[str, Sequence[Sum]]:
        """The entries of those jobs, summed by attempt, movement, account and kind of money. The sums are stored, so
        reading takes the same time for a job of a month as for a new one. Jobs without entries are left out.
        """

    def meters(self, job_ids: Sequence[str]) -> Mapping[str, Mapping[int, Meter]]:
        """How far the machine time of those jobs' attempts is settled, by job and attempt. Attempts that were not
        settled since their meter was dropped (`Store.rebuild`) have none."""

    def posted(self, job_id: str, attempt: int) -> Posted:
        """Posted spend of an attempt. Reads all entries of the job: only for attempts without a usable meter."""

    def events(self, job_id: str) -> Sequence[Event]:
        """A job's stream, in order. Raises `UnreadableJob`."""

    def approval_events(self, job_ids: Sequence[str]) -> Mapping[str, Sequence[Event]]:
        """The events of those jobs that request, give or refuse an approval, in order. Jobs without any are omitted,
        and so are jobs with one that this version cannot read.
        """

    def entries(self, job_id: str | None = None) -> Sequence[Entry]:
        """The ledger, or one job's part of it, in posting order."""

    def balance(self, job_id: str) -> Mapping[MoneyKind, Balance]:
        """A job's balance by kind of money."""

    def balances(self, job_ids: Sequence[str]) -> Mapping[str, Mapping[MoneyKind, Balance]]:
        """`balance` of each of those jobs that has entries."""

    def spent(self, budget: BudgetSpec, start: datetime, end: datetime) -> Money:
        """The spend that counts under that budget in the half-open time, entries across an edge pro rata."""

    def daily_spending(self, budget: BudgetSpec, since: datetime, until: datetime) -> Sequence[Money]:
        """The spend of attempts under that budget on each whole day between two midnights (UTC), oldest first. Without
        planned spend: purchases, and entries over more than a day, such as commitments."""

    def spent_until(self, budget: BudgetSpec) -> datetime:
        """A time (UTC) after which no spend counts under that budget; not necessarily the earliest such time."""

    def open_holds(self, budget: BudgetSpec) -> Sequence[OpenHold]:
        """The holds not yet settled or released that count under that budget."""

    def holds_behind(self, budget: BudgetSpec, job_id: str, submitted_at: datetime, until: datetime) -> Sequence[Burn]:
        """The part of `held` of jobs that never cost anything, have no machines and were submitted after
        ``submitted_at`` (UTC; at that moment: by id)."""

    def held(self, budget: BudgetSpec, until: datetime) -> Sequence[Burn]:
        """`open_holds` for calculation: one sum for all that end by ``until``, the others singly. The sum takes
        constant time."""

    def standing_grants(self, at: datetime | None = None) -> Sequence[StandingGrant]:
        """Every standing grant, or those valid ``at`` a time (UTC), oldest first, with the spend and holds of the jobs
        that use it.
        """

    def standing_share(self, number: int, job_id: str | None, array: str | None = None) -> Money:
        """The share of a standing grant's use that a job may have: its own, of an array that of its tasks, and what the
        tasks of its ``array`` may still cost; zero if it does not use the grant."""

    def last_judged(self, job_id: str, attempt: int) -> Judgement | None:
        """The last judgment of that attempt's start: time, policies, answer; None if unknown. Judgments of running
        jobs are left out.
        """

    def decisions(
        self,
        *,
        job_id: str | None = None,
        action: ActionKind | None = None,
        since: datetime | None = None,
        limit: int | None = None,
    ) -> Sequence[Decision]:
        """The recorded decisions that match all arguments, newest first. ``since``: UTC."""

    def undecided(self) -> Sequence[JobView]:
        """Every job with a pending approval request, oldest first."""

    def task_counts(self, array: str) -> TaskCounts:
        """The number of tasks of an array by state."""

    def open_tasks(self, array: str) -> Sequence[JobView]:
        """The tasks of an array that are not closed, in any order."""

    def task_money(self, array: str, *, closed: bool | None = None) -> Mapping[MoneyKind, Balance]:
        """What the tasks of an array hold and have spent together, or those that are closed, or those that are not."""

    def in_hand(self, now: datetime) -> Mapping[str, CapacityInHand]:
        """By accelerator, the recorded owned and reserved capacity, and its use in the 7 days before ``now`` (UTC)."""

    def rented_hours(self, since: datetime, until: datetime) -> Sequence[RentedHours]:
        """The GPU-hours on spot and on-demand machines within that time (UTC) of jobs whose files allow spot."""

    def live_attempts(self) -> Sequence[LiveAttempt]:
        """Every attempt whose machine may still exist, including requested ones and, as far as known, those of
        unreadable jobs.
        """

    def price_series(self, offer: Offer, start: datetime, end: datetime) -> Sequence[tuple[datetime, Money]]:
        """The prices observed for the offer's pool and source, ascending: the one in force at ``start``, then each
        reported up to ``end``, repeated prices included. Empty if none is known. A later report has a later date than
        all before.
        """

    def offers(self, query: OfferQuery) -> Sequence[Offer]:
        """The current offers that match, including unavailable ones."""

    def purchase(self, id: str) -> Purchase | None:
        """One purchase of capacity; None if the id is unknown."""


DatedBody = tuple[datetime, int | None, EventBody]
"""An event to append: its time (UTC), the number of its attempt or None, and its body."""


class JournalWriter(JournalReader, Protocol):
    """A transaction. Leaving it without an exception commits; any exception rolls all of it back."""

    def append(self, job_id: str, items: Sequence[tuple[int | None, EventBody]], at: datetime) -> JobView:
        """Append events (attempt number or None, body) to a job's stream, fold them, store and return the new view.

        Raises `ImpossibleSequence`, which rolls back the transaction.
        """

    def append_each(self, news: Sequence[tuple[JobView, Sequence[DatedBody]]]) -> Sequence[JobView]:
        """`append` to several jobs, with one statement per table. ``news``: each job once, with its current view in
        this transaction (to be checked with `last_events`). Returns the new views in that order."""

    def at_once(self) -> AbstractContextManager[None]:
        """Within the block only the first records of new jobs may be written. They are written together at its end;
        before that, `held`, `spent` and `live_attempts` already include them. If a record exists already, the end of
        the block raises `StoreProblem`, instead of `append` or `post`."""

    def post(self, entries: Sequence[Entry]) -> None:
        """Post ledger entries. Raises ValueError for a movement id that exists already."""

    def keep_meters(self, meters: Mapping[str, Mapping[int, Meter]]) -> None:
        """Store meters by job and number of the attempt; replaces earlier ones."""

    def record(self, decision: Decision) -> None:
        """Store a decision."""

    def use_standing(self, number: int, job_id: str, total: Money = Money.ZERO) -> None:
        """Count the job's holds and spend against a standing grant from now on; of an array, all ``total`` of its tasks
        while it is open. Idempotent."""


class Journal(Protocol):
    """The part of the store that has jobs and money."""

    def reading(self) -> AbstractContextManager[JournalReader]:
        """A consistent snapshot; changes nothing. Raises `StoreProblem`."""

    def asking(self) -> AbstractContextManager[JournalReader]:
        """As `reading`, for a single query: faster, but two queries may see different states of the store. Raises
        `StoreProblem`."""

    def writing(self) -> AbstractContextManager[JournalWriter]:
        """A serialized transaction. Raises `StoreProblem` if the store is locked too long, full or read-only."""


class StaleJobView(Exception):
    """A job has changed since the view on which a decision is based: read it again and decide again."""


W = TypeVar("W", bound=JournalWriter, covariant=True)


class _OpensWriter(Protocol[W]):
    def writing(self) -> AbstractContextManager[W]: ...


@contextmanager
def writing_if(journal: _OpensWriter[W], view: JobView) -> Iterator[W]:
    """A transaction of ``journal`` in which ``view`` is the job's current view. Raises `StaleJobView` if it is not,
    and what `Journal.writing` raises."""
    with journal.writing() as tx:
        current = tx.job(view.id)
        if current is None or current.seq != view.seq:
            raise StaleJobView(f"job {view.id} has changed since event {view.seq}")
        yield tx


def append_if(journal: Journal, view: JobView, items: Sequence[tuple[int | None, EventBody]], at: datetime) -> JobView:
    """Append events to a job if ``view`` is its current view; returns the new one. Raises as `writing_if` and
    `Writing.append`."""
    with writing_if(journal, view) as tx:
        return tx.append(view.id, items, at)
