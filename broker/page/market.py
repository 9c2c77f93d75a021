"""Offers, and the queue of waiting jobs."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query
from fastapi.responses import Response

from broker.core.errors import UnknownName
from broker.core.market.offers import CapacityType
from broker.page.drawing import drawn
from broker.page.visitors import By
from broker.server import shown
from broker.server.shown import MarketFilter

AT = "/offers"
_ROWS = 50

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
    kinds = [one for one in CapacityType if one == capacity_type]
    if capacity_type and not kinds:
        raise UnknownName("capacity type", capacity_type, [one.value for one in CapacityType])
    wanted = MarketFilter(_names(gpu), _names(provider), _names(region), frozenset(kinds), available, live)
    found = shown.offer_page(by.caller, wanted, limit=_ROWS, cursor=cursor)
    asked = {"gpu": gpu, "provider": provider, "region": region, "capacity_type": capacity_type}
    flags = {name: "true" for name, said in (("available", available), ("live", live)) if said}
    given = {name: value for name, value in asked.items() if value} | flags
    values = {
        "page": found,
        "asked": asked | {"available": available, "live": live},
        "capacity_types": list(CapacityType),
        "first": f"{AT}?{urlencode(given)}" if cursor is not None else "",
        "more": f"{AT}?{urlencode(given | {'cursor': found.next_cursor})}" if found.next_cursor else "",
    }
    return drawn("offers.html", by, values, title="Offers", at=AT)


def queue(by: By) -> Response:
    """The waiting jobs in queue order."""
    return drawn("queue.html", by, {"queue": shown.queue(by.caller)}, title="Queue", at="/queue")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)
