"""Spot capacity: not at all, only for jobs with checkpoints, or at least so large a share of what is rented."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from broker.core.job.placements import Placement
from broker.core.market.offers import CapacityType
from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, LiveAttempt, Source, Verdict
from policies.concurrency import Others, starts
from policies.fields import Part, Percent
from policies.scope import Scope
from policies.verdicts import allow, deny, out_of_scope

_RENTED = (CapacityType.SPOT, CapacityType.ON_DEMAND)


class Terms(Part):
    """``use``: ``forbidden``, or ``with_checkpoints`` (only for jobs that say ``checkpoint: {every: …}``).
    ``min_share``: the part of the rented GPUs in the scope that must be spot, counted when one is started; owned and
    reserved ones do not count."""

    use: Literal["forbidden", "with_checkpoints"] | None = None
    min_share: Annotated[Percent | None, Field()] = None

    @model_validator(mode="after")
    def _says_something(self) -> Terms:
        if self.use is None and self.min_share is None:
            raise ValueError("says nothing; expected `use` or `min_share`")
        if self.use == "forbidden" and self.min_share is not None:
            raise ValueError("contradicts itself: spot cannot be forbidden and have a least share")
        return self


@dataclass(frozen=True, eq=False)
class Spot:
    """Denies spot where it is not wanted, and on-demand where more of it should be spot."""

    kind: ClassVar[str] = "spot"
    Config: ClassVar[type[BaseModel]] = Terms

    name: str
    config: Terms
    scope: Scope
    source: Source

    @property
    def counts_live(self) -> bool:
        """Whether it counts what runs."""
        return self.config.min_share is not None

    @cached_property
    def _others(self) -> Others:
        return Others(self.scope)

    def judge(self, action: Action, facts: Facts) -> Verdict:
        if not self.scope.covers(action):
            return out_of_scope(self)
        if action.placement is None or action.placement.offer.capacity_type not in _RENTED:
            return allow(self, "not_rented", "nothing is rented")
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
        """How much would be spot, and how much rented in all, once that is started on demand: GPUs, or machines."""
        rented = [one for one in self._others.beside(action, facts).attempts if one.capacity_type in _RENTED]
        spot = sum(_size(one) for one in rented if one.capacity_type is CapacityType.SPOT)
        return spot, sum(map(_size, rented)) + (placed.gpus or placed.nodes)

    def _of_spot(self, action: Action) -> Verdict:
        workload = action.job.workload.value
        if self.config.use == "forbidden":
            return deny(self, "spot_forbidden", f"spot is forbidden for {workload} jobs like this", workload=workload)
        if self.config.use == "with_checkpoints" and action.job.checkpoint.every is None:
            return deny(
                self,
                "spot_without_checkpoints",
                f"spot is for jobs with checkpoints only, and this {workload} job says none; write"
                " `checkpoint: {every: 10m}` once it saves them",
                workload=workload,
            )
        return allow(self, "spot_allowed", "spot is allowed")

    def _of_on_demand(self, action: Action, facts: Facts) -> Verdict:
        least, placement = self.config.min_share, action.placement
        if least is None or placement is None or not starts(action):
            return allow(self, "not_spot", "starts no spot capacity")
        spot, total = self._share(action, placement, facts)
        if 100 * spot >= least * total:
            return allow(self, "share_kept", f"at least {least:g}% of what is rented is spot")
        return deny(
            self,
            "too_little_spot",
            f"{spot} of {total} rented GPUs would be spot ({100 * spot / total:.0f}%), at least {least:g}% must be",
            spot=spot,
            rented=total,
            min_share=f"{least:g}",
        )


def _size(one: LiveAttempt) -> int:
    """GPUs; machines where there are none."""
    return one.gpus or one.nodes
