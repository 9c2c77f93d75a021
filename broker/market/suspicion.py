"""Detects incomplete answers and implausible prices. Pure; the store provides the figures.

Expected churn: of n offers, n·p disappear between two polls. For all offers together, p is the largest fraction that
any of the last believed polls ended (at least 5 %). For a group, p is that fraction, or the group's own rate if it is
higher: its ends in past polls by the number of its offers times polls, starting from one end in 20. Neither exceeds 50
%. A number of disappeared offers is suspect if it would occur by chance less often than once in 740 times (three
standard deviations), and is at least a fifth of all offers or half of a group. Up to 50 offers, this is computed by the
exact binomial, above by its normal bound plus 2. So the disappearance of a group of two that is known to be stable is
noticed, and that of half of a group of eight.

Prices: the price of a GPU-hour is compared with the providers' medians for the model and capacity type, and that of a
known offer with its previous price. The factors are our choice: wide enough for the range between marketplaces and
large clouds.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from math import comb, inf, sqrt
from statistics import median

from broker.core.market.accelerators import siblings
from broker.core.market.market_judge import (
    AnswerCounts,
    GroupCount,
    ModelLevels,
    OddPrice,
    PriceContext,
    PriceLevels,
    merge_levels,
    scale_levels,
)
from broker.core.market.offers import CapacityType, Doubt, MoneyKind, Offer
from broker.core.values.money import Money

_MIN_CHURN, _MAX_CHURN = 0.05, 0.5
_PART_OF_ALL, _PART_OF_GROUP = 0.2, 0.5
_CHANCE = 0.00135  # the probability of a number beyond three standard deviations
_SMALL = 50  # offers up to which the binomial is summed
_RESCALED = 3  # prices
_MAX_NAMED = 4  # the maximum number of groups named in a message

BAND = 4  # factor below the lowest median, and above the highest
JUMP = 4  # factor of the offer's own previous price
_VCPU = 4  # a further factor below, as vCPUs are threads or cores, shared or not
_GIB_PER_VCPU = 32  # the memory that the largest machines have for each vCPU; more of it counts as further vCPUs
_ABOVE_ON_DEMAND = Decimal("1.02")
# For a capacity type without known prices: a related one, and the factors of its price levels between which a price is
# believed.
_RELATED = {
    CapacityType.SPOT: (CapacityType.ON_DEMAND, 16, 4),
    CapacityType.RESERVED: (CapacityType.ON_DEMAND, 8, 4),
    CapacityType.ON_DEMAND: (CapacityType.SPOT, 4, 16),
}


class Suspicion:
    """The judge of prices from other places than this machine: `broker.core.market.market_judge.MarketJudge`."""

    def __init__(self, listed: ModelLevels | None = None, *, judges_gaps: bool = True) -> None:
        """``listed``: the levels of the price book that comes with gpubroker. They are always known, so that a new
        store has something to compare its first prices with. ``judges_gaps``: whether offers missing from an answer are
        suspect."""
        self._listed = listed or {}
        self._judges_gaps = judges_gaps

    def incomplete(self, answer: AnswerCounts) -> str:
        """Why the answer is considered incomplete; empty if it is considered complete."""
        if not self._judges_gaps:
            return ""
        if not answer.told:
            return "" if answer.was_empty else f"an empty answer{_known_before(answer.all)}"
        recent = max(answer.churn, default=0.0)
        suspect_groups = sorted(
            (
                item
                for item in answer.groups.items()
                if _too_few(item[1], _churn(item[1], answer, recent), _PART_OF_GROUP)
            ),
            key=lambda entry: (-entry[1].missing, entry[0]),
        )
        if not suspect_groups and not _too_few(answer.all, max(_MIN_CHURN, recent), _PART_OF_ALL):
            return ""
        groups = [
            f"{dimension} {name}: {count.told} of {count.known}"
            for (dimension, name), count in suspect_groups[:_MAX_NAMED]
        ]
        more = [f"and {len(suspect_groups) - _MAX_NAMED} more groups"] if len(suspect_groups) > _MAX_NAMED else []
        summary = f"only {answer.all.told:,} of {answer.all.known:,} known offers were returned"
        return "; ".join([summary, *groups, *more])

    def rescaled(self, changes: Iterable[tuple[int, int]]) -> str:
        """Why the answer seems to be in another unit, such as cents: half of its known prices and at least three made
        one jump. Empty if it does not. ``changes``: the believed and the new price of each known offer, in one unit."""
        ratios = [new / old for old, new in changes if old > 0 and new > 0]
        for jumps in ([r for r in ratios if r > JUMP], [r for r in ratios if r * JUMP < 1]):
            if len(jumps) >= max(_RESCALED, len(ratios) / 2):
                known = f"{len(jumps):,} of {len(ratios):,} known prices"
                return f"{known} are {median(jumps):.3g} times those before: has their unit changed?"
        return ""

    def odd_price(self, offer: Offer, context: PriceContext) -> OddPrice | None:
        """Why a new price is not believed; None if it is believed, or if nothing is known to compare it with."""
        if offer.money is not MoneyKind.CASH or offer.price is None or offer.price.micros <= 0:
            return None
        price, previous = offer.price, context.trusted
        if previous is not None and previous.micros and not _is_between(price, previous, previous, JUMP, JUMP):
            return OddPrice(Doubt.SUDDEN, f"{price}/h after {previous}/h")
        if offer.capacity_type is CapacityType.SPOT and context.on_demand is not None:
            maximum = context.on_demand.micros * _ABOVE_ON_DEMAND
            if price.micros > maximum:
                return OddPrice(Doubt.ABOVE_ON_DEMAND, f"{price}/h; on demand {context.on_demand}/h")
        unit_price, unit = offer.price_per_unit, "GPU" if offer.accelerator else "vCPU"
        bounds = self._bounds(offer, context.levels)
        if unit_price is None or bounds is None:
            # What a person accepted may change within the limit of a jump.
            unknown = f"{price}/h; no other price of {offer.accelerator or 'machines without accelerators'} is known"
            return None if previous is not None else OddPrice(Doubt.UNCOMPARED, unknown)
        low, high = bounds
        if not offer.accelerator and (offer.memory_gib or 0) > _GIB_PER_VCPU * (offer.cpus or inf):
            unit_price, unit = Money(int(price.micros * _GIB_PER_VCPU / (offer.memory_gib or 1))), "32 GiB"
        if low <= unit_price <= high:
            return None
        # An implausible price that a person accepted may change further, within the limit of a jump.
        usual_price = None if previous is None else previous.share(unit_price.micros, price.micros)
        if usual_price is not None and not low <= usual_price <= high:
            return None
        expected = f"{unit_price} per {unit}-hour; prices from {low} to {high} are believed"
        return OddPrice(Doubt.TOO_LOW if unit_price < low else Doubt.TOO_HIGH, expected)

    def _bounds(self, offer: Offer, levels_by_type: Mapping[str, PriceLevels]) -> tuple[Money, Money] | None:
        """The lowest and the highest price of a GPU-hour (vCPU-hour) that is believed; None if nothing is known."""
        model = offer.accelerator or ""
        levels = merge_levels(levels_by_type, self._listed.get(model, {}))
        bounds = _band(offer.capacity_type, levels)
        if not model and bounds is not None:
            bounds = Money(bounds[0].micros // _VCPU), bounds[1]
        if bounds is not None or not model:
            return bounds
        for related, number in siblings(model):
            levels = merge_levels(levels, scale_levels(self._listed.get(related, {}), number))
        return _band(offer.capacity_type, levels)


def _known_before(counts: GroupCount) -> str:
    return (
        f", where {counts.known:,} offers were known"
        if counts.known
        else ": no offer at all, and none was known before"
    )


def _churn(group: GroupCount, answer: AnswerCounts, recent: float) -> float:
    """The fraction of the group that is expected to disappear in one poll."""
    group_rate = (group.ended + 1) / (group.known * answer.polls + 1 / _MIN_CHURN)
    return max(group_rate, recent)


def _too_few(count: GroupCount, churn: float, part: float) -> bool:
    n, missing, p = count.known, count.missing, min(churn, _MAX_CHURN)
    if missing < part * n or not missing:
        return False
    if n > _SMALL:
        return missing > n * p + 3 * sqrt(n * p * (1 - p)) + 2
    return sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(missing, n + 1)) < _CHANCE


def _band(kind: CapacityType, levels: Mapping[str, PriceLevels]) -> tuple[Money, Money] | None:
    below, above, level = BAND, BAND, levels.get(kind.value)
    if level is None and kind in _RELATED:
        related, below, above = _RELATED[kind]
        level = levels.get(related.value)
    if level is None:
        return None
    return Money(level.lowest.micros // below), Money(level.highest.micros * above)


def _is_between(price: Money, low: Money, high: Money, below: int, above: int) -> bool:
    return low.micros <= price.micros * below and price.micros <= high.micros * above
