"""The current offers of a query, cheapest first, read as the iterator advances.

An index sorts current offers by accelerator, number of accelerators and price: offers with one number are read in its
order, some at a time, and those with several numbers are merged. So the time to find the cheapest offer does not depend
on the number of offers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from heapq import merge
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select, tuple_

from broker.core.market.offer_order import OfferOrder
from broker.core.market.offers import Offer, OfferQuery
from broker.store.engine.statement_cache import cached_statement, distinct
from broker.store.market.market import CPU, conditions, has_patterns
from broker.store.market.offer_rows import OFFER_QUERY, to_offers
from broker.store.schema.market import OfferRow, PoolRow

_FIRST_PAGE, _MAX_PAGE = (
    2,
    512,
)  # rows read at a time for each kind of machine: few at first, as often the first offer suffices
# From the offers, not the pools: in the index by price, the next number follows directly.
_NEXT_COUNT = select(func.min(OfferRow.count)).where(
    OfferRow.accelerator == bindparam("accelerator"), OfferRow.count > bindparam("after"), OfferRow.ended_at.is_(None)
)


def by_price(connection: Connection, query: OfferQuery, order: OfferOrder) -> Iterator[Offer]:
    """The matching current offers with a known price, as `broker.store.market.market.offers`, cheapest first by the
    price of the machine or of a GPU. Raises ValueError for another order.
    """
    if order not in (OfferOrder.PRICE, OfferOrder.GPU_PRICE):
        raise ValueError(f"{order} is not an order by price")
    common_query = replace(query, accelerators=(), count=None)
    accelerators = ["" if name == CPU else name for name in query.accelerators]
    streams = [
        _machine_offers(connection, accelerator, count, common_query)
        for accelerator in accelerators or distinct(connection, PoolRow.accelerator)
        for count in _gpu_counts(connection, accelerator, query)
    ]

    def price(offer: Offer) -> float:
        assert offer.price is not None, "only known prices are read"
        return offer.price.micros / (offer.count if order is OfferOrder.GPU_PRICE and offer.count else 1)

    yield from merge(*streams, key=price)


def _gpu_counts(connection: Connection, accelerator: str, query: OfferQuery) -> Iterator[int]:
    """The numbers of accelerators of machines with that accelerator that match."""
    after = -1 if accelerator == "" and CPU in query.accelerators else (query.count or 0) - 1
    while (count := connection.scalar(_NEXT_COUNT, {"accelerator": accelerator, "after": after})) is not None:
        yield int(count)
        after = int(count)


def _machine_offers(connection: Connection, accelerator: str, count: int, common_query: OfferQuery) -> Iterator[Offer]:
    """The offers of machines with that many accelerators that match the rest of the query, cheapest first."""
    statement = cached_statement(_page, connection, common_query, looks_up=has_patterns(common_query))
    position: dict[str, Any] = {"accelerator": accelerator, "count": count, "micros": 0, "id": 0}
    page_size = _FIRST_PAGE
    while True:
        rows = connection.execute(statement, {**position, "most": page_size}).all()
        yield from to_offers([row[:-1] for row in rows])
        if len(rows) < page_size:
            return
        position |= {"micros": rows[-1].micros, "id": rows[-1].id}
        page_size = min(page_size * 2, _MAX_PAGE)


def _page(connection: Connection | None, common_query: OfferQuery) -> Select[Any]:
    """The query for some offers after a price and id, in that order."""
    filters = [condition for _, condition in conditions(connection, common_query)]
    if common_query.max_price is not None:
        filters.append(OfferRow.micros <= common_query.max_price.micros)
    return (
        OFFER_QUERY.add_columns(OfferRow.id)
        .where(OfferRow.accelerator == bindparam("accelerator"), OfferRow.count == bindparam("count"))
        .where(OfferRow.ended_at.is_(None), ~OfferRow.superseded, *filters)
        .where(tuple_(OfferRow.micros, OfferRow.id) > tuple_(bindparam("micros"), bindparam("id")))
        .order_by(OfferRow.micros, OfferRow.id)
        .limit(bindparam("most"))
    )
