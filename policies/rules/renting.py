"""Limits renting GPUs in addition to held ones: by the use of the held ones, the length of the job, and the price at
which holding would pay."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel

from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.policy.approvals import lasts
from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, CapacityInHand, Facts, Verdict
from broker.core.values.money import Money
from policies.bound_rule import BoundRule, allow, deny, length
from policies.fields import HoldOrRent
from policies.rules.concurrency import starts

_RENTED = (CapacityType.SPOT, CapacityType.ON_DEMAND)


class RentingThresholds(HoldOrRent):
    """The conditions under which a job may rent GPUs, on demand or spot. ``utilisation``: if the held ones of that
    kind, owned or reserved, were used for this share of the last 7 days. ``horizon``: for at most this time; longer
    jobs belong on held capacity. ``break_even``: not at a price at which holding a GPU, at the cost of the held ones,
    pays from this share of the hours or less. Without capacity on record as held, only ``horizon`` applies.
    """


class Renting(BoundRule[RentingThresholds]):
    """Denies a start on rented GPUs outside these conditions. Running jobs continue."""

    kind: ClassVar[str] = "renting"
    Config: ClassVar[type[BaseModel]] = RentingThresholds

    @property
    def needs_holdings(self) -> bool:
        """Whether callers must provide the capacity that is held (`Facts.in_hand`)."""
        return self.config.utilisation is not None or self.config.break_even is not None

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        placed = action.placement
        if placed is None or not starts(action) or action.in_place:
            return allow(self, "starts_none", "applies to starts")
        offer = placed.offer
        if offer.capacity_type not in _RENTED or offer.accelerator is None or offer.money is MoneyKind.SANDBOX:
            return allow(self, "not_rented", "rents no GPU")
        held = facts.in_hand.get(offer.accelerator)
        return (
            self._by_use(offer.accelerator, held)
            or self._by_price(offer, held)
            or self._by_time(action)
            or allow(self, "may_rent", f"renting {offer.accelerator} is within the thresholds")
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        found = seen(action, Aspect.CAPACITY_TYPE, Aspect.ACCELERATOR)
        name = action.placement.offer.accelerator if action.placement else None
        held = facts.in_hand.get(name) if name else None
        if self.config.utilisation is not None:
            found += (Fact(aspect=Aspect.HELD_USE, value=None if held is None else 100 * held.used),)
        if self.config.break_even is not None:
            found += seen(action, Aspect.PRICE_PER_GPU)
        return found

    def _by_use(self, name: str, held: CapacityInHand | None) -> Verdict | None:
        least = self.config.utilisation
        if least is None or held is None or 100 * held.used >= least:
            return None
        return deny(
            self,
            "held_capacity_unused",
            f"the {held.gpus} held {name} were used {100 * held.used:.1f}% of the last 7 days; renting starts at"
            f" {least:g}%; use those: `constraints: {{capacity_types: [owned, reserved]}}`",
            held=held.gpus,
            used_percent=f"{100 * held.used:.1f}",
            utilisation_percent=f"{least:g}",
        )

    def _by_price(self, offer: Offer, held: CapacityInHand | None) -> Verdict | None:
        most, price = self.config.break_even, offer.price_per_gpu
        if most is None or held is None or not price or not held.per_gpu_hour:
            return None
        pays_from = 100 * held.per_gpu_hour.micros / price.micros
        if pays_from > most:
            return None
        below = Money(int(held.per_gpu_hour.micros * 100 / most))
        return deny(
            self,
            "holding_pays",
            f"at {price} per GPU-hour, holding {offer.accelerator} at {held.per_gpu_hour} pays from {pays_from:.1f}% of"
            f" the hours on; renting is denied where that is {most:g}% or less: the price must be below {below}",
            price=price,
            below=below,
            held_price=held.per_gpu_hour,
            pays_from_percent=f"{pays_from:.1f}",
            break_even_percent=f"{most:g}",
        )

    def _by_time(self, action: Action) -> Verdict | None:
        most = self.config.horizon
        longest = lasts(action) or action.job.max_duration
        if most is None or longest is None or longest <= most:
            return None
        return deny(
            self,
            "beyond_horizon",
            f"the job may run for {length(longest)}, and GPUs are rented for at most {length(most)}; set a lower"
            " max_duration in the job file, or hold capacity: `gpubroker capacity plan`",
            duration=length(longest),
            horizon=length(most),
        )
