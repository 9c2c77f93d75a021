"""Recorded prices, for the API and the page."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from broker.app.market.price_history import PriceHistories, over
from broker.core.market.machine_filter import counts_by_accelerator
from broker.core.market.offers import CapacityType, Offer, OfferQuery
from broker.server.callers import Caller


class SeriesQuery(NamedTuple):
    """Which price series: those that match every filter that is not empty. ``gpus``: ``H100``, ``H100:8``, ``cpu``."""

    gpus: tuple[str, ...] = ()
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    capacity_types: tuple[CapacityType, ...] = ()
    instance_types: tuple[str, ...] = ()

    def query(self) -> OfferQuery:
        """The query of the store. Raises `InvalidInput`, `UnknownName`."""
        return OfferQuery(
            accelerators=tuple(sorted(counts_by_accelerator(self.gpus, where="gpu"))),
            capacity_types=self.capacity_types,
            providers=self.providers,
            regions=self.regions,
        )


def series(by: Caller, wanted: SeriesQuery, start: datetime, end: datetime, limit: int) -> PriceHistories:
    """The price series that match, ``start`` to ``end`` (UTC), at most ``limit``, cheapest first. Raises
    `InvalidInput`, `UnknownName`."""
    counts = counts_by_accelerator(wanted.gpus, where="gpu")

    def fits(offer: Offer) -> bool:
        of_it, types = counts.get(offer.accelerator or "cpu"), wanted.instance_types
        return (not of_it or offer.count in of_it) and (not types or offer.instance_type in types)

    return over(by.broker, wanted.query(), start, end, fits, most=limit)
