"""What is asked of a poll before it is believed: whether it told everything, and whether a price is of this world.

The store counts, `broker/market/suspicion.py` judges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.core.market.offers import Doubt, Offer
from broker.core.values.money import Money


@dataclass(frozen=True, slots=True)
class GroupCount:
    """How many offers of a group were current before a poll, and how many of these it told of again."""

    known: int
    told: int

    @property
    def missing(self) -> int:
        return self.known - self.told


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """What a poll that ended well brought, compared with what was current before it.

    ``told``: offers in the answer, new ones included; ``all``: those that were current; ``groups``: the same by
    (dimension, name), such as ("region", "aws us-east-1"). ``churn``: the part of the current offers that earlier
    believed polls ended, newest first. ``was_empty``: the poll before brought nothing, and that was believed.
    """

    told: int
    all: GroupCount
    groups: Mapping[tuple[str, str], GroupCount]
    churn: Sequence[float] = ()
    was_empty: bool = False


@dataclass(frozen=True, slots=True)
class PriceLevels:
    """What a GPU-hour of one model costs by one capacity type: the lowest and the highest of the providers' medians."""

    lowest: Money
    highest: Money


@dataclass(frozen=True, slots=True)
class PriceContext:
    """What a price is compared with. ``trusted``: the offer's own price before (whole machine); ``levels``: of the
    model, by capacity type; ``on_demand``: the same machine's price on demand in the same answer."""

    trusted: Money | None
    levels: Mapping[str, PriceLevels]
    on_demand: Money | None


@dataclass(frozen=True, slots=True)
class OddPrice:
    """Why a price is not believed, and the figures."""

    doubt: Doubt
    detail: str


class MarketJudge(Protocol):
    """Judges polls. Pure."""

    def incomplete(self, answer: AnswerCounts) -> str:
        """Why the answer is not taken for all there is; empty if it is."""
        ...

    def odd_price(self, offer: Offer, context: PriceContext) -> OddPrice | None:
        """Why a new price is not believed; None if it is."""
        ...
