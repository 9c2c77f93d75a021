"""Limits spot capacity: forbidden, only for jobs with checkpoints, or a minimum share of rented GPUs."""

from __future__ import annotations

from functools import cached_property
from math import floor
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType
from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, LiveAttempt, Verdict
from policies.bound_rule import BoundRule
from policies.concurrency import Others, starts
from policies.fields import Percent, PolicyPart
from policies.verdicts import allow, deny

_RENTED = (CapacityType.SPOT, CapacityType.ON_DEMAND)


class SpotUse(PolicyPart):
    """``use``: ``forbidden``, or ``with_checkpoints`` (only for jobs with ``checkpoint: {every: …}``). ``min_share``:
    minimum spot share of the rented GPUs in the scope, checked at each start; owned and reserved GPUs do not count.
    """

    use: Literal["forbidden", "with_checkpoints"] | None = None
    min_share: Annotated[Percent | None, Field()] = None

    @model_validator(mode="after")
    def _says_something(self) -> SpotUse:
        if self.use is None and self.min_share is None:
            raise ValueError("is empty; expected `use` or `min_share`")
        if self.use == "forbidden" and self.min_share is not None:
            raise ValueError("contradicts itself: forbidden spot cannot have a minimum share")
        return self


class Spot(BoundRule[SpotUse]):
    """Denies spot that is not allowed, and on-demand that would lower the spot share below the minimum."""

    kind: ClassVar[str] = "spot"
    Config: ClassVar[type[BaseModel]] = SpotUse

    @property
    def counts_live(self) -> bool:
        """Whether the rule counts running attempts."""
        return self.config.min_share is not None

    @cached_property
    def _others(self) -> Others:
        return Others(self.scope)

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.placement is None or action.placement.offer.capacity_type not in _RENTED:
            return allow(self, "not_rented", "rents nothing")
        if action.placement.offer.capacity_type is CapacityType.SPOT:
            return self._of_spot(action)
        return self._of_on_demand(action, facts)

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        kind = seen(action, Aspect.CAPACITY_TYPE)
        placed = action.placement
        if self.config.min_share is None or placed is None or placed.offer.capacity_type is not CapacityType.ON_DEMAND:
            return kind
        spot, total = self._share(action, placed, facts)
        return (*kind, Fact(aspect=Aspect.SPOT_SHARE, value=100 * spot / total))

    def _share(self, action: Action, placed: Placement, facts: Facts) -> tuple[int, int]:
        """GPUs (or machines without GPUs) on spot, and rented in total, after this on-demand start."""
        rented = [one for one in self._others.beside(action, facts).attempts if one.capacity_type in _RENTED]
        spot = sum(_size(one) for one in rented if one.capacity_type is CapacityType.SPOT)
        return spot, sum(map(_size, rented)) + (placed.gpus or placed.nodes)

    def _of_spot(self, action: Action) -> Verdict:
        workload = action.job.workload.value
        if self.config.use == "forbidden":
            return deny(
                self, "spot_forbidden", f"spot is forbidden for {workload} jobs in this scope", workload=workload
            )
        if self.config.use == "with_checkpoints" and action.job.checkpoint.every is None:
            return deny(
                self,
                "spot_without_checkpoints",
                f"spot requires checkpoints, and this {workload} job has none; write `checkpoint: {{every: "
                "10m}` if it saves them",
                workload=workload,
            )
        return allow(self, "spot_allowed", "spot is allowed")

    def _of_on_demand(self, action: Action, facts: Facts) -> Verdict:
        least, placement = self.config.min_share, action.placement
        if least is None or placement is None or not starts(action):
            return allow(self, "not_spot", "starts no on-demand capacity")
        spot, total = self._share(action, placement, facts)
        if 100 * spot >= least * total:
            return allow(self, "share_kept", f"at least {least:g}% of rented GPUs are spot")
        more = _more_spot(spot, total, least)
        passes = "spot would pass" if more is None else f"spot would pass, or this once {more} more are spot"
        return deny(
            self,
            "too_little_spot",
            f"{spot} of {total} rented GPUs would be spot ({100 * spot / total:.0f}%); the minimum is {least:g}%;"
            f" {passes}",
            spot=spot,
            rented=total,
            min_share=f"{least:g}",
            **({} if more is None else {"more_spot": more}),
        )


def _more_spot(spot: int, total: int, least: float) -> int | None:
    """The number of further spot GPUs that make the share large enough; None if no number does."""
    if least >= 100:
        return None
    more = max(floor((least * total - 100 * spot) / (100 - least)) - 1, 0)
    while 100 * (spot + more) < least * (total + more):
        more += 1
    return more


def _size(one: LiveAttempt) -> int:
    """GPUs, or machines if there are no GPUs."""
    return one.gpus or one.nodes
