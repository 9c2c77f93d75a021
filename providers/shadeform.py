"""Shadeform's machines of other clouds, on demand: prices, and the regions that have capacity now. Needs an API key.

A row is one machine of one cloud, with its price in whole US cents per hour and its regions; each region becomes an
offer of ``shadeform`` in the region ``CLOUD.REGION``, because Shadeform sells it, at its own price. Traps: an entry of
a region may be of spot capacity (``rental_type``), whose price the row does not have: it is skipped and counted.
Fields: Shadeform's OpenAPI document (``GET /v1/instances/types``), read in November 2026. No rate limit is published;
it is one call.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import ClassVar

from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from providers import rows as parse
from providers.http import Url
from providers.listing import KeyedProvider, KeyedSettings, rows_of
from providers.rows import OfferRows, Row, RowRejected, short

_CENTS = 100


class ShadeformSettings(KeyedSettings):
    """``base_url``: the URL above ``/v1/instances/types``. ``api_key``: default: SHADEFORM_API_KEY."""

    base_url: Url = "https://api.shadeform.ai"


class Shadeform(KeyedProvider[ShadeformSettings]):
    """Every machine that Shadeform lists, in every region of its cloud."""

    name = "shadeform"
    Settings: ClassVar = ShadeformSettings
    _source = "shadeform-api"
    title, variable, document = "Shadeform", "SHADEFORM_API_KEY", "instance types"
    adds = "prices and availability of some twenty smaller clouds, as Shadeform sells them"

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query: one call. Raises `LoginMissing`, `RetryLater`, `Refused` and `Malformed`."""
        with self._open() as api:
            answer = api.get("/v1/instances/types", token=self._key, header="X-API-KEY")
        yield from parse.distinct(parse.read_rows(rows_of(answer, "instance_types", self.name), self._read))

    def _read(self, row: Row) -> OfferRows:
        cloud = parse.name(row.get("cloud"), "cloud")
        instance_type = parse.name(row.get("cloud_instance_type"), f"{cloud}: cloud_instance_type")
        label = f"{cloud}: {instance_type}"
        regions = row.get("availability")
        if not isinstance(regions, list) or not regions:
            raise RowRejected("malformed_row", f"{label}: availability is {short(regions)}")
        yield from parse.read_rows(regions, lambda region: [self._offer(row, cloud, instance_type, region)])

    def _offer(self, row: Row, cloud: str, instance_type: str, region: Row) -> Offer:
        label, rental_type = f"{cloud}: {instance_type}", region.get("rental_type", "on_demand")
        if rental_type != "on_demand":
            raise RowRejected("price_not_told", f"{label}: {short(rental_type)} in {short(region.get('region'))}")
        raw = row.get("configuration")
        if not isinstance(raw, dict):
            raise RowRejected("malformed_row", f"{label}: configuration is {short(raw)}")
        is_available = region.get("available")
        if not isinstance(is_available, bool):
            raise RowRejected("malformed_row", f"{label}: available is {short(is_available)}")
        count = parse.whole(raw.get("num_gpus"), f"{label}: num_gpus")
        return Offer(
            provider=self.name,
            region=f"{cloud}.{parse.name(region.get('region'), f'{label}: region')}",
            zone=None,
            instance_type=instance_type,
            accelerator=_card(raw),
            count=count,
            capacity_type=CapacityType.ON_DEMAND,
            price=parse.price(row.get("hourly_price"), label, per=_CENTS),
            as_of=self._clock.now(),
            source=self._source,
            cpus=parse.figure(raw.get("vcpus")),
            memory_gib=parse.figure(raw.get("memory_in_gb")),
            interconnect=_link(raw) if count > 1 else None,
            availability=Availability.AVAILABLE if is_available else Availability.UNAVAILABLE,
            unavailable_because="" if is_available else "Shadeform has none there",
            max_age=timedelta(hours=2),
        )


def _card(machine: Row) -> str:
    """The accelerator, from ``H100`` or ``A100_80G`` and the memory of one card."""
    gpu_type = machine.get("gpu_type")
    text = gpu_type if isinstance(gpu_type, str) else ""
    return parse.accelerator(
        gpu_type,
        text.replace("_", " "),
        text.partition("_")[0],
        memory_gib=parse.figure(machine.get("vram_per_gpu_in_gb")),
    )


def _link(machine: Row) -> Interconnect | None:
    interconnect = machine.get("interconnect")
    text = interconnect.lower() if isinstance(interconnect, str) else ""
    if machine.get("nvlink") is True or "sxm" in text or "nvlink" in text:
        return Interconnect.NVLINK
    return Interconnect.PCIE if "pcie" in text else None
