"""Savings in order for a workload, and quoted rules of thumb compared with the arithmetic and current prices."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from broker.app.advise.prices import CurrentPrices
from broker.core.market.offers import CapacityType
from broker.core.market.price_basis import is_current, usd_per_gpu_hour
from broker.economics.assumptions import Assumptions
from broker.economics.figures import FLEET_SAVING, RuleCheck, Share, Usd, count_text
from broker.economics.kinds import Fact, Method
from broker.economics.rules_of_thumb import MarketFigures, QuotedRule, quoted_rules
from broker.economics.savings import (
    DEFAULT_UTILIZATION,
    SavingAdvice,
    check_combined_saving,
    check_fleet_claim,
    fewer_gpus,
    ladder,
)


@dataclass(frozen=True, slots=True)
class SavingsAdvice:
    """Savings in order. ``remaining_low_usd`` and ``_high_usd``: of the present monthly cost, after all steps that
    apply; ``fewer_gpus_share``: GPUs saved at the target utilization instead of the present one."""

    utilization: Share
    target_utilization: Share
    fewer_gpus_share: Share
    monthly_usd: Usd | None
    remaining_low_usd: Usd | None
    remaining_high_usd: Usd | None
    steps: tuple[SavingAdvice, ...]
    rules_of_thumb: tuple[RuleCheck, ...]
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"In this order: {sum(step.applies for step in self.steps)} of {len(self.steps)} steps apply"


def savings_advice(
    parameters: float, method: Method | None, facts: Sequence[Fact], monthly_usd: float | None, assumptions: Assumptions
) -> SavingsAdvice:
    """The steps for a model of that size. Savings multiply: each applies to the cost that the earlier ones leave."""
    is_inference = method is Method.INFERENCE
    goal = assumptions.inference_utilization if is_inference else assumptions.training_utilization
    now = assumptions.gpu_utilization or DEFAULT_UTILIZATION
    steps = ladder(parameters, method, facts, assumptions)
    last_step = steps[-1]
    checks = [check_combined_saving(steps)] if is_inference else []
    return SavingsAdvice(
        utilization=now,
        target_utilization=goal,
        fewer_gpus_share=max(0.0, fewer_gpus(now, goal)),
        monthly_usd=monthly_usd,
        remaining_low_usd=None if monthly_usd is None else monthly_usd * last_step.remaining_low,
        remaining_high_usd=None if monthly_usd is None else monthly_usd * last_step.remaining_high,
        steps=steps,
        rules_of_thumb=(*checks, check_fleet_claim(*FLEET_SAVING)),
        assumptions=(
            f"a model of {count_text(parameters)} parameters, present GPU utilization {now:.0%}",
            "expected savings are ranges from practice, relative to the GPU cost before each step",
        ),
    )


@dataclass(frozen=True, slots=True)
class RulesAdvice:
    """Quoted rules of thumb. ``holds``: null where no price is known to judge it by."""

    rules_of_thumb: tuple[QuotedRule, ...]
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        refuted = sum(rule.holds is False for rule in self.rules_of_thumb)
        return f"{refuted} of {len(self.rules_of_thumb)} quoted rules do not hold"


def rules_advice(prices: CurrentPrices, assumptions: Assumptions, *, only_refuted: bool = False) -> RulesAdvice:
    """All quoted rules, or only those that do not hold at these prices."""
    figures = market_figures(prices)
    quoted = quoted_rules(figures, assumptions)
    return RulesAdvice(
        tuple(rule for rule in quoted if not only_refuted or rule.holds is False),
        (
            f"prices of {len(figures.on_demand)} accelerators; list prices count where no live one is known",
            "a rule holds for the figures shown, not for every case",
        ),
    )


def market_figures(prices: CurrentPrices) -> MarketFigures:
    """The rent of one card of each accelerator on demand, and the prices of spot and reserved machines divided by the
    on-demand price of the same machine at the same place."""
    on_demand = {}
    for name in prices.accelerators():
        quote = prices.quote(name)
        if quote is not None:
            on_demand[name] = quote.usd_per_gpu_hour
    places: dict[tuple[object, ...], dict[CapacityType, float]] = {}
    for offer in filter(lambda offer: is_current(offer, prices.now), chain.from_iterable(prices.offers.values())):
        place = (offer.provider, offer.region, offer.instance_type, offer.machine)
        lowest = places.setdefault(place, {})
        usd = usd_per_gpu_hour(offer)
        lowest[offer.capacity_type] = min(usd, lowest.get(offer.capacity_type, usd))

    def ratios(kind: CapacityType) -> tuple[float, ...]:
        return tuple(
            prices_by_type[kind] / prices_by_type[CapacityType.ON_DEMAND]
            for prices_by_type in places.values()
            if kind in prices_by_type and CapacityType.ON_DEMAND in prices_by_type
        )

    return MarketFigures(on_demand, ratios(CapacityType.SPOT), ratios(CapacityType.RESERVED))
