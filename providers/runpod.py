"""RunPod's prices and stock, from its GraphQL API; no login needed.

One query brings every kind of GPU with its prices per GPU and hour in both clouds: *secure* (data centers) and
*community* (other people's machines); these are the regions here. A pod has 1, 2, 4 or 8 of them, up to what RunPod
allows for that kind. Instance types are named as SkyPilot names RunPod's; SkyPilot runs pods in the secure cloud only,
and a savings plan has to be bought before anything runs on it: such offers name no engine. Disks are billed separately.
Fields: RunPod's GraphQL schema (GpuType, LowestPrice) as of November 2026.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from broker.core.errors import Malformed, Refused
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from providers import rows as parse
from providers.http import Api, Url
from providers.listing import ListProvider, ListSettings
from providers.rows import OfferRows, Row, RowRejected, short

# The requested fields. A row needs the first three; RunPod may remove others from its undocumented schema: they are
# then not requested.
_REQUIRED_FIELDS = ("id", "displayName", "memoryInGb")
_OF_GPU_TYPE = (
    "maxGpuCount", "maxGpuCountSecureCloud", "maxGpuCountCommunityCloud", "secureCloud", "communityCloud",
    "securePrice", "communityPrice", "secureSpotPrice", "communitySpotPrice",
    "oneMonthPrice", "threeMonthPrice", "sixMonthPrice",
)  # fmt: skip
_OF_LOWEST_PRICE = (
    "minimumBidPrice", "uninterruptablePrice", "minVcpu", "minMemory", "stockStatus", "availableGpuCounts",
)  # fmt: skip
# The query of RunPod's own examples, used if leaving out fields is not enough.
_MINIMAL_QUERY = """
query GpuTypes {
  gpuTypes {
    id displayName memoryInGb secureCloud communityCloud securePrice communityPrice
    lowestPrice(input: {gpuCount: 1}) { minimumBidPrice uninterruptablePrice }
  }
}
"""
_ALL_OPTIONAL = ["all but the oldest fields"]
_REFUSED_FIELD = re.compile(r"Cannot query field \W*(\w+)")
_REFUSED_QUERY = re.compile(r"HTTP 4(00|22)\b|the query failed")
_COUNTS = (1, 2, 4, 8)
_TERMS = {"oneMonthPrice": 1, "threeMonthPrice": 3, "sixMonthPrice": 6}
_STOCK = {"high": 0.9, "medium": 0.6, "low": 0.3}
_MAX_AGE = {CapacityType.ON_DEMAND: timedelta(hours=2), CapacityType.SPOT: timedelta(minutes=30)}
# Names that SkyPilot keeps for compatibility; otherwise it makes them from the display name, as `_type_name` does.
_SKYPILOT_NAMES = {"A100-PCIe": "A100-80GB", "A100-SXM": "A100-80GB-SXM", "H100-PCIe": "H100"}


class RunpodSettings(ListSettings):
    """``base_url``: the URL above ``/graphql``."""

    base_url: Url = "https://api.runpod.io"


@dataclass(frozen=True, slots=True)
class _Cloud:
    """One row's data on one of the two clouds. ``lowest``: its LowestPrice; ``most``: GPUs a pod may have."""

    region: str
    on_demand: object
    spot: object
    lowest: Row
    most: int


