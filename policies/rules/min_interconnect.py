"""Requires a minimum interconnect between a machine's accelerators."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from broker.core.market.offers import Interconnect
from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, Verdict
from policies.bound_rule import BoundRule
from policies.fields import GpuCount, PolicyPart
from policies.verdicts import allow, deny

_STRENGTH = {Interconnect.NONE: 0, Interconnect.PCIE: 1, Interconnect.NVLINK: 2}


class Link(PolicyPart):
    """``nvlink`` or ``pcie``, or ``{at_least: nvlink, from_gpus: 4}``: for machines with that many accelerators or more
    (default 2). An unknown interconnect is denied.
    """

    at_least: Literal["nvlink", "pcie"] = Field(description="one of nvlink, pcie")
    from_gpus: GpuCount = 2

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> Any:
        return {"at_least": value} if isinstance(value, str) else value


class MinInterconnect(BoundRule[Link]):
    """Denies a placement on a machine with a weaker interconnect."""

    kind: ClassVar[str] = "min_interconnect"
    Config: ClassVar[type[BaseModel]] = Link

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        offer = action.placement.offer if action.placement else None
        if offer is None or offer.count < self.config.from_gpus:
            return allow(self, "too_small", f"applies to machines with {self.config.from_gpus} or more accelerators")
        wanted, has = Interconnect(self.config.at_least), offer.interconnect
        if has is not None and _STRENGTH[has] >= _STRENGTH[wanted]:
            return allow(self, "strong_enough", f"is joined by {has.value}")
        known = has.value if has else "an unknown interconnect"
        return deny(
            self,
            "interconnect_too_weak",
            f"{offer.count} accelerators of {offer.instance_type} are joined by {known}; the minimum is {wanted.value}",
            interconnect=has.value if has else "unknown",
            at_least=wanted.value,
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return seen(action, Aspect.INTERCONNECT, Aspect.GPUS_PER_MACHINE)
