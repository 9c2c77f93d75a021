"""How the answer of a poll is judged before it is used: whether it is complete, and whether its prices are plausible.

The store provides the figures, `broker/market/suspicion.py` judges them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    medians."""

    lowest: Money
    highest: Money


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

    def odd_price(self, offer: Offer, context: PriceContext) -> OddPrice | None:
        """Why a new price is implausible; None if it is plausible."""
