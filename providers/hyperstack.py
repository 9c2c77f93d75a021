"""Hyperstack's GPU machines, on demand and spot, by region, with stock. Needs an API key.

Two calls: the flavors (machines) of each region, and the price book, with the hourly price of each resource. A
GPU flavor costs its GPUs: their vCPUs, memory and disks are priced 0 there. A flavor's ``gpu`` is the resource's name;
with ``-spot`` at its end it is spot capacity. The account's discount is in ``value``; prices with a start or an end
hold then. Traps: names are Hyperstack's own (``H100-80G-PCIe-NVLink``); the price book has disks, addresses and CPUs,
too, which are not machines.
Fields: Hyperstack's OpenAPI document 1.0 (``FlavorFields``, ``PricebookModel``), also as its Python SDK 1.56 has them.
Limit: 500 calls a minute from one address ("Rate limits"). Read in November 2026.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from broker.core.errors import Malformed
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from providers import rows as parse
from providers.http import Url
from providers.listing import KeyedProvider, KeyedSettings
from providers.rows import OfferRows, Row, RowRejected, short

_SPOT = "-spot"
_MEMORY = re.compile(r"-(\d{2,3})G\b")
_MAX_AGE = {CapacityType.ON_DEMAND: timedelta(hours=2), CapacityType.SPOT: timedelta(minutes=30)}


class HyperstackSettings(KeyedSettings):
    """``base_url``: the URL above ``/core/flavors``. ``api_key``: default: HYPERSTACK_API_KEY."""

    base_url: Url = "https://infrahub-api.nexgencloud.com/v1"


class Hyperstack(KeyedProvider[HyperstackSettings]):
    """Every GPU flavor, in every region that has it."""

    name = "hyperstack"
    Settings: ClassVar = HyperstackSettings
    _source = "hyperstack-api"
    title, variable = "Hyperstack", "HYPERSTACK_API_KEY"
    document, adds = "flavors and price book", "Hyperstack's prices and stock"

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query: two calls. Raises `LoginMissing`, `RetryLater`, `Refused` and `Malformed`."""
        with self._open() as api:
            book = api.get("/pricebook", token=self._key, header="api_key")
            answer = api.get("/core/flavors", token=self._key, header="api_key")
        groups = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(book, list) or not isinstance(groups, list):
            raise Malformed("no price book, or no flavors in the answer", where=self.name)
        prices, now = dict[str, object](), self._clock.now()
        yield from parse.read_rows(book, lambda row: _record_price(row, prices, now))
        yield from parse.distinct(parse.read_rows(groups, lambda group: self._group(group, prices)))

    def _group(self, group: Row, prices: Mapping[str, object]) -> OfferRows:
        """The flavors of one GPU in one region."""
        flavors = group.get("flavors")
        if not isinstance(flavors, list):
            raise RowRejected("malformed_row", f"{short(group.get('gpu'))}: flavors is {short(flavors)}")
        yield from parse.read_rows(flavors, lambda flavor: self._flavor(flavor, group, prices))

    def _flavor(self, row: Row, group: Row, prices: Mapping[str, object]) -> OfferRows:
        flavor = parse.name(row.get("name"), "name")
        gpu_name = row.get("gpu", group.get("gpu"))
        if gpu_name == "" and row.get("gpu_count") == 0 and group.get("gpu") in ("", None):
            return  # a CPU flavor
        if not isinstance(gpu_name, str) or not gpu_name:
            raise RowRejected("unknown_accelerator", f"{flavor}: {short(gpu_name)}")
        card, count = gpu_name.removesuffix(_SPOT), parse.whole(row.get("gpu_count"), f"{flavor}: gpu_count")
        region = parse.name(row.get("region_name", group.get("region_name")), f"{flavor}: region")
        label = f"{flavor}, {gpu_name}"
        in_stock = row.get("stock_available")
        if not isinstance(in_stock, bool):
            raise RowRejected("malformed_row", f"{label}: stock_available is {short(in_stock)}")
        kind = CapacityType.SPOT if gpu_name.endswith(_SPOT) else CapacityType.ON_DEMAND
        has_nvlink = "SXM" in card or "NVLink" in card
        yield Offer(
            provider=self.name,
            region=region,
            zone=None,
            instance_type=flavor,
            accelerator=_accelerator(card),
            count=count,
            capacity_type=kind,
            price=parse.price(prices.get(gpu_name), label, times=count),  # listed per GPU, and the offer is the machine
            as_of=self._clock.now(),
            source=self._source,
            cpus=parse.figure(row.get("cpu")),
            memory_gib=parse.figure(row.get("ram")),
            interconnect=(Interconnect.NVLINK if has_nvlink else Interconnect.PCIE) if count > 1 else None,
            availability=Availability.AVAILABLE if in_stock else Availability.UNAVAILABLE,
            unavailable_because="" if in_stock else "out of stock there",
            max_age=_MAX_AGE[kind],
        )


def _record_price(row: Row, prices: dict[str, object], now: datetime) -> OfferRows:
    """Records the price of one resource. Yields nothing: a damaged row shows in the flavors without a price."""
    resource = row.get("name")
    if not isinstance(resource, str) or not resource:
        raise RowRejected("malformed_row", f"a price of {short(resource)}")
    starts, ends = (_parse_time(row.get(key), f"{resource}: {key}") for key in ("start_time", "end_time"))
    if (starts is None or starts <= now) and (ends is None or now < ends):
        value = row.get("value")
        if resource in prices and prices[resource] != value:
            raise RowRejected(
                "conflicting_duplicate", f"{resource}: {short(prices[resource])}, and again {short(value)}"
            )
        prices[resource] = value
    yield from ()


def _parse_time(value: object, label: str) -> datetime | None:
    if value is None:
        return None
    try:
        parsed = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise RowRejected("malformed_row", f"{label} is {short(value)}") from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _accelerator(card: str) -> str:
    """From ``H100-80G-SXM5``, ``RTX-A6000`` or ``L40``: the name without its memory, or its beginning."""
    memory = _MEMORY.search(card)
    plain = _MEMORY.sub("", card).replace("-NVLink", "").replace("-SE", "")
    return parse.accelerator(plain, plain.rpartition("-")[0], card, memory_gib=float(memory[1]) if memory else None)
