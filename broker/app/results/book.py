"""The comparison of the price book with live prices as a result."""

from __future__ import annotations

from datetime import date
from typing import Self

from broker.app.market.book import BookCheck, BookRow
from broker.app.results.offers import OfferedMachine
from broker.app.results.values import Figure, Moment, Result
from broker.core.values.money import Money


class BookRowResult(OfferedMachine):
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

    @classmethod
    def of(cls, row: BookRow) -> Self:
        offer, live = row.offer, row.live
        return cls.from_parts(
            offer,
            row,
            price_per_hour=offer.price,
            page_date=row.page.day,
            page=row.page.title,
            url=row.page.url,
            live_price_per_hour=live.price if live else None,
            live_source=live.source if live else None,
            live_as_of=live.as_of if live else None,
        )


class BookReport(Result):
    """Every row of the price book, those that moved most first. ``compared``: rows with a live price."""

    as_of: Moment
    compared: int
    moved: int
    rows: list[BookRowResult]

    @classmethod
    def of(cls, check: BookCheck) -> Self:
        return cls(
            as_of=check.now,
            compared=sum(row.change is not None for row in check.rows),
            moved=sum(row.moved for row in check.rows),
            rows=[BookRowResult.of(row) for row in check.rows],
        )
