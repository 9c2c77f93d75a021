"""Whether a job had better wait for capacity that is paid for already than burst at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.placement.formats import about

PAID = (CapacityType.OWNED, CapacityType.RESERVED)


@dataclass(frozen=True, slots=True)
class Occupant:
    """Machines of a pool that a job of ours occupies, and when it is expected to be done (UTC; None: nobody knows)."""

    pool: str
    nodes: int
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Wait until then (UTC) for ``placement``, instead of ``burst`` now. ``saves``: USD in all, or a useful hour where
    nobody knows how much work there is. ``why``: for the plan and the job's story."""

    until: datetime
    placement: Placement
    burst: Placement
    saves: Money
    why: str


def worth_waiting(
    free: Plan,
    unoccupied: Plan,
    occupants: Iterable[Occupant],
    *,
    now: datetime,
    since: datetime,
    longest: timedelta,
) -> Waiting | None:
    """The wait, where one is worth it; None where the job should be placed by the plan ``free``.

    ``free`` is over what is free now, ``unoccupied`` over the same machines as if nobody used them. It waits only
    where its best placement would be rented, no paid one is free, enough paid machines are expected to be, no later
    than ``longest`` after ``since`` (when it began to wait), its deadline still holds from then on, and it saves cash.
    Who is past the time expected of them is not about to be done.
    """
    burst = free.placements[0] if free.placements else None
    if burst is None or any(p.offer.capacity_type in PAID for p in free.placements):
        return None
    busy = list(occupants)
    for placement in unoccupied.placements:
        if placement.offer.capacity_type not in PAID:
            continue
        until = _free_at(placement, busy, now)
        if until is None or until - since > longest:
            continue
        finish = None if placement.duration is None else until + placement.duration
        if free.deadline is not None and (finish is None or finish > free.deadline):
            continue
        saves = _cash(burst) - _cash(placement)
        if saves > Money.ZERO:
            return Waiting(until, placement, burst, saves, _why(placement, burst, until, saves))
    return None


def _free_at(placement: Placement, occupants: Iterable[Occupant], now: datetime) -> datetime | None:
    """When enough machines of its pool are expected to be free."""
    slots = placement.offer.slots
    mine = [one for one in occupants if one.pool == placement.offer.pool]
    if slots is None or not mine:
        return None
    missing = placement.nodes - (slots - sum(one.nodes for one in mine))
    known = sorted((one.until, one.nodes) for one in mine if one.until is not None and one.until > now)
    for until, nodes in known:
        missing -= nodes
        if missing <= 0:
            return until
    return None


def _cash(placement: Placement) -> Money:
    """What it costs beside what is paid for already."""
    return Money.ZERO if placement.money is MoneyKind.AMORTISED else placement.expected_cost


def _why(placement: Placement, burst: Placement, until: datetime, saves: Money) -> str:
    unit = "" if burst.duration is not None else " an hour"
    return (
        f"waits for {placement.offer.instance_type} ({placement.offer.capacity_type.value}), expected to be free at"
        f" {until:%Y-%m-%d %H:%M} UTC: that saves {about(saves)}{unit} on {burst.offer.provider}"
    )
