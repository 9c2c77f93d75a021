"""What is free of machines of our own that several jobs use side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from broker.core.market.offers import Offer
from broker.core.market.shares import MachineShare
from broker.core.policy.policy import LiveAttempt
from broker.reconciler.admission.admission import with_occupancy


@dataclass(frozen=True, slots=True)
class MachineUse:
    """One machine: what it ``has``, what is ``free`` of that now, and how many ``jobs`` of this store have a part."""

    name: str
    has: MachineShare
    free: MachineShare
    jobs: int


def machine_use(offers: Iterable[Offer], live: Iterable[LiveAttempt]) -> tuple[MachineUse, ...]:
    """By name, of all machines that the offers divide. ``live``: our own attempts."""
    attempts = list(live)
    of: dict[str, list[Offer]] = {}
    for offer in with_occupancy((one for one in offers if one.divided), attempts):
        of.setdefault(offer.capacity, []).append(offer)
    return tuple(
        MachineUse(
            name,
            has := reduce(MachineShare.most, (one.has for one in found)),
            reduce(MachineShare.most, ((one.left or one.has).at_most(has) for one in found)),
            sum(one.capacity == name for one in attempts),
        )
        for name, found in sorted(of.items())
    )