class Runpod(ListProvider[RunpodSettings]):
    """Every kind of GPU that RunPod rents, in both its clouds: on demand, spot, and with a savings plan."""

    name = "runpod"
    Settings: ClassVar = RunpodSettings
    _source = "runpod-graphql"
    document = "graphql"

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query: one call. A field that RunPod no longer knows is left out and counted. Raises
        `RetryLater`, `Refused` and `Malformed`."""
        with self._open() as api:
            rows, omitted_fields = _query_gpus(api)
        yield from (SkippedRow("not_told", f"left out, because RunPod refuses it: {field}") for field in omitted_fields)
        yield from parse.distinct(parse.read_rows(rows, lambda row: self._read(row, omitted_fields)))

    def _read(self, row: Row, omitted_fields: Collection[str]) -> OfferRows:
        gpu = parse.accelerator(row.get("id"), row.get("displayName"), memory_gib=parse.figure(row.get("memoryInGb")))
        label = _type_name(row)
        missing = _missing_fields(row, omitted_fields)
        if missing:
            yield SkippedRow("incomplete_row", f"{label}: without {', '.join(missing)}")
        has_price = False
        for cloud in _clouds(row, missing):
            for offer in self._cloud_offers(row, cloud, gpu, label):
                has_price = True
                yield offer
        if not has_price:
            raise RowRejected("no_price", f"{label}: no price in either cloud")

    def _cloud_offers(self, row: Row, cloud: _Cloud, gpu: str, label: str) -> OfferRows:
        prices: list[tuple[CapacityType, int | None, object]] = [
            (CapacityType.ON_DEMAND, None, cloud.on_demand),
            (CapacityType.SPOT, None, cloud.spot),
        ]
        if cloud.region == "secure":
            prices += [(CapacityType.RESERVED, months, row.get(key)) for key, months in _TERMS.items()]
        if cloud.on_demand is None and row.get(f"{cloud.region}Cloud") is True:
            yield SkippedRow("no_price", f"{label} {cloud.region} on demand")
        for capacity_type, months, per_gpu in prices:
            if per_gpu is None:
                continue
            for count in (number for number in _COUNTS if number <= cloud.most):
                try:
                    yield self._offer(cloud, gpu, label, count, capacity_type, months, per_gpu)
                except RowRejected as error:
                    yield error.skipped
                    break  # the price is the same for every count

    def _offer(
        self,
        cloud: _Cloud,
        gpu: str,
        label: str,
        count: int,
        capacity_type: CapacityType,
        months: int | None,
        per_gpu: object,
    ) -> Offer:
        description = f"{label} {cloud.region} {capacity_type}{f' {months} months' if months else ''}"
        availability, reason, score = _stock(cloud.lowest, count)
        return Offer(
            provider=self.name,
            region=cloud.region,
            zone=None,
            instance_type=f"{count}x_{label}_{cloud.region.upper()}",
            accelerator=gpu,
            count=count,
            capacity_type=capacity_type,
            price=parse.price(per_gpu, description, times=count),
            as_of=self._clock.now(),
            source=self._source,
            term_months=months,
            cpus=_scale(parse.figure(cloud.lowest.get("minVcpu")), count),
            memory_gib=_scale(parse.figure(cloud.lowest.get("minMemory")), count),
            interconnect=_link(label, count),
            availability=availability,
            unavailable_because=reason,
            score=score,
            engine=None if months or cloud.region == "community" else "skypilot",
            max_age=_MAX_AGE.get(capacity_type, timedelta(days=1)),
        )


def _query_gpus(api: Api) -> tuple[list[object], list[str]]:
    """The rows, and the fields that had to be left out for them: one unknown field fails a whole query of GraphQL's.

    Fields that RunPod names as unknown are left out one after the other; if it names none of them, the smallest query
    is the last try. Raises the first refusal if that fails, too.
    """
    omitted_fields: list[str] = []
    while True:
        try:
            return _gpu_types(api.post("/graphql", {"query": _query(omitted_fields)})), omitted_fields
        except (Refused, Malformed) as error:
            if not _REFUSED_QUERY.search(error.message):
                raise
            unknown_fields = {*_REFUSED_FIELD.findall(error.message)} & {*_OF_GPU_TYPE, *_OF_LOWEST_PRICE} - {
                *omitted_fields
            }
            if unknown_fields:
                omitted_fields += sorted(unknown_fields)
                continue
            try:
                return _gpu_types(api.post("/graphql", {"query": _MINIMAL_QUERY})), _ALL_OPTIONAL
            except (Refused, Malformed):
                raise error from None


def _query(omitted_fields: Collection[str]) -> str:
    fields = " ".join(field for field in (*_REQUIRED_FIELDS, *_OF_GPU_TYPE) if field not in omitted_fields)
    lowest = " ".join(field for field in _OF_LOWEST_PRICE if field not in omitted_fields)
    clouds = "\n".join(
        f"{cloud}: lowestPrice(input: {{gpuCount: 1, secureCloud: {is_secure}}}) {{ {lowest} }}"
        for cloud, is_secure in (("secure", "true"), ("community", "false"))
        if lowest
    )
    return f"query GpuTypes {{ gpuTypes {{ {fields}\n{clouds} }} }}"


def _gpu_types(answer: object) -> list[object]:
    """The rows of a GraphQL answer. Errors about single fields do not discard the rows."""
    data = answer.get("data") if isinstance(answer, dict) else None
    rows = data.get("gpuTypes") if isinstance(data, dict) else None
    if isinstance(rows, list):
        return rows
    errors = answer.get("errors") if isinstance(answer, dict) else None
    first_error = errors[0] if isinstance(errors, list) and errors else None
    message = first_error.get("message") if isinstance(first_error, dict) else None
    detail = f"the query failed: {short(message)}" if message else "no data.gpuTypes in the answer"
    raise Malformed(detail, where="runpod", hint="RunPod may have changed its API; is there a newer gpubroker?")


def _clouds(row: Row, missing: Collection[str]) -> Iterator[_Cloud]:
    """The clouds in which this GPU is rented out or at least priced. Without the requested LowestPrice, the list price
    of spot does not replace its bid."""
    bids = _bids(row)
    for region, max_key in (("secure", "maxGpuCountSecureCloud"), ("community", "maxGpuCountCommunityCloud")):
        on_demand, spot = row.get(f"{region}Price"), row.get(f"{region}SpotPrice")
        spot = None if {region, f"{region}.minimumBidPrice"} & {*missing} else spot
        terms = [row.get(key) for key in _TERMS] if region == "secure" else []
        has_price = any(value is not None for value in (on_demand, spot, bids.get(region), *terms))
        if row.get(f"{region}Cloud") is False or not has_price:
            continue
        max_gpus = row.get(max_key) if row.get(max_key) is not None else row.get("maxGpuCount")
        lowest = row.get(region, row.get("lowestPrice"))
        yield _Cloud(
            region=region,
            on_demand=on_demand,
            spot=bids.get(region, spot),
            lowest=lowest if isinstance(lowest, dict) else {},
            most=1
            if max_gpus is None or (type(max_gpus) is int and max_gpus == 0)
            else parse.whole(max_gpus, "maxGpuCount"),
        )


def _missing_fields(row: Row, omitted_fields: Collection[str]) -> list[str]:
    """The requested fields that are missing: GraphQL returns every field, at least as null."""
    if omitted_fields == _ALL_OPTIONAL:
        return []
    missing = [key for key in _OF_GPU_TYPE if key not in row and key not in omitted_fields]
    for cloud in ("secure", "community"):
        lowest = row.get(cloud, ...)
        if isinstance(lowest, dict):
            missing += [f"{cloud}.{key}" for key in _OF_LOWEST_PRICE if key not in lowest and key not in omitted_fields]
        elif lowest is not None and len({*_OF_LOWEST_PRICE} - {*omitted_fields}):
            missing.append(cloud)
    return missing


def _bids(row: Row) -> dict[str, object]:
    """The lowest bid per GPU by cloud. A LowestPrice over both clouds is of the one whose price it repeats."""
    bids = {
        region: lowest["minimumBidPrice"]
        for region in ("secure", "community")
        if isinstance(lowest := row.get(region), dict) and lowest.get("minimumBidPrice") is not None
    }
    overall = row.get("lowestPrice")
    if not bids and isinstance(overall, dict) and overall.get("minimumBidPrice") is not None:
        same_as_secure = overall.get("uninterruptablePrice") == row.get("securePrice") is not None
        in_community = row.get("communityCloud") is not False and row.get("communityPrice") is not None
        bids["secure" if same_as_secure or not in_community else "community"] = overall["minimumBidPrice"]
    return bids


def _stock(lowest: Row, count: int) -> tuple[Availability, str, float | None]:
    """Availability of ``count`` GPUs in one pod, the reason if there are none, and a score: RunPod's High, Medium and
    Low as 0.9, 0.6, 0.3.

    The stock is that of single GPUs; for more, RunPod lists the available counts. Without the list it is unknown.
    """
    if "stockStatus" not in lowest:
        return Availability.UNKNOWN, "", None
    status = lowest["stockStatus"]
    score = _STOCK.get(status.lower()) if isinstance(status, str) else None
    counts = lowest.get("availableGpuCounts")
    if status is None or (isinstance(status, str) and status.lower() in ("none", "out of stock", "")):
        return Availability.UNAVAILABLE, "RunPod has none in stock", None
    if isinstance(counts, list):
        if count in counts:
            return Availability.AVAILABLE, "", score
        return Availability.UNAVAILABLE, f"RunPod has none in stock with {count} GPUs in one pod", None
    if count > 1 or score is None:
        return Availability.UNKNOWN, "", None
    return Availability.AVAILABLE, "", score


def _type_name(row: Row) -> str:
    """``H100-SXM``, ``RTX4090``: the middle of SkyPilot's instance types for RunPod."""
    label = row.get("displayName") or row.get("id")
    text = parse.name(label, "displayName").replace("RTX-PRO-", "RTXPRO").replace("RTX-", "RTX")
    return _SKYPILOT_NAMES.get(text, text)


def _link(label: str, count: int) -> Interconnect | None:
    if count == 1:
        return None
    return Interconnect.NVLINK if "SXM" in label or label.startswith(("B200", "B300")) else Interconnect.PCIE


def _scale(per_gpu: float | None, count: int) -> float | None:
    return None if per_gpu is None else per_gpu * count
