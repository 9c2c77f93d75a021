"""What the facts of the rules are read from: a part of `broker.ledger.journal.Reading`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from broker.core.events.events import Event
from broker.core.events.views import JobView
from broker.core.policy.approvals import StandingGrant
from broker.core.policy.policy import CapacityInHand, LiveAttempt
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.ledger.journal import OpenHold


class FactsReading(Protocol):
    """Each method as `broker.ledger.journal.Reading` describes it: the store answers for real jobs, and
    `broker.whatif.ledger` for simulated ones."""

    def job(self, job_id: str) -> JobView | None: ...

    def events(self, job_id: str) -> Sequence[Event]: ...

    def spent(self, budget: BudgetSpec, start: datetime, end: datetime) -> Money: ...

    def spent_until(self, budget: BudgetSpec) -> datetime: ...

    def open_holds(self, budget: BudgetSpec) -> Sequence[OpenHold]: ...

    def held(self, budget: BudgetSpec, until: datetime) -> Sequence[Burn]: ...

    def standing_grants(self, at: datetime | None = None) -> Sequence[StandingGrant]: ...

    def standing_share(self, number: int, job_id: str) -> Money: ...

    def undecided(self) -> Sequence[JobView]: ...

    def in_hand(self, now: datetime) -> Mapping[str, CapacityInHand]: ...

    def live_attempts(self) -> Sequence[LiveAttempt]: ...
