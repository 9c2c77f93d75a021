"""Keeps sensitive data on owned machines."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, RootModel

from broker.core.market.offers import CapacityType
from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, Facts, Verdict
from policies.bound_rule import BoundRule
from policies.verdicts import allow, deny


class Where(RootModel[Literal["on_premises"]]):
    """``on_premises``: jobs with ``data: {sensitive: true}`` run on owned capacity only."""

    model_config = ConfigDict(frozen=True)


class SensitiveData(BoundRule[Where]):
    """Denies a placement of such a job on other capacity."""

    kind: ClassVar[str] = "sensitive_data"
    Config: ClassVar[type[BaseModel]] = Where

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if not action.job.data.sensitive:
            return allow(self, "not_sensitive", "the job's data is not sensitive")
        if action.placement is None:
            return allow(self, "no_place", "no place is requested")
        offer = action.placement.offer
        if offer.capacity_type is CapacityType.OWNED:
            return allow(self, "on_premises", f"{offer.location} is owned")
        return deny(
            self,
            "sensitive_data_elsewhere",
            f"the job's data is sensitive, so it runs on owned machines only; {offer.location} is not owned",
            place=offer.location,
            capacity_type=offer.capacity_type.value,
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return seen(action, Aspect.PROVIDER, Aspect.REGION, Aspect.CAPACITY_TYPE, Aspect.SENSITIVE_DATA)
