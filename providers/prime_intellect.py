"""Prime Intellect's machines of many clouds: prices and stock by data center, on demand and spot. Needs an API key.

A row is one machine of one cloud, priced as a whole, in the region ``CLOUD.DATACENTRE``. ``prices.onDemand`` is the
price in a data center, ``prices.communityPrice`` that of other people's machines, which replaces it. Traps: a machine
may be prepaid for some hours (``prepaidTime``), and its price may follow the market (``isVariable``): the first is
skipped and counted, the second is valid for minutes only; disks, vCPUs and memory beyond the default cost more. Fields:
Prime Intellect's OpenAPI document (``GET /api/v1/availability/gpus``), also as its Python SDK ``prime`` 0.18 has them.
No rate limit is published; it is one call for each hundred rows. Read in November 2026.
"""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from providers import rows as parse
from providers.http import Api, Url
from providers.listing import KeyedProvider, KeyedSettings, pages
from providers.rows import OfferRows, Row, RowRejected, short

_ROWS_PER_PAGE = 100
_MAX_AGE = {CapacityType.ON_DEMAND: timedelta(hours=2), CapacityType.SPOT: timedelta(minutes=30)}
_STOCK = {
    "available": (Availability.AVAILABLE, None),
    "high": (Availability.AVAILABLE, 0.9),
    "medium": (Availability.AVAILABLE, 0.6),
    "low": (Availability.AVAILABLE, 0.3),
    "unavailable": (Availability.UNAVAILABLE, None),
}


class PrimeIntellectSettings(KeyedSettings):
    """``base_url``: the URL above ``/api/v1``. ``api_key``: default: PRIME_API_KEY."""

    base_url: Url = "https://api.primeintellect.ai"


class PrimeIntellect(KeyedProvider[PrimeIntellectSettings]):
    """Every machine that Prime Intellect lists."""

    name = "prime_intellect"
    Settings: ClassVar = PrimeIntellectSettings
    _source = "prime-intellect-api"
    title, variable, needs = "Prime Intellect", "PRIME_API_KEY", "an API key with Availability -> Read"
    document, adds = "availability", "prices and stock of many clouds, as Prime Intellect sells them"

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query. Raises `LoginMissing`, `RetryLater`, `Refused` and `Malformed`."""
        with self._open() as api:
            rows = pages(partial(self._page, api), "items", "totalCount", self.name)
            yield from parse.distinct(parse.read_rows(rows, self._read))

    def _page(self, api: Api, page: str) -> Any:
        params = {"page": page, "page_size": str(_ROWS_PER_PAGE)}
        return api.get("/api/v1/availability/gpus", params=params, token=self._key)

    def _read(self, row: Row) -> OfferRows:
        cloud_id = parse.name(row.get("cloudId"), "cloudId")
        cloud, place = (
            parse.name(row.get("provider"), f"{cloud_id}: provider"),
            row.get("dataCenter") or row.get("country"),
        )
        label = f"{cloud}: {cloud_id}"
        costs = row.get("prices")
        if not isinstance(costs, dict):
            raise RowRejected("malformed_row", f"{label}: prices is {short(costs)}")
        parse.usd(costs.get("currency"))
        if row.get("prepaidTime"):
            raise RowRejected("prepaid", f"{label}: paid ahead for {short(row['prepaidTime'])} hours")
        spot, stock = row.get("isSpot"), row.get("stockStatus")
        if spot is not None and not isinstance(spot, bool):
            raise RowRejected("malformed_row", f"{label}: isSpot is {short(spot)}")
        availability, score = _STOCK.get(stock.lower() if isinstance(stock, str) else "", (None, None))
        if availability is None:
            raise RowRejected("malformed_row", f"{label}: stockStatus is {short(stock)}")
        count = parse.whole(row.get("gpuCount"), f"{label}: gpuCount")
        kind = CapacityType.SPOT if spot else CapacityType.ON_DEMAND
        community = costs.get("communityPrice")
        yield Offer(
            provider=self.name,
            region=f"{cloud}.{parse.name(place, f'{label}: dataCenter')}",
            zone=None,
            instance_type=cloud_id,
            accelerator=_card(row),
            count=count,
            capacity_type=kind,
            price=parse.price(costs.get("onDemand") if community is None else community, label),
            as_of=self._clock.now(),
            source=self._source,
            cpus=_included_amount(row.get("vcpu")),
            memory_gib=_included_amount(row.get("memory")),
            interconnect=_link(row) if count > 1 else None,
            availability=availability,
            unavailable_because="" if availability is Availability.AVAILABLE else "Prime Intellect has none there",
            score=score,
            max_age=_MAX_AGE[CapacityType.SPOT if costs.get("isVariable") else kind],
        )


def _card(row: Row) -> str:
    """From ``H100_80GB`` with the socket ``SXM5``: the PCIe card has another name than the SXM one."""
    gpu_type, socket = row.get("gpuType"), row.get("socket")
    plain = gpu_type.partition("_")[0] if isinstance(gpu_type, str) else ""
    pcie = f"{plain} PCIe" if isinstance(socket, str) and socket.lower() == "pcie" else None
    spaced = gpu_type.replace("_", " ") if isinstance(gpu_type, str) else None
    return parse.accelerator(pcie, gpu_type, spaced, plain, memory_gib=parse.figure(row.get("gpuMemory")))


def _included_amount(part: object) -> float | None:
    """The vCPUs or GiB included in the machine."""
    return parse.figure(part.get("defaultCount")) if isinstance(part, dict) else None


def _link(row: Row) -> Interconnect | None:
    socket = row.get("socket")
    if not isinstance(socket, str):
        return None
    return Interconnect.NVLINK if socket.lower().startswith("sxm") else Interconnect.PCIE
