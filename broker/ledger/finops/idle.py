"""The cost of owned and reserved capacity in hours without use. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.core.market.accelerators import card_share
from broker.core.market.offers import CapacityType
from broker.core.values.money import Money, in_microseconds
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.ledger.finops.change import Month

_MILLI = timedelta(milliseconds=1)
# A commitment is a discount, not capacity, so it cannot be idle.
_CAPACITY_TYPES = {HoldingKind.OWNED: CapacityType.OWNED, HoldingKind.RESERVATION: CapacityType.RESERVED}


@dataclass(frozen=True, slots=True)
class IdleCapacity:
    """Held accelerators of a kind. Times are accelerator milliseconds. ``paid``: USD for the whole held time, with
    prepayments spread evenly over the term; ``cost``: its part for the idle time."""

    accelerator: str
    kind: CapacityType
    held_time: int
    idle_time: int
    paid: Money
    cost: Money


def idle_in(holdings: Iterable[Holding], used: Month, start: datetime, end: datetime) -> list[IdleCapacity]:
    """Idle capacity from ``start`` until before ``end`` (UTC), by accelerator and kind, with what of cut cards is in no
    slice. None is idle if use exceeds the held capacity."""
    held: dict[tuple[str, CapacityType], tuple[int, Money]] = {}
    for holding in holdings:
        first, last = max(start, holding.starts), min(end, holding.ends)
        if holding.kind not in _CAPACITY_TYPES or first >= last:
            continue
        key = holding.accelerator, _CAPACITY_TYPES[holding.kind]
        time, paid = held.get(key, (0, Money.ZERO))
        held[key] = time + (last - first) // _MILLI * holding.gpus, paid + paid_for(holding, last - first)
    capacities = []
    for (accelerator, kind), (time, paid) in sorted(held.items()):
        time_used = sum(
            cell_use.time
            for cell, cell_use in used.items()
            if (card_share(cell.accelerator)[0], cell.capacity_type) == (accelerator, kind)
        )
        idle = max(time - time_used, 0)
        capacities.append(
            IdleCapacity(accelerator, kind, time, idle, paid, paid.share(idle, time) if time else Money.ZERO)
        )
    return capacities


def paid_for(holding: Holding, time: timedelta) -> Money:
    """The cost (USD) of that much of its time."""
    term = holding.ends - holding.starts
    return holding.upfront.share(in_microseconds(time), in_microseconds(term)) + holding.hourly.for_duration(time)
