"""Offers, and the queue of waiting jobs."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Query
from fastapi.responses import Response

from broker.app.market.experience import risks
from broker.app.market.offer_documents import OfferResult, RiskResult
from broker.app.market.offer_rows import OfferFilter
from broker.app.market.price_documents import PriceSeries
from broker.app.market.price_history import price_histories
from broker.app.use_cases import approvals, market
from broker.core.market.offers import CapacityType
from broker.server.page.charts import HEIGHT, WIDTH, price_curve
from broker.server.page.csv_files import AsCsv, csv_file
from broker.server.page.render import render_page
from broker.server.page.visitors import By

OFFERS_PATH = "/offers"
_ROWS, _MAX_ROWS = 50, 100_000  # of a page, of a file
_COLUMNS = (
    "provider region zone instance_type accelerator count capacity_type price_per_hour price_per_gpu_hour availability"
    " unavailable_because price_kind as_of source"
)
_SERIES = 12  # price series on one page
_CURRENT = ("live", "recorded", "simulated")  # kinds of prices

Text = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True)
class OfferNames:
    """The names in the address by which offers are chosen; several are separated by commas."""

    gpu: Text = ""
    provider: Text = ""
    region: Text = ""
    capacity_type: Text = ""

    @property
    def lists(self) -> dict[str, tuple[str, ...]]:
        return {name: _names(text) for name, text in vars(self).items()}


Named = Annotated[OfferNames, Depends()]


def offer_list(
    by: By,
    named: Named,
    available: Annotated[bool, Query()] = False,
    live: Annotated[bool, Query()] = False,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
    csv: AsCsv = False,
) -> Response:
    """Offers where jobs can start first, in pages, with the age of each price."""
    filters = vars(named)
    offer_filter = OfferFilter.of({**named.lists, "price_kind": _CURRENT if live else ()}, available=available)
    result = market.offer_page(by.caller, offer_filter, limit=_MAX_ROWS if csv else _ROWS, cursor=cursor)
    if csv:
        return csv_file("offers", _COLUMNS, result.offers)
    flags = {name: "true" for name, is_set in (("available", available), ("live", live)) if is_set}
    query = {name: value for name, value in filters.items() if value} | flags
    values = {
        "page": result,
        "asked": filters | {"available": available, "live": live},
        "capacity_types": list(CapacityType),
        "history": [_history_path(offer) for offer in result.offers],
        "file_path": f"{OFFERS_PATH}?{urlencode(query | {'csv': 'true'})}",
        "first": f"{OFFERS_PATH}?{urlencode(query)}" if cursor is not None else "",
        "more": f"{OFFERS_PATH}?{urlencode(query | {'cursor': result.next_cursor})}" if result.next_cursor else "",
    }
    return render_page("offers.html", by, values, title="Offers", at=OFFERS_PATH)


def price_history(
    by: By,
    named: Named,
    instance_type: Text = "",
    days: Annotated[int, Query(ge=1, le=366)] = 30,
) -> Response:
    """Recorded prices (USD) of matching offers over ``days``, with their risk of interruption, as chart
    and table."""
    now = by.caller.broker.clock.now()
    offer_filter = OfferFilter.of(named.lists | {"instance_type": _names(instance_type)})
    prices = price_histories(by.caller.broker, offer_filter, now - timedelta(days=days), now, limit=_SERIES)
    risk_index = risks(by.caller.broker, offer_filter.query)
    values = {
        "found": prices,
        "series": [
            (PriceSeries.of(history), price_curve(history), RiskResult.of(risk_index.of(history.offer)))
            for history in prices.histories
        ],
        "days": days,
        "wide": WIDTH,
        "high": HEIGHT,
    }
    return render_page("prices.html", by, values, title="Price history", at=OFFERS_PATH)


def queue(by: By, csv: AsCsv = False) -> Response:
    """The waiting jobs in queue order."""
    listing = approvals.show_queue(by.caller)
    if csv:
        columns = "turn id name team priority submitted_at offer start finish expected_cost late waiting_because"
        return csv_file("queue", columns, listing.waiting)
    return render_page("queue.html", by, {"queue": listing}, title="Queue", at="/queue", live=True)


def _history_path(offer: OfferResult) -> str:
    place = {
        "gpu": offer.machine,
        "provider": offer.provider,
        "region": offer.region,
        "capacity_type": offer.capacity_type.value,
    }
    return f"/prices?{urlencode(place | {'instance_type': offer.instance_type})}"


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)
