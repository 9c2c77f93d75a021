"""Placements and plans, as the planner makes them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.job.reasons import Reason, Rejection
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.market.shares import MachineShare
from broker.core.values.money import Money


class TransferKind(StrEnum):
    """The kinds of transferred data: data and restored checkpoints to the machines, checkpoints from them."""

    DATA = "data"
    CHECKPOINT = "checkpoint"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class CostTerm:
    """One line of an expected cost in USD, signed, with its derivation ("2.1 h × $3.06").

    ``per_start``: its part per start of the job's machines; None if one start may cost all of it. ``moves``: what is
    moved, for egress.
    """

    name: str
    amount: Money
    how: str = ""
    per_start: Money | None = None
    moves: TransferKind | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """One offer chosen for one job, with its expectations.

    ``rate``: USD per hour for all nodes at the current price. ``duration``: expected time from launch to finish, None
    if the work is unknown. ``finish``: its expected time. ``expected_cost``: the sum of ``terms``; for unknown work,
    one hour and one start's data. ``surcharge`` affects the ranking, not the money. ``useful_fraction``: the η of the
    effective price: the part of billed time that becomes progress. ``kg_co2e_per_hour``: emissions of all nodes per
    hour; None if unknown or not requested.
    """

    offer: Offer
    nodes: int
    rate: Money
    expected_cost: Money
    terms: tuple[CostTerm, ...]
    duration: timedelta | None
    finish: datetime | None
    useful_fraction: float
    throughput: float
    interruptions_per_hour: float
    surcharge: Money = Money.ZERO
    kg_co2e_per_hour: float | None = None

    @property
    def kg_co2e(self) -> float | None:
        """Expected emissions of the job there; None if they or the duration are unknown."""
        if self.kg_co2e_per_hour is None or self.duration is None:
            return None
        return self.kg_co2e_per_hour * (self.duration / timedelta(hours=1))

    @property
    def egress(self) -> Money:
        """The expected cost of moving data and checkpoints (USD)."""
        return sum((term.amount for term in self.terms if term.moves is not None), Money.ZERO)

    @property
    def money(self) -> MoneyKind:
        return self.offer.money

    @property
    def gpus(self) -> int:
        return self.offer.count * self.nodes

    @property
    def amount(self) -> int | MachineShare:
        """What it occupies of its offer's capacity: machines, or the part of a divided one."""
        return self.offer.has if self.offer.whole is not None or self.offer.divided else self.nodes


@dataclass(frozen=True, slots=True)
class Plan:
    """Ranked placements (best first) and every rejection. A plan is optimistic; only the hold is binding.

    ``remaining``: useful work left on the job's reference machine, None when unknown. ``offers_seen`` = placements +
    rejections. ``notes``: what a person should know before the job starts, most important first; ``remarks``: what
    explains the figures.
    """

    made_at: datetime
    placements: tuple[Placement, ...]
    rejections: tuple[Rejection, ...]
    offers_seen: int
    remaining: timedelta | None
    deadline: datetime | None
    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def best(self) -> Placement | None:
        return self.placements[0] if self.placements else None

    def cheapest(self, capacity_type: CapacityType) -> Placement | None:
        """The placement of that capacity type with the least expected cost."""
        of_type = [p for p in self.placements if p.offer.capacity_type is capacity_type]
        return min(of_type, key=lambda p: p.expected_cost, default=None)

    def reasons(self) -> frozenset[Reason]:
        return frozenset(rejection.reason for rejection in self.rejections)
