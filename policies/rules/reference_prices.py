"""Forbids launches at list prices that are not live."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, RootModel

from broker.core.policy.coverage import seen
from broker.core.policy.facts import Aspect, Fact
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from policies.bound_rule import BoundRule
from policies.verdicts import allow, deny


class ReferencePriceUse(RootModel[Literal["forbidden"]]):
    """``forbidden`` for the jobs in the scope, regardless of ``defaults: allow_reference_prices``."""

    model_config = ConfigDict(frozen=True)


class ReferencePrices(BoundRule[ReferencePriceUse]):
    """Denies a start at a price from a price book. Running jobs continue."""

    kind: ClassVar[str] = "reference_prices"
    Config: ClassVar[type[BaseModel]] = ReferencePriceUse

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        if action.placement is None or action.kind is ActionKind.CONTINUE:
            return allow(self, "starts_none", "nothing is started")
        offer = action.placement.offer
        if not offer.reference:
            return allow(self, "live_price", "the price is live")
        return deny(
            self,
            "reference_price",
            f"the price of {offer.pool} is a reference price of {offer.as_of:%Y-%m-%d}, not a live one",
            source=offer.source,
            as_of=f"{offer.as_of:%Y-%m-%d}",
        )

    def looks_at(self, action: Action, facts: Facts) -> tuple[Fact, ...]:
        return seen(action, Aspect.REFERENCE_PRICE, Aspect.PRICE_SOURCE, Aspect.PRICE_DATE)
