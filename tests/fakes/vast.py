"""Vast.ai's search: offers according to its API reference, filtered, ordered and paged as requested."""

import operator
import random
from collections.abc import Callable
from decimal import Decimal
from operator import attrgetter
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tests.fakes.server import HttpAnswer, HttpRequest

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "neq": operator.ne, "gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le,
    "in": lambda value, values: value in values, "notin": lambda value, values: value not in values,
}  # fmt: skip


class VastListing(BaseModel):
    """One offer of the answer. ``verified`` is a filter, ``verification`` the field it looks at."""

    model_config = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)

    id: int
    machine_id: int = 22990
    gpu_name: str = "RTX 4090"
    num_gpus: int = 1
    gpu_ram: int = 24564
    gpu_frac: Decimal = Decimal("0.25")
    cpu_cores: int | None = 96
    cpu_cores_effective: Decimal = Decimal("24.0")
    cpu_ram: int = 257572
    bw_nvlink: Decimal = Decimal("0.0")
    dph_base: Decimal = Decimal("0.24666666666666665")
    dph_total: Decimal | None = Decimal("0.2466759259259259")
    storage_cost: Decimal = Decimal("0.0013333333333333335")
    min_bid: Decimal | None = Decimal("0.2")
    is_bid: bool = False
    discount_rate: Decimal = Decimal("0.0")
    discounted_dph_total: Decimal | None = Decimal("0.2466759259259259")
    geolocation: str | None = "Guangxi, CN"
    reliability2: Decimal = Decimal("0.9700835")
    rentable: bool = True
    rented: bool = False
    verification: str = "verified"


class VastMarket:
    """Answers ``POST /api/v0/bundles/``.

    As at Vast.ai, if more rows match than fit into a page and no order is requested, the page is a random sample.
    ``page``: the maximum rows of a page, whatever is requested. ``stuck``: it always sends the first page.
    """

    def __init__(self, *listings: VastListing, page: int = 64, stuck: bool = False) -> None:
        self.listings = list(listings)
        self.page = page
        self.stuck = stuck

    def __call__(self, request: HttpRequest) -> HttpAnswer:
        if (request.method, request.path) != ("POST", "/api/v0/bundles/"):
            return HttpAnswer(404, {"success": False, "msg": "no such path"})
        wanted = dict(request.body)
        kind, limit = wanted.pop("type", "on-demand"), wanted.pop("limit", self.page)
        order, _ = wanted.pop("order", []), wanted.pop("allocated_storage", 8)
        if kind not in ("on-demand", "ondemand", "bid", "reserved"):
            return HttpAnswer(400, {"error": "invalid_request", "msg": f"no such type: {kind}"})
        if self.stuck:
            wanted.pop("id", None)
        try:
            rows = [row for row in map(_offered(kind), self.listings) if _matches(row, wanted)]
        except (KeyError, TypeError, ValidationError) as error:
            return HttpAnswer(400, {"error": "invalid_request", "msg": str(error)})
        rows = rows if order else random.Random(1).sample(rows, len(rows))
        for field, direction in reversed(order):
            rows.sort(key=attrgetter(field), reverse=direction == "desc")
        return HttpAnswer(200, {"offers": [row.model_dump() for row in rows[: min(limit, self.page)]]})


def _offered(kind: str) -> Callable[[VastListing], VastListing]:
    """Converts a listing to the form of an answer of that kind."""

    def look(listing: VastListing) -> VastListing:
        if kind == "bid":
            return listing.model_copy(update={"is_bid": True, "dph_total": listing.min_bid})
        if kind == "reserved" or listing.dph_total is None:
            return listing
        return listing.model_copy(update={"discount_rate": Decimal(0), "discounted_dph_total": listing.dph_total})

    return look


def _matches(row: VastListing, wanted: dict[str, dict[str, Any]]) -> bool:
    for field, conditions in wanted.items():
        value = row.verification == "verified" if field == "verified" else getattr(row, field)
        if not all(_OPERATORS[name](value, asked) for name, asked in conditions.items()):
            return False
    return True
