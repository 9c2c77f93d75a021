"""Lambda's instances on demand: prices, and the regions that have capacity now. Needs an API key.

A row is one instance type with its price in whole US cents per hour and the regions where it is available; each region
becomes an offer. A type without available regions is one sold-out offer in the region ``global``.
Fields: Lambda's Cloud API, version 1.10 (``GET /api/v1/instance-types``), which allows one request a second.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import ClassVar

from broker.core.errors import Malformed
from broker.core.market.offers import Availability, Billing, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from providers import rows as parse
from providers.http import Url
from providers.listing import KeyedProvider, KeyedSettings
from providers.rows import OfferRows, Row, RowRejected, short

_CENTS = 100
_MEMORY = re.compile(r"\s*\((\d{1,4}) GB\s*([^)]*)\)")
_IN_NAME = re.compile(r"gpu_\d+x_(.+)")
_GLOBAL_REGION = "global"


class LambdaCloudSettings(KeyedSettings):
    """``base_url``: the URL above ``/api/v1/instance-types``. ``api_key``: default: LAMBDA_API_KEY."""

    base_url: Url = "https://cloud.lambda.ai"


class LambdaCloud(KeyedProvider[LambdaCloudSettings]):
    """Every instance type of Lambda, in every region where it is available."""

    name = "lambda"
    Settings: ClassVar = LambdaCloudSettings
    _source = "lambda-api"
    title, variable = "Lambda", "LAMBDA_API_KEY"
    document, adds = "instance types", "Lambda's prices and the regions that have capacity"
    per_second = 1

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query: one call. Raises `LoginMissing`, `RetryLater`, `Refused` and `Malformed`."""
        with self._open() as api:
            answer = api.get("/api/v1/instance-types", token=self._key)
        rows = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(rows, dict):
            raise Malformed("no data in the answer", where=self.name)
        yield from parse.distinct(parse.read_rows(rows.values(), self._read))

    def _read(self, row: Row) -> OfferRows:
        kind = row.get("instance_type")
        if not isinstance(kind, dict):
            raise RowRejected("malformed_row", f"no instance_type: {short(kind)}")
        regions = row.get("regions_with_capacity_available")
        if not isinstance(regions, list):
            raise RowRejected("malformed_row", f"{short(kind.get('name'))}: regions are {short(regions)}")
        if not regions:
            yield self._offer(kind, _GLOBAL_REGION, "no region has any")
        yield from parse.read_rows(
            regions, lambda region: [self._offer(kind, parse.name(region.get("name"), "region"))]
        )

    def _offer(self, kind: Row, region: str, unavailable_reason: str = "") -> Offer:
        instance_type = parse.name(kind.get("name"), "name")
        raw = kind.get("specs")
        specs = raw if isinstance(raw, dict) else {}
        gpus = parse.number(specs.get("gpus"), f"{instance_type}: gpus")
        count = parse.whole(specs.get("gpus"), "gpus") if gpus else 0
        gpu_description = kind.get("gpu_description")
        return Offer(
            provider="lambda",
            region=region,
            zone=None,
            instance_type=instance_type,
            accelerator=_card(gpu_description, instance_type) if count else None,
            count=count,
            capacity_type=CapacityType.ON_DEMAND,
            price=parse.price(kind.get("price_cents_per_hour"), instance_type, per=_CENTS),
            as_of=self._clock.now(),
            source=self._source,
            cpus=parse.figure(specs.get("vcpus")),
            memory_gib=parse.figure(specs.get("memory_gib")),
            interconnect=_link(f"{gpu_description} {instance_type}".lower()) if count > 1 else None,
            availability=Availability.UNAVAILABLE if unavailable_reason else Availability.AVAILABLE,
            unavailable_because=unavailable_reason,
            engine="skypilot",
            billing=Billing(minimum=timedelta(minutes=1), granularity=timedelta(minutes=1)),
            max_age=timedelta(hours=2),
        )


def _card(gpu_description: object, instance_type: str) -> str:
    """The accelerator, from ``H100 (80 GB SXM5)``, else from ``gpu_8x_h100_sxm5``."""
    text = gpu_description if isinstance(gpu_description, str) else ""
    memory = _MEMORY.search(text)
    bare = f"{text[: memory.start()]} {memory[2]}".strip() if memory else text
    name_match = _IN_NAME.fullmatch(instance_type)
    return parse.accelerator(
        text,
        bare,
        text[: memory.start()] if memory else "",
        name_match[1] if name_match else "",
        memory_gib=float(memory[1]) if memory else None,
    )


def _link(text: str) -> Interconnect | None:
    if "sxm" in text:
        return Interconnect.NVLINK
    return Interconnect.PCIE if "pcie" in text else None
