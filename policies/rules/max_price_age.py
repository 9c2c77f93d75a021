"""Limits the age of the price at a launch."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict, RootModel

from broker.core.market.offers import MoneyKind
from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from broker.core.values.units import PositiveDuration
from policies.bound_rule import BoundRule
from policies.verdicts import allow, deny, length


class Age(RootModel[PositiveDuration]):
    """Maximum age of a price, such as ``30m``. The provider's own limit applies as well."""

    model_config = ConfigDict(frozen=True)


class MaxPriceAge(BoundRule[Age]):
    """Denies a start that costs cash at an older price. Running jobs keep their starting price."""

    kind: ClassVar[str] = "max_price_age"
    Config: ClassVar[type[BaseModel]] = Age

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        placement = action.placement
        if placement is None or placement.money is not MoneyKind.CASH or action.kind is ActionKind.CONTINUE:
            return allow(self, "no_cash", "starts nothing that costs cash")
        age, limit = facts.now - placement.offer.as_of, self.config.root
        if age <= limit:
            return allow(self, "fresh", f"prices of the last {length(limit)} are accepted")
        return deny(
            self,
            "price_too_old",
            f"the price of {placement.offer.pool} is {length(age)} old; the limit is {length(limit)}; run "
            "`gpubroker prices poll` to update it",
            age=length(age),
            limit=length(limit),
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return seen(action, Aspect.PRICE_DATE)
