"""Offers, and the queue of waiting jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query
from fastapi.responses import Response

from broker.app.market.offer_rows import OfferFilter
from broker.app.market.price_history import over
from broker.app.market.risk import risks
from broker.app.results.offers import OfferResult, RiskResult
from broker.app.results.price_history import PriceSeries
from broker.core.market.offers import CapacityType
from broker.page.charts import HIGH, WIDE, price_curve
from broker.page.drawing import drawn
from broker.page.visitors import By
from broker.server import routes_jobs

AT = "/offers"
_ROWS = 50
_SERIES = 12  # price series on one page
_CURRENT = ("live", "recorded", "simulated")  # kinds of prices

Text = Annotated[str, Query(max_length=200)]


def offer_list(
    by: By,
    gpu: Text = "",
    provider: Text = "",
    region: Text = "",
    capacity_type: Text = "",
    available: Annotated[bool, Query()] = False,
    live: Annotated[bool, Query()] = False,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    """Offers, cheapest GPU first, in pages, with the age of each price. A filter may have several names, separated by
    commas."""
    asked = {"gpu": gpu, "provider": provider, "region": region, "capacity_type": capacity_type}
    names = {name: _names(text) for name, text in asked.items()}
    wanted = OfferFilter.of({**names, "price_kind": _CURRENT if live else ()}, available=available)
    found = routes_jobs.offer_page(by.caller, wanted, limit=_ROWS, cursor=cursor)
    flags = {name: "true" for name, said in (("available", available), ("live", live)) if said}
    given = {name: value for name, value in asked.items() if value} | flags
    values = {
        "page": found,
        "asked": asked | {"available": available, "live": live},
        "capacity_types": list(CapacityType),
        "history": [_history_of(one) for one in found.offers],
        "first": f"{AT}?{urlencode(given)}" if cursor is not None else "",
        "more": f"{AT}?{urlencode(given | {'cursor': found.next_cursor})}" if found.next_cursor else "",
    }
    return drawn("offers.html", by, values, title="Offers", at=AT)


def price_history(
    by: By,
    gpu: Text = "",
    provider: Text = "",
    region: Text = "",
    capacity_type: Text = "",
    instance_type: Text = "",
    days: Annotated[int, Query(ge=1, le=366)] = 30,
) -> Response:
    """Recorded prices (USD) of matching offers over ``days``, with their risk of interruption, as chart
    and table."""
    now = by.caller.broker.clock.now()
    asked = {"gpu": gpu, "provider": provider, "region": region, "capacity_type": capacity_type}
    wanted = OfferFilter.of({name: _names(text) for name, text in (asked | {"instance_type": instance_type}).items()})
    found = over(by.caller.broker, wanted, now - timedelta(days=days), now, most=_SERIES)
    risk = risks(by.caller.broker, wanted.query)
    values = {
        "found": found,
        "series": [
            (PriceSeries.of(one), price_curve(one), RiskResult.of(risk.of(one.offer))) for one in found.histories
        ],
        "days": days,
        "wide": WIDE,
        "high": HIGH,
    }
    return drawn("prices.html", by, values, title="Price history", at=AT)


def queue(by: By) -> Response:
    """The waiting jobs in queue order."""
    return drawn("queue.html", by, {"queue": routes_jobs.show_queue(by.caller)}, title="Queue", at="/queue", live=True)


def _history_of(one: OfferResult) -> str:
    place = {
        "gpu": one.machine,
        "provider": one.provider,
        "region": one.region,
        "capacity_type": one.capacity_type.value,
    }
    return f"/prices?{urlencode(place | {'instance_type': one.instance_type})}"


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)
