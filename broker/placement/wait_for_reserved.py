"""Whether a job should wait for prepaid capacity instead of renting now. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import sub
from typing import Any

from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import BOUGHT, MoneyKind
from broker.core.market.shares import MachineShare
from broker.core.values.figures import estimate
from broker.core.values.money import Money


@dataclass(frozen=True, slots=True)
class Occupant:
    """Machines of a pool, or a part of a divided machine, that one of our jobs occupies, and its expected end (UTC;
    None if unknown)."""

    pool: str
    amount: int | MachineShare
    until: datetime | None


@dataclass(frozen=True, slots=True)
class WaitForReserved:
    """Wait until then (UTC) for ``placement``, instead of ``burst`` now. ``saves``: USD in total, or per useful hour if
    the work is unknown. ``why``: for the plan and the job's events.
    """

    until: datetime
    placement: Placement
    burst: Placement
    saves: Money
    why: str


def find_reserved_wait(
    free: Plan,
    unoccupied: Plan,
    occupants: Iterable[Occupant],
    *,
    now: datetime,
    since: datetime,
    longest: timedelta,
) -> WaitForReserved | None:
    """The wait if it saves money; None to place the job by the plan ``free``.

    ``free`` covers free machines, ``unoccupied`` the same machines as if unused. The job waits only if its best
    placement would be rented, no prepaid one is free, enough prepaid machines should become free within ``longest`` of
    ``since`` (start of the wait), the deadline still holds from then, and the wait saves cash. A job past its expected
    end is not assumed to end soon.
    """
    burst = free.placements[0] if free.placements else None
    if burst is None or any(p.offer.capacity_type in BOUGHT for p in free.placements):
        return None
    busy = list(occupants)
    for placement in unoccupied.placements:
        if placement.offer.capacity_type not in BOUGHT:
            continue
        until = _free_at(placement, busy, now)
        if until is None or until - since > longest:
            continue
        finish = None if placement.duration is None else until + placement.duration
        if free.deadline is not None and (finish is None or finish > free.deadline):
            continue
        saves = _cash(burst) - _cash(placement)
        if saves > Money.ZERO:
            return WaitForReserved(until, placement, burst, saves, _explanation(placement, burst, until, saves))
    return None


def _free_at(placement: Placement, occupants: Iterable[Occupant], now: datetime) -> datetime | None:
    """When enough machines of the placement's pool are expected to be free (UTC); None if unknown."""
    offer = placement.offer
    same_pool = [entry for entry in occupants if entry.pool == offer.capacity]
    if offer.slots is None or not same_pool:
        return None
    total: Any = offer.slots if offer.whole is None else offer.whole
    needed: Any = placement.nodes if offer.whole is None else offer.has
    free = reduce(sub, (entry.amount for entry in same_pool), total)
    releases = [(entry.until, entry.amount) for entry in same_pool if entry.until is not None and entry.until > now]
    for until, amount in sorted(releases, key=lambda entry: entry[0]):
        free = free + amount
        if free >= needed:
            return until
    return None


def _cash(placement: Placement) -> Money:
    """The expected cost of a placement that is not prepaid; prepaid capacity costs nothing more."""
    return Money.ZERO if placement.money is MoneyKind.AMORTISED else placement.expected_cost


def _explanation(placement: Placement, burst: Placement, until: datetime, saves: Money) -> str:
    unit = "" if burst.duration is not None else " an hour"
    return (
        f"waits for {placement.offer.instance_type} ({placement.offer.capacity_type.value}), expected to be free at"
        f" {until:%Y-%m-%d %H:%M} UTC: that saves {estimate(saves)}{unit} on {burst.offer.provider}"
    )
