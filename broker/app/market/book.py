"""Compares the price book with live prices: which prices changed since their page was read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from broker.app.results.offers import OfferedMachine
from broker.app.results.values import Figure, Moment, Result
from broker.app.wiring import Broker
from broker.core.market.book import BookPage, HasPages
from broker.core.market.judging import ModelLevels, levels_of
from broker.core.market.offers import Offer
from broker.core.values.money import Money

BOOK = "pricebook"
MOVED = 0.02  # a change of the price from which a row has moved
_ANYWHERE = "global"  # the region of a page that names none


class BookRow(OfferedMachine):
    """A row of the price book. ``page_date``: when ``url`` showed the price; ``live_price_per_hour``: the cheapest live
    one of the same machine, null where no source tells of it; ``change``: live by book, minus 1."""

    price_per_hour: Money | None
    page_date: date
    page: str
    url: str
    live_price_per_hour: Money | None
    live_source: str | None
    live_as_of: Moment | None
    change: Figure | None
    moved: bool


class BookReport(Result):
    """Every row of the price book, those that moved most first. ``compared``: rows with a live price."""

    as_of: Moment
    compared: int
    moved: int
    rows: list[BookRow]


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


def check_book(broker: Broker) -> BookReport:
    """Compare every row of the price book with the live prices in the store; sends no request. Raises `InvalidInput`
    for a book that cannot be read, `UnknownName` if no price book is registered."""
    book = broker.provider(BOOK)
    assert isinstance(book, HasPages)
    live: dict[tuple[object, ...], list[Offer]] = {}
    for offer in broker.store.offers():
        if not offer.reference and not offer.imported and offer.doubt is None and offer.has_valid_price():
            live.setdefault(_machine(offer), []).append(offer)
    found = [
        (offer.id, _row(page, offer, live.get(_machine(offer), ()))) for page in book.pages() for offer in page.offers
    ]
    rows = [row for _, row in sorted(found, key=_order)]
    return BookReport(
        as_of=broker.clock.now(),
        compared=sum(row.change is not None for row in rows),
        moved=sum(row.moved for row in rows),
        rows=rows,
    )


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
    return BookRow.from_parts(
        offer,
        price_per_hour=offer.price,
        page_date=page.day,
        page=page.title,
        url=page.url,
        live_price_per_hour=found.price if found else None,
        live_source=found.source if found else None,
        live_as_of=found.as_of if found else None,
        change=change,
        moved=change is not None and abs(change) >= MOVED,
    )


def _order(found: tuple[str, BookRow]) -> tuple[bool, float, str]:
    id, row = found
    return row.change is None, -abs(row.change or 0.0), id
