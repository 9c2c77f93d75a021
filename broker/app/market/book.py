"""Compares the price book with live prices: which prices changed since their page was read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from broker.app.wiring import Broker
from broker.core.market.book import BookPage, HasPages
from broker.core.market.judging import ModelLevels, levels_of
from broker.core.market.offers import Offer

BOOK = "pricebook"
MOVED = 0.02  # a change of the price from which a row has moved
_ANYWHERE = "global"  # the region of a page that names none


@dataclass(frozen=True, slots=True)
class BookRow:
    """A row of the book and the cheapest live price of the same machine that is not in doubt, None if no source has
    one. ``change``: the live price divided by the book's, minus 1."""

    page: BookPage
    offer: Offer
    live: Offer | None
    change: float | None

    @property
    def moved(self) -> bool:
        return self.change is not None and abs(self.change) >= MOVED


def listed_levels(broker: Broker) -> ModelLevels:
    """The price levels of the book that comes with gpubroker, whatever the store holds and whichever book the settings
    name: what every price from elsewhere is compared with."""
    if BOOK not in broker.registries.providers:
        return {}
    book = broker.registries.build_provider(BOOK, clock=broker.clock, settings={})
    assert isinstance(book, HasPages)
    return levels_of(
        (offer.accelerator or "", offer.capacity_type.value, offer.provider, float(each.micros))
        for page in book.pages()
        for offer in page.offers
        if (each := offer.price_per_unit) is not None
    )


@dataclass(frozen=True, slots=True)
class BookCheck:
    """Every row of the book, those that moved most first, then those without a live price. ``now``: UTC."""

    rows: tuple[BookRow, ...]
    now: datetime


def check_book(broker: Broker) -> BookCheck:
    """Compare every row of the price book with the live prices in the store; sends no request. Raises `InvalidInput`
    for a book that cannot be read, `UnknownName` if no price book is registered."""
    book = broker.provider(BOOK)
    assert isinstance(book, HasPages)
    live: dict[tuple[object, ...], list[Offer]] = {}
    for offer in broker.store.offers():
        if not offer.reference and not offer.imported and offer.doubt is None and offer.has_valid_price():
            live.setdefault(_machine(offer), []).append(offer)
    rows = [_row(page, offer, live.get(_machine(offer), ())) for page in book.pages() for offer in page.offers]
    return BookCheck(tuple(sorted(rows, key=_order)), broker.clock.now())


def _machine(offer: Offer) -> tuple[object, ...]:
    """The identity of a machine, without its region."""
    name = offer.instance_type.lower()
    return offer.provider, name, offer.accelerator, offer.count, offer.capacity_type, offer.term_months


def _row(page: BookPage, offer: Offer, live: Iterable[Offer]) -> BookRow:
    here = [one for one in live if _ANYWHERE in (offer.region, one.region) or one.region == offer.region]
    found = min(here, key=lambda one: (one.price.micros if one.price else 0, one.id), default=None)
    change = None
    if found is not None and found.price is not None and offer.price is not None:
        change = found.price.micros / offer.price.micros - 1
    return BookRow(page, offer, found, change)


def _order(row: BookRow) -> tuple[bool, float, str]:
    return row.change is None, -abs(row.change or 0.0), row.offer.id
