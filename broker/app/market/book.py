"""The price levels of the bundled price book, with which every price from elsewhere is compared."""

from __future__ import annotations

from broker.app.wiring import Broker
from broker.core.market.market_judge import ModelLevels, levels_of
from broker.core.market.offers import Offer, OfferQuery

_BOOK = "pricebook"


def book_levels(broker: Broker) -> ModelLevels:
    """The price levels of the book that comes with gpubroker, whatever the store holds and whichever book the settings
    name."""
    if _BOOK not in broker.registries.providers:
        return {}
    book = broker.registries.build_provider(_BOOK, clock=broker.clock, settings={})
    return levels_of(
        (row.accelerator or "", row.capacity_type.value, row.provider, float(unit_price.micros))
        for row in book.offers(OfferQuery())
        if isinstance(row, Offer) and (unit_price := row.price_per_unit) is not None
    )
