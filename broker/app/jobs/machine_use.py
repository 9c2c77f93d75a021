"""Free CPUs, memory and GPUs of owned machines that several jobs share."""

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
    """One machine: what it ``has``, how much of that is ``free`` now, and how many ``jobs`` of this store use it."""

    name: str
    has: MachineShare
    free: MachineShare
    jobs: int


def machine_use(offers: Iterable[Offer], live: Iterable[LiveAttempt]) -> tuple[MachineUse, ...]:
    """The use of all shared machines among the offers, by name. ``live``: the attempts of this store."""
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
