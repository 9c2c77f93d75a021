"""Recorded prices, for the API and the page."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from broker.app.market.price_history import over
from broker.app.results.price_history import PriceHistoryList
from broker.core.market.machine_filter import counts_by_accelerator
from broker.core.market.offers import Offer, OfferQuery
from broker.server.callers import Caller

if TYPE_CHECKING:
    from broker.server.reporting import SeriesQuery


def history(by: Caller, wanted: SeriesQuery, start: datetime, end: datetime, limit: int) -> PriceHistoryList:
    """The price series that match, ``start`` to ``end`` (UTC), at most ``limit``, cheapest first. Raises
    `InvalidInput`, `UnknownName`."""
    counts = counts_by_accelerator(wanted.gpus, where="gpu")

    def fits(offer: Offer) -> bool:
        of_it = counts.get(offer.accelerator or "cpu")
        return not of_it or offer.count in of_it

    query = OfferQuery(
        accelerators=tuple(sorted(counts)),
        capacity_types=wanted.capacity_types,
        providers=wanted.providers,
        regions=wanted.regions,
    )
    return PriceHistoryList.of(over(by.broker, query, start, end, fits, most=limit))
