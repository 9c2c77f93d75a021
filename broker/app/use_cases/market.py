"""Current offers, and recorded prices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, Field

from broker.app.access.callers import Caller
from broker.app.market import offer_lists, polling
from broker.app.market.market import find_offers
from broker.app.market.offer_documents import OfferGroupList, OfferList, OfferResult, OfferRiskList
from broker.app.market.offer_rows import ListedOffer, OfferFilter, PriceKind, rows
from broker.app.market.price_documents import PriceHistoryList, PriceStatus
from broker.app.market.price_history import price_histories
from broker.app.use_cases.pages import Cursor, cursor_of, parse_cursor
from broker.app.use_cases.shared_results import share_result
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput
from broker.core.market.offer_order import OfferOrder
from broker.core.market.offers import SANDBOX, CapacityType, Offer, OfferQuery
from broker.core.market.price_basis import is_obtainable
from broker.core.values.money import Money

MAX_OFFERS = 1_000
"""The most offers of a page."""


@dataclass(frozen=True)
class WantedMachines:
    """Which machines."""

    gpu: Annotated[list[str] | None, Field(description="Only these: H100, H100:8, cpu.")] = None
    provider: Annotated[list[str] | None, Field(description="Only these providers, or patterns.")] = None
    region: Annotated[list[str] | None, Field(description="Only these regions, or patterns.")] = None
    capacity_type: Annotated[list[CapacityType] | None, Field(description="Only these capacity types.")] = None
    instance_type: Annotated[list[str] | None, Field(description="Only these machine types, or patterns.")] = None

    @classmethod
    def of(cls, offer_filter: OfferFilter, gpu: Sequence[str] | None, **prices: Any) -> Self:
        """The same as a filter that was made of names and patterns. ``gpu``: as people write it."""
        return cls(
            list(gpu or ()),
            list(offer_filter.providers),
            list(offer_filter.regions),
            sorted(offer_filter.capacity_types),
            list(offer_filter.instance_types),
            **prices,
        )

    def filter(self) -> OfferFilter:
        """Raises `InvalidInput` for a bad count, `UnknownName`."""
        return OfferFilter.of(vars(self))


@dataclass(frozen=True)
class WantedOffers(WantedMachines):
    """Which machines, at which prices."""

    price_kind: Annotated[list[PriceKind] | None, Field(description="Only prices of these kinds.")] = None
    available: Annotated[bool, Field(description="Only what is known to be available.")] = False
    old: Annotated[bool, Field(description="Also reference prices older than 180 days (spot: 60).")] = False
    max_price: Annotated[Decimal | None, Field(ge=0, description="At most this price per GPU-hour, in USD.")] = None

    def filter(self) -> OfferFilter:
        """As `WantedMachines.filter`."""
        max_price = None if self.max_price is None else Money.usd(self.max_price)
        machines = {name: value for name, value in vars(self).items() if isinstance(value, list)}
        return OfferFilter.of(machines, available=self.available, old=self.old, max_price=max_price)


Offers = Annotated[int, Field(ge=1, le=MAX_OFFERS, description="Rows.")]
Sort = Annotated[OfferOrder, Field(description="The order.")]


def list_offers(
    by: Caller, wanted: WantedOffers, sort: Sort = OfferOrder.GPU_PRICE, limit: Offers = 50, cursor: Cursor = None
) -> OfferPage:
    """Current offers: cheapest GPU-hour first, then commitments of months, then machines without a GPU. Other orders
    have one page."""
    return offer_page(by, wanted.filter(), sort, limit=limit, cursor=cursor)


def group_offers(
    by: Caller,
    wanted: WantedOffers,
    dimensions: Annotated[str, Field(alias="by", max_length=200, description="gpu, provider, region, …")] = "gpu",
    limit: Offers = 50,
) -> OfferGroupList:
    """Current offers in groups, with the cheapest of each."""
    names = offer_lists.parse_dimensions(dimensions, where="by")
    return offer_lists.list_offer_groups(by.broker, wanted.filter(), names, limit)


def offer_risks(
    by: Caller, wanted: WantedOffers, sort: Sort = OfferOrder.GPU_PRICE, limit: Offers = 50
) -> OfferRiskList:
    """Current offers with their risk of interruption."""
    return offer_lists.list_offer_risks(by.broker, wanted.filter(), sort, limit)


def offer_page(
    by: Caller,
    offer_filter: OfferFilter,
    order: OfferOrder = OfferOrder.GPU_PRICE,
    *,
    limit: int,
    cursor: str | None = None,
) -> OfferPage:
    """Current offers in that order; only that by the price of a GPU-hour has pages. Raises `InvalidInput` for a bad
    cursor, `UnknownName`."""
    result = offer_lists.matching_offers(by.broker, offer_filter, order)
    if order is not OfferOrder.GPU_PRICE:
        if cursor is not None:
            raise InvalidInput("only the order gpu-price has pages", where="cursor")
        return OfferPage.from_parts(result, offers=result.rows[:limit], next_cursor=None)
    rest = sorted(result.rows, key=_sort_key)
    if cursor is not None:
        after = parse_cursor(cursor, int, int, str)
        rest = [row for row in rest if _sort_key(row) > after]
    rows = rest[:limit]
    following = cursor_of(*_sort_key(rows[-1])) if len(rest) > limit else None
    return OfferPage.from_parts(result, offers=rows, next_cursor=following)


@dataclass(frozen=True, slots=True)
class CheapestNow:
    """The cheapest offer of a capacity type now, and earlier; None if none is recorded."""

    offer: OfferResult
    earlier: OfferResult | None


def cheapest(by: Caller, gpu: str, ago: timedelta) -> list[CheapestNow]:
    """For each capacity type, the cheapest offer of the accelerator that is neither sold out nor suspicious, and the
    cheapest one ``ago``."""
    return share_result(by, ("cheapest", gpu, ago), lambda: _cheapest_of(by.broker, gpu, ago))


def _cheapest_of(broker: Broker, gpu: str, ago: timedelta) -> list[CheapestNow]:
    query = OfferQuery(accelerators=(gpu,))
    current = find_offers(broker, query)
    earlier_time = current.now - ago
    past = broker.store.market.offers_at(earlier_time, query=query)
    earlier = _cheapest([offer for offer in past if offer.provider != SANDBOX], earlier_time)
    return [
        CheapestNow(OfferResult.of(row), OfferResult.of(earlier[kind]) if kind in earlier else None)
        for kind, row in _cheapest(current.offers, current.now).items()
    ]


def _cheapest(offers: Iterable[Offer], at: datetime) -> dict[CapacityType, ListedOffer]:
    best: dict[CapacityType, ListedOffer] = {}
    for row in sorted(rows(offers, at), key=_sort_key):
        offer = row.offer
        if offer.price is not None and is_obtainable(offer):
            best.setdefault(offer.capacity_type, row)
    return best


def _sort_key(row: ListedOffer) -> tuple[int, int, str]:
    """The sort key of an offer: the price per GPU. As on the command line, offers where jobs can start come first, and
    unknown prices after known ones, then commitments of months, then machines without a GPU."""
    offer, price = row.offer, row.per_gpu or row.offer.price
    flags = (offer.engine is None, offer.count == 0, offer.term_months is not None, price is None)
    rank = sum(2**place for place, flag in enumerate(reversed(flags)) if flag)
    return row.standing * 2 ** len(flags) + rank, price.micros if price is not None else 0, offer.id


class OfferPage(OfferList):
    """Offers where jobs can start first, cheapest GPU first. ``matching``: their number on all pages."""

    next_cursor: str | None


def price_history(
    by: Caller,
    wanted: WantedMachines,
    since: Annotated[AwareDatetime | None, Field(description="Start of the period, with a time zone.")] = None,
    until: Annotated[AwareDatetime | None, Field(description="End of the period. Default: now.")] = None,
    limit: Annotated[int, Field(ge=1, le=100, description="Series, the cheapest first.")] = 30,
) -> PriceHistoryList:
    """How prices changed (default: in 30 days): one series per pool and source, cheapest first."""
    end = until or by.broker.clock.now()
    return PriceHistoryList.of(
        price_histories(by.broker, wanted.filter(), since or end - timedelta(days=30), end, limit=limit)
    )


def price_status(by: Caller) -> PriceStatus:
    """The age of each provider's prices, and poll failures."""
    return polling.price_status(by.broker)
