"""Limits renting GPUs in addition to held ones: by the use of the held ones, the length of the job, and the price at
which holding would pay."""

from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.policy.approvals import max_run_time
from broker.core.policy.coverage import read_facts
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, CapacityInHand, Facts, Verdict
from broker.core.values.money import Money
from policies.bound_rule import BoundRule, allow, deny, duration_text, guardrail
from policies.fields import HoldOrRent
from policies.rules.concurrency import starts_attempt

_RENTED = (CapacityType.SPOT, CapacityType.ON_DEMAND)


class RentingThresholds(HoldOrRent):
    """The conditions under which a job may rent GPUs, on demand or spot. ``utilisation``: if the held ones of that
    kind, owned or reserved, were used for this share of the last 7 days. ``horizon``: for at most this time; longer
    jobs belong on held capacity. ``break_even``: not at a price at which holding a GPU, at the cost of the held ones,
    pays from this share of the hours or less. Without capacity on record as held, only ``horizon`` applies.
    """


@guardrail("renting")
class Renting(BoundRule[RentingThresholds]):
    """Denies a start on rented GPUs outside these conditions. Running jobs continue."""

    @property
    def needs_holdings(self) -> bool:
        """Whether callers must provide the capacity that is held (`Facts.in_hand`)."""
        return self.config.utilisation is not None or self.config.break_even is not None

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        placement = action.placement
        if placement is None or not starts_attempt(action) or action.in_place:
            return allow(self, "starts_none", "applies to starts")
        offer = placement.offer
        if offer.capacity_type not in _RENTED or offer.accelerator is None or offer.money is MoneyKind.SANDBOX:
            return allow(self, "not_rented", "rents no GPU")
        capacity = facts.in_hand.get(offer.accelerator)
        return (
            self._by_use(offer.accelerator, capacity)
            or self._by_price(offer, capacity)
            or self._by_time(action)
            or allow(self, "may_rent", f"renting {offer.accelerator} is within the thresholds")
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        aspects = read_facts(action, Aspect.CAPACITY_TYPE, Aspect.ACCELERATOR)
        name = action.placement.offer.accelerator if action.placement else None
        capacity = facts.in_hand.get(name) if name else None
        if self.config.utilisation is not None:
            aspects += (Fact(aspect=Aspect.HELD_USE, value=None if capacity is None else 100 * capacity.used),)
        if self.config.break_even is not None:
            aspects += read_facts(action, Aspect.PRICE_PER_GPU)
        return aspects

    def _by_use(self, name: str, capacity: CapacityInHand | None) -> Verdict | None:
        minimum = self.config.utilisation
        if minimum is None or capacity is None or 100 * capacity.used >= minimum:
            return None
        return deny(
            self,
            "held_capacity_unused",
            f"the {capacity.gpus} held {name} were used {100 * capacity.used:.1f}% of the last 7 days; renting "
            "starts at"
            f" {minimum:g}%; use those: `constraints: {{capacity_types: [owned, reserved]}}`",
            held=capacity.gpus,
            used_percent=f"{100 * capacity.used:.1f}",
            utilisation_percent=f"{minimum:g}",
        )

    def _by_price(self, offer: Offer, capacity: CapacityInHand | None) -> Verdict | None:
        maximum, price = self.config.break_even, offer.price_per_gpu
        if maximum is None or capacity is None or not price or not capacity.per_gpu_hour:
            return None
        pays_from = 100 * capacity.per_gpu_hour.micros / price.micros
        if pays_from > maximum:
            return None
        price_limit = Money(int(capacity.per_gpu_hour.micros * 100 / maximum))
        return deny(
            self,
            "holding_pays",
            f"at {price} per GPU-hour, holding {offer.accelerator} at {capacity.per_gpu_hour} pays from "
            f"{pays_from:.1f}% of"
            f" the hours on; renting is denied where that is {maximum:g}% or less: the price must be below "
            f"{price_limit}",
            price=price,
            below=price_limit,
            held_price=capacity.per_gpu_hour,
            pays_from_percent=f"{pays_from:.1f}",
            break_even_percent=f"{maximum:g}",
        )

    def _by_time(self, action: Action) -> Verdict | None:
        maximum = self.config.horizon
        longest = max_run_time(action) or action.job.max_duration
        if maximum is None or longest is None or longest <= maximum:
            return None
        return deny(
            self,
            "beyond_horizon",
            f"the job may run for {duration_text(longest)}, and GPUs are rented for at most "
            f"{duration_text(maximum)}; set a lower"
            " max_duration in the job file, or hold capacity: `gpubroker capacity plan`",
            duration=duration_text(longest),
            horizon=duration_text(maximum),
        )
