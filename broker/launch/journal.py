"""What the launcher and the use cases need of a store: jobs as event streams, money as entries, both in one
transaction.

`broker.store` implements it. A *write* transaction is serialised with every other one of the same store (SQLite:
``BEGIN IMMEDIATE``; PostgreSQL: one advisory lock), so what was read in it still holds when it commits. Nothing slow
happens inside: no network, no engine, no waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from broker.core.approvals import StandingGrant
from broker.core.decisions import Decision
from broker.core.events import Event, EventBody
from broker.core.money import Money
from broker.core.offers import MoneyKind, Offer
from broker.core.policy import LiveAttempt
from broker.core.ports import BudgetSpec
from broker.core.views import JobView
from broker.ledger.entries import Balance, Entry


@dataclass(frozen=True, slots=True)
class OpenHold:
    """Money a job still holds, and until when it was meant to last (UTC)."""

    job_id: str
    money: MoneyKind
    held: Money
    covers_to: datetime


@dataclass(frozen=True, slots=True)
class HeldMoney:
    """Money that several jobs hold, or one, and until when it was meant to last (UTC)."""

    held: Money
    covers_to: datetime


class Reading(Protocol):
    """One consistent look at the store."""

    def job(self, job_id: str) -> JobView | None:
        """The projection of one job."""
        ...

    def unclosed(self) -> Sequence[JobView]:
        """Every job that is not closed, oldest first: the reconciler's work list."""
        ...

    def last_events(self, job_ids: Sequence[str] | None = None) -> Mapping[str, int]:
        """The number of the last event of each job that is not closed (or of those jobs, but for closed ones), oldest
        job first."""
        ...

    def views(self, job_ids: Sequence[str]) -> Sequence[JobView]:
        """The projections of those jobs, in any order."""
        ...

    def open_balances(self) -> Mapping[str, Mapping[MoneyKind, Balance]]:
        """`balance` of each job that is not closed and has entries."""
        ...

    def sums(self, job_ids: Sequence[str]) -> Mapping[str, Sequence[Entry]]:
        """The entries of those jobs, added up by attempt, movement, account and kind of money: what they come to is the
        same, how many there were is not told."""
        ...

    def events(self, job_id: str) -> Sequence[Event]:
        """A job's stream, in order."""
        ...

    def entries(self, job_id: str | None = None) -> Sequence[Entry]:
        """The ledger, or one job's part of it, in posting order."""
        ...

    def balance(self, job_id: str) -> Mapping[MoneyKind, Balance]:
        """What a job's entries come to, by kind of money."""
        ...

    def spent(self, budget: BudgetSpec, start: datetime, end: datetime) -> Money:
        """What counts as spent under that budget for the half-open time, entries that straddle an edge pro rata."""
        ...

    def open_holds(self, budget: BudgetSpec) -> Sequence[OpenHold]:
        """The holds not yet settled or released that count under that budget."""
        ...

    def held(self, budget: BudgetSpec, until: datetime) -> Sequence[HeldMoney]:
        """What those holds come to: in one sum what is meant to last no longer than ``until``, the others one by one.
        However many jobs there are, it takes no longer for those in the sum."""
        ...

    def standing_grants(self) -> Sequence[StandingGrant]:
        """Every standing grant, oldest first, with what the jobs that use it have spent and hold."""
        ...

    def standing_share(self, number: int, job_id: str) -> Money:
        """What of a standing grant's use is this job's; zero for one that does not use it."""
        ...

    def undecided(self) -> Sequence[JobView]:
        """Every job about which something was asked that nobody has answered yet, the oldest job first."""
        ...

    def live_attempts(self) -> Sequence[LiveAttempt]:
        """Every attempt whose machine may still exist, requested ones included."""
        ...

    def price_series(self, offer: Offer, start: datetime, end: datetime) -> Sequence[tuple[datetime, Money]]:
        """The prices observed for the offer's pool and source, ascending: the one in force at ``start`` first, then
        each change up to ``end``. Empty when none is known."""
        ...


class Writing(Reading, Protocol):
    """A transaction. Leaving it without an exception commits; any exception rolls all of it back."""

    def append(self, job_id: str, items: Sequence[tuple[int | None, EventBody]], at: datetime) -> JobView:
        """Append events (attempt number or None, body) to a job's stream, fold them, store and return the new view.

        Raises `ImpossibleSequence`; then nothing of the transaction is kept.
        """
        ...

    def post(self, entries: Sequence[Entry]) -> None:
        """Post ledger entries. A movement id that exists already is refused with ValueError."""
        ...

    def record(self, decision: Decision) -> None:
        """Keep a decision."""
        ...

    def use_standing(self, number: int, job_id: str) -> None:
        """Count what the job holds and spends against a standing grant from now on. Twice is once."""
        ...


class Journal(Protocol):
    """The store, as far as launching is concerned."""

    def reading(self) -> AbstractContextManager[Reading]:
        """A consistent look; changes nothing."""
        ...

    def writing(self) -> AbstractContextManager[Writing]:
        """A serialised transaction. Raises `StoreProblem` when the store is locked too long, full or read-only."""
        ...
