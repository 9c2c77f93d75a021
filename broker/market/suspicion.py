"""Detects incomplete answers and implausible prices. Pure; the store provides the figures.

Expected churn: of n offers, n·p disappear between two polls, where p is the greatest fraction that any of the last
believed polls ended (at least 5 %, at most 50 %). Up to n·p + 3·sqrt(n·p·(1 − p)) + 2 may disappear by chance: a normal
bound of a binomial count, plus 2 for small groups. More than that, and at least a fifth of all offers or half of a
group, is suspect.

Prices: the price of a GPU-hour is compared with the providers' medians for the model and capacity type, and that of a
known offer with its previous price. The factors are our choice: wide enough for the range between marketplaces and
large clouds.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import sqrt

from broker.core.market.judging import AnswerCounts, GroupCount, OddPrice, PriceContext, PriceLevels
from broker.core.market.offers import CapacityType, Doubt, MoneyKind, Offer
from broker.core.values.money import Money

_LEAST_CHURN, _MOST_CHURN = 0.05, 0.5
_PART_OF_ALL, _PART_OF_GROUP = 0.2, 0.5
_NAMED = 4  # groups named in a message

BAND = 4  # times below the lowest median, and above the highest
JUMP = 4  # times the offer's own price before
_ABOVE_ON_DEMAND = Decimal("1.02")
# For a capacity type without known prices: a related one, and the factors below and above its levels that are believed.
_RELATED = {
    CapacityType.SPOT: (CapacityType.ON_DEMAND, 16, 4),
    CapacityType.RESERVED: (CapacityType.ON_DEMAND, 8, 4),
    CapacityType.ON_DEMAND: (CapacityType.SPOT, 4, 16),
}
# Bounds for a GPU-hour (USD) of a model without known prices.
_CHEAPEST, _DEAREST = Money.usd("0.005"), Money.usd(100)


class Suspicion:
    """The judge of polls of real, remote providers: `broker.core.market.judging.MarketJudge`."""

    def incomplete(self, answer: AnswerCounts) -> str:
        """Why the answer is considered incomplete; empty if it is considered complete."""
        if not answer.told:
            return "" if answer.was_empty else f"an empty answer{_known_before(answer.all)}"
        p = min(max((_LEAST_CHURN, *answer.churn)), _MOST_CHURN)
        named = sorted(
            (found for found in answer.groups.items() if _too_few(found[1], p, _PART_OF_GROUP)),
            key=lambda found: (-found[1].missing, found[0]),
        )
        if not named and not _too_few(answer.all, p, _PART_OF_ALL):
            return ""
        groups = [f"{dimension} {name}: {count.told} of {count.known}" for (dimension, name), count in named[:_NAMED]]
        more = [f"and {len(named) - _NAMED} more groups"] if len(named) > _NAMED else []
        told = f"only {answer.all.told:,} of {answer.all.known:,} known offers came again"
        return "; ".join([told, *groups, *more])

    def odd_price(self, offer: Offer, context: PriceContext) -> OddPrice | None:
        """Why a new price is not believed; None if it is believed, or nothing is known to compare it with."""
        if offer.money is not MoneyKind.CASH or offer.price is None or offer.price.micros <= 0:
            return None
        price, before = offer.price, context.trusted
        if before is not None and before.micros and not _between(price, before, before, JUMP, JUMP):
            return OddPrice(Doubt.SUDDEN, f"{price}/h after {before}/h")
        if offer.capacity_type is CapacityType.SPOT and context.on_demand is not None:
            most = context.on_demand.micros * _ABOVE_ON_DEMAND
            if price.micros > most:
                return OddPrice(Doubt.ABOVE_ON_DEMAND, f"{price}/h; on demand {context.on_demand}/h")
        each = offer.price_per_gpu
        if each is None or offer.accelerator is None:
            return None
        low, high = _bounds(offer.capacity_type, context.levels)
        if low <= each <= high:
            return None
        # An implausible price that a person accepted may change further, within the limit of a jump.
        if before is not None and not low <= before.share(1, offer.count) <= high:
            return None
        expected = f"{each} per GPU-hour; prices from {low} to {high} are believed"
        return OddPrice(Doubt.TOO_LOW if each < low else Doubt.TOO_HIGH, expected)


def _known_before(all: GroupCount) -> str:
    return f", where {all.known:,} offers were known" if all.known else ": no offer at all, and none was known before"


def _too_few(count: GroupCount, p: float, part: float) -> bool:
    by_chance = count.known * p + 3 * sqrt(count.known * p * (1 - p)) + 2
    return count.missing > by_chance and count.missing >= part * count.known


def _bounds(kind: CapacityType, levels: Mapping[str, PriceLevels]) -> tuple[Money, Money]:
    """The lowest and the highest price of a GPU-hour that is believed."""
    below, above, known = BAND, BAND, levels.get(kind.value)
    if known is None and kind in _RELATED:
        related, below, above = _RELATED[kind]
        known = levels.get(related.value)
    if known is None:
        return _CHEAPEST, _DEAREST
    return Money(known.lowest.micros // below), Money(known.highest.micros * above)


def _between(price: Money, low: Money, high: Money, below: int, above: int) -> bool:
    return low.micros <= price.micros * below and price.micros <= high.micros * above
