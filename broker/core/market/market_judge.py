"""How the answer of a poll is judged before it is used: whether it is complete, and whether its prices are plausible.

The store provides the figures, `broker/market/suspicion.py` judges them.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.core.market.offers import Doubt, Offer
from broker.core.values.money import Money


@dataclass(frozen=True, slots=True)
class GroupCount:
    """Numbers of offers of a group. ``known``: current before a poll; ``told``: those of them that the poll reported
    again.

    ``ended``: how often one of the group's offers ended in the past polls that `AnswerCounts.polls` counts.
    """

    known: int
    told: int
    ended: int = 0

    @property
    def missing(self) -> int:
        return self.known - self.told


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """The answer of a successful poll, compared with the offers that were current before it.

    ``told``: number of offers in the answer, including new ones; ``all``: counts over all offers that were current;
    ``groups``: the same by (dimension, name), such as ("region", "aws us-east-1"). ``churn``: the fraction of current
    offers that each earlier accepted poll ended, newest first. ``was_empty``: the previous poll was empty and was
    accepted. ``polls``: number of earlier accepted polls over which `GroupCount.ended` counts.
    """

    told: int
    all: GroupCount
    groups: Mapping[tuple[str, str], GroupCount]
    churn: Sequence[float] = ()
    was_empty: bool = False
    polls: int = 0


@dataclass(frozen=True, slots=True)
class PriceLevels:
    """The price of a GPU-hour of one model and capacity type (USD): the lowest and the highest of the providers'
    medians. Of machines without accelerators: of a vCPU-hour."""

    lowest: Money
    highest: Money


ModelLevels = Mapping[str, Mapping[str, PriceLevels]]
"""Price levels by model ("" for machines without accelerators) and capacity type."""


def levels_of(prices: Iterable[tuple[str, str, str, float]]) -> ModelLevels:
    """The levels of (model, capacity type, provider, micro-dollars a GPU-hour or vCPU-hour)."""
    grouped: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for model, kind, provider, micros in prices:
        grouped[model, kind, provider].append(micros)
    medians: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for (model, kind, _), values in grouped.items():
        values.sort()
        medians[model, kind].append((values[(len(values) - 1) // 2], values[len(values) // 2]))
    levels: dict[str, dict[str, PriceLevels]] = defaultdict(dict)
    for (model, kind), ranges in medians.items():
        lowest, highest = min(low for low, _ in ranges), max(high for _, high in ranges)
        levels[model][kind] = PriceLevels(Money(int(lowest)), Money(int(highest)))
    return dict(levels)


def merge_levels(first: Mapping[str, PriceLevels], second: Mapping[str, PriceLevels]) -> Mapping[str, PriceLevels]:
    """The levels of both, by capacity type: the lower lowest and the higher highest."""
    merged = dict(first)
    for kind, levels in second.items():
        existing = merged.get(kind, levels)
        merged[kind] = PriceLevels(min(levels.lowest, existing.lowest), max(levels.highest, existing.highest))
    return merged


def scale_levels(levels: Mapping[str, PriceLevels], factor: float) -> Mapping[str, PriceLevels]:
    """The levels of a unit that is ``factor`` times another."""
    return {
        kind: PriceLevels(level.lowest.scaled(factor), level.highest.scaled(factor)) for kind, level in levels.items()
    }


@dataclass(frozen=True, slots=True)
class PriceContext:
    """The prices to compare with (USD per hour). ``trusted``: the offer's previous price (whole machine); ``levels``:
    of the model, by capacity type; ``on_demand``: the on-demand price of the same machine in the same answer."""

    trusted: Money | None
    levels: Mapping[str, PriceLevels]
    on_demand: Money | None


@dataclass(frozen=True, slots=True)
class OddPrice:
    """Why a price is implausible, with the figures."""

    doubt: Doubt
    detail: str


class MarketJudge(Protocol):
    """Judges polls. Pure."""

    def incomplete(self, answer: AnswerCounts) -> str:
        """Why the answer is considered incomplete; empty if it is considered complete."""

    def rescaled(self, changes: Iterable[tuple[int, int]]) -> str:
        """Why the prices of the answer seem to be in another unit than before; empty if they do not. ``changes``: the
        believed and the new price of each known offer, in micro-dollars."""

    def odd_price(self, offer: Offer, context: PriceContext) -> OddPrice | None:
        """Why a new price is implausible; None if it is plausible."""
