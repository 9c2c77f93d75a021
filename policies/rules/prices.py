"""Rules on prices: how high, how old, and from where."""

from functools import cached_property
from inspect import cleandoc
from typing import Any, Literal

from pydantic import GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from broker.core.market.offers import MoneyKind
from broker.core.policy.facts import Aspect
from broker.core.policy.policy import Action, ActionKind, Facts, Verdict
from broker.core.validation import parse_each
from broker.core.values.money import Money, round_distinct
from broker.core.values.units import PositiveDuration, print_money
from policies.bound_rule import BoundRule, allow, deny, duration_text, guardrail
from policies.fields import PATTERN_SIGNS, Limit, PolicyValue, names_accelerator, parse_accelerator, parse_limit

_DEFAULT = "default"


class PriceLimits(PolicyValue[dict[str, Limit]]):
    """``$4``, or ``{H100: $4, default: $2}``: limits in USD per GPU-hour by accelerator. A name stands for its
    variants, too (``H100`` for H100-NVL), unless they are named themselves; ``=H100`` for that card alone; a pattern
    for those that no name stands for. Accelerators not named use the default; without a default they have no limit.
    """

    @model_validator(mode="before")
    @classmethod
    def _by_accelerator(cls, value: object) -> dict[str, Money]:
        if not isinstance(value, dict):
            return {_DEFAULT: parse_limit(value)}
        if not value:
            raise ValueError("names no accelerator; expected a price such as $4, or prices such as {H100: $4}")
        parsed = parse_each(value.items(), lambda name, price: (_accelerator(name), parse_limit(price)))
        limits = dict(parsed)
        if len(limits) < len(parsed):
            raise ValueError("names one accelerator twice, by two aliases")
        return limits

    def limit(self, accelerator: str) -> Money | None:
        """The limit of the most specific name that names the accelerator."""
        matching = [name for name in self.root if name != _DEFAULT and names_accelerator(name, accelerator)]
        plain = [name for name in matching if not PATTERN_SIGNS.intersection(name)]
        return self.root.get(max(plain or matching, key=len, default=_DEFAULT))

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        price = {"type": "string", "examples": ["$4"]}
        by_accelerator = {"type": "object", "additionalProperties": price, "minProperties": 1}
        return {"anyOf": [price, by_accelerator], "description": cleandoc(cls.__doc__ or "")}


def _accelerator(name: str) -> str:
    if name == _DEFAULT:
        return name
    try:
        return parse_accelerator(name)
    except ValueError as error:
        raise ValueError(f"{error}; use `{_DEFAULT}` for all others") from error


@guardrail("max_price_per_gpu_hour")
class MaxPricePerGpuHour(BoundRule[PriceLimits]):
    """Denies a placement whose current price exceeds the limit. CPU machines have no GPU-hours."""

    reads = (Aspect.PROVIDER, Aspect.REGION, Aspect.ACCELERATOR, Aspect.PRICE_PER_GPU)

    @cached_property
    def _terms(self) -> str:
        limits = self.config.root.items()
        if set(self.config.root) == {_DEFAULT}:
            return f"at most {print_money(self.config.root[_DEFAULT])} per GPU-hour"
        each_limit = (f"{'others' if name == _DEFAULT else name} {print_money(limit)}" for name, limit in limits)
        return f"at most {', '.join(each_limit)} per GPU-hour"

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        offer = action.placement.offer if action.placement else None
        if offer is None or not offer.count:
            return allow(self, "no_gpus", "uses no GPU")
        limit = self.config.limit(offer.accelerator or "")
        if limit is None:
            return allow(self, "no_limit", f"sets no limit for {offer.accelerator}")
        if offer.price is None:
            return deny(self, "price_unknown", f"the price of {offer.id} is unknown; the limit is {print_money(limit)}")
        # Compare prices per machine: a price per GPU would be rounded.
        if offer.price.micros <= limit.micros * offer.count:
            return allow(self, "within_limit", self._terms)
        price = offer.price_per_gpu or offer.price
        costs, at_most = round_distinct(price, limit)
        return deny(
            self,
            "price_above_limit",
            f"{offer.accelerator} at {offer.location} costs {costs} per GPU-hour; the limit is {at_most}",
            price=price,
            limit=limit,
            accelerator=offer.accelerator,
            offer=offer.id,
        )


class Age(PolicyValue[PositiveDuration]):
    """Maximum age of a price, such as ``30m``. The provider's own limit applies as well."""


@guardrail("max_price_age")
class MaxPriceAge(BoundRule[Age]):
    """Denies a start that costs cash at an older price. Running jobs keep their starting price."""

    reads = (Aspect.PRICE_DATE,)

    def _judge(self, action: Action, facts: Facts) -> Verdict:
        placement = action.placement
        if placement is None or placement.money is not MoneyKind.CASH or action.kind is ActionKind.CONTINUE:
            return allow(self, "no_cash", "starts nothing that costs cash")
        age, limit = facts.now - placement.offer.as_of, self.config.root
        if age <= limit:
            return allow(self, "fresh", f"prices of the last {duration_text(limit)} are accepted")
        return deny(
            self,
            "price_too_old",
            f"the price of {placement.offer.pool} is {duration_text(age)} old; the limit is {duration_text(limit)}; "
            "run `gpubroker prices poll` to update it",
            age=duration_text(age),
            limit=duration_text(limit),
        )


class ReferencePriceUse(PolicyValue[Literal["forbidden"]]):
    """``forbidden`` for the jobs in the scope, regardless of ``defaults: allow_reference_prices``."""


@guardrail("reference_prices")
class ReferencePrices(BoundRule[ReferencePriceUse]):
    """Denies a start at a price from a price book. Running jobs continue."""

    reads = (Aspect.REFERENCE_PRICE, Aspect.PRICE_SOURCE, Aspect.PRICE_DATE)

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
