"""RunPod's prices and stock, from its GraphQL API; no login needed.

One query brings every kind of GPU with its prices per GPU and hour in both clouds: *secure* (data centers) and
*community* (other people's machines); these are the regions here. A pod has 1, 2, 4 or 8 of them, up to what RunPod
allows for that kind. Instance types are named as SkyPilot names RunPod's; SkyPilot runs pods in the secure cloud only,
and a savings plan has to be bought before anything runs on it: such offers name no engine. Disks are billed separately.
Fields: RunPod's GraphQL schema (GpuType, LowestPrice) as of November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from broker.core.errors import Malformed, Refused
from broker.core.market.offers import Availability, CapacityType, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import Clock
from providers.failures import Failures
from providers.http import Api, HttpSettings, Url, endpoint
from providers.rows import (
    OfferRows,
    Row,
    RowRejected,
    accelerator,
    distinct,
    figure,
    name,
    price,
    read_rows,
    short,
    whole,
)

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
_OF_PLACE = ("uninterruptablePrice", "minimumBidPrice", "availableGpuCounts", "stockStatus", "minVcpu", "minMemory")
_PLACE = re.compile(r"[A-Z0-9-]{2,20}")
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


class RunpodSettings(HttpSettings):
    """``base_url``: the URL above ``/graphql``. ``data_centers``: whether to query the secure cloud's prices and stock
    in each data center, too."""

    base_url: Url = "https://api.runpod.io"
    data_centers: bool = False


@dataclass(frozen=True, slots=True)
class _Cloud:
    """One row's data on one of the two clouds. ``lowest``: its LowestPrice; ``most``: GPUs a pod may have."""

    region: str
    on_demand: object
    spot: object
    lowest: Row
    most: int


class Runpod:
    """Every kind of GPU that RunPod rents, in both its clouds: on demand, spot, and with a savings plan."""

    name = "runpod"
    Settings: ClassVar = RunpodSettings
    _source = "runpod-graphql"

    def __init__(self, *, clock: Clock, settings: RunpodSettings | None = None) -> None:
        self._clock = clock
        self._settings = settings or RunpodSettings()

    def offers(self, query: OfferQuery) -> Iterator[Offer | SkippedRow]:
        """All offers, whatever the query: one call. A field that RunPod no longer knows is left out and counted. Failed
        queries of data centers are an error at the end. Raises `RetryLater`, `Refused` and `Malformed`."""
        failures, rows_by_place = Failures(), dict[str, list[object]]()
        with Api(self.name, self._settings.base_url, self._settings, self._clock) as api:
            rows, omitted_fields = _query_gpus(api)
            if self._settings.data_centers:
                rows_by_place = failures.result(partial(_query_places, api), rows_by_place)
        yield from (SkippedRow("not_told", f"left out, because RunPod refuses it: {field}") for field in omitted_fields)
        yield from distinct(read_rows(rows, lambda row: self._read(row, omitted_fields)))
        for place, place_rows in rows_by_place.items():
            yield from distinct(read_rows(place_rows, partial(self._read_place, place=place)))
        failures.raise_any()

    def describe_setup(self) -> Mapping[str, Any]:
        return {"endpoints": {"graphql": endpoint(self.name, "base_url", self._settings.base_url)}, "logins": {}}

    def _read(self, row: Row, omitted_fields: Collection[str]) -> OfferRows:
        gpu = accelerator(row.get("id"), row.get("displayName"), memory_gib=figure(row.get("memoryInGb")))
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

    def _read_place(self, row: Row, place: str) -> OfferRows:
        """A GPU in a data center. Without stock it has no price. No engine launches in a chosen data center."""
        lowest = row.get("lowest", ...)
        if lowest is None:
            return
        label = f"{place}: {_type_name(row)}"
        if not isinstance(lowest, dict):
            raise RowRejected("malformed_row", f"{label}: {'no data' if lowest is ... else short(lowest)}")
        gpu = accelerator(row.get("id"), row.get("displayName"), memory_gib=figure(row.get("memoryInGb")))
        missing = [key for key in _OF_PLACE if key not in lowest]
        if missing:
            yield SkippedRow("incomplete_row", f"{label}: without {', '.join(missing)}")
        on_demand, spot, counts = (lowest.get(key) for key in _OF_PLACE[:3])
        cloud = _Cloud("secure", on_demand, spot, lowest, most=_COUNTS[-1])
        if counts is not None and not (isinstance(counts, list) and all(type(number) is int for number in counts)):
            yield SkippedRow("malformed_row", f"{label}: availableGpuCounts is {short(counts)}")
            counts = None
        numbers = [number for number in _COUNTS if number == 1 or number in (counts or ())]
        for capacity_type, per_gpu in ((CapacityType.ON_DEMAND, on_demand), (CapacityType.SPOT, spot)):
            for count in numbers if per_gpu is not None else ():
                try:
                    offer = self._offer(cloud, gpu, _type_name(row), count, capacity_type, None, per_gpu)
                except RowRejected as error:
                    yield error.skipped
                    break  # the price is the same for every count
                yield replace(offer, zone=place, engine=None, source=f"{self._source}-places")

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
            price=price(per_gpu, description, times=count),
            as_of=self._clock.now(),
            source=self._source,
            term_months=months,
            cpus=_scale(figure(cloud.lowest.get("minVcpu")), count),
            memory_gib=_scale(figure(cloud.lowest.get("minMemory")), count),
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


def _query_places(api: Api) -> dict[str, list[object]]:
    """By data center, the rows of all GPUs with their ``lowest`` price there; invalid data centers are under an empty
    name. Raises what `Api.post` raises."""
    answer = api.post("/graphql", {"query": "query DataCenters { dataCenters { id listed } }"})
    places, malformed = list[str](), list[object]()
    for row in _rows(answer, "dataCenters"):
        id = row.get("id") if isinstance(row, dict) else None
        if not isinstance(row, dict) or not isinstance(id, str) or not _PLACE.fullmatch(id):
            malformed.append(SkippedRow("malformed_row", f"expected a data center, found {short(row)}"))
        elif row.get("listed") is not False:
            places.append(id)
    if not places:
        return {"": malformed}
    fields = " ".join(_OF_PLACE)
    lowest = "\n".join(
        f'at{number}: lowestPrice(input: {{gpuCount: 1, secureCloud: true, dataCenterId: "{place}"}}) {{ {fields} }}'
        for number, place in enumerate(places)
    )
    gpus = _rows(
        api.post("/graphql", {"query": f"query Places {{ gpuTypes {{ {' '.join(_REQUIRED_FIELDS)}\n{lowest} }} }}"}),
        "gpuTypes",
    )
    return {"": malformed} | {
        place: [_with_place(row, f"at{number}") for row in gpus] for number, place in enumerate(places)
    }


def _with_place(row: object, alias: str) -> object:
    """The row with its price at one place as ``lowest``; without that field if RunPod reports none."""
    if not isinstance(row, dict):
        return row
    fields = {key: row.get(key) for key in _REQUIRED_FIELDS}
    return {**fields, "lowest": row[alias]} if alias in row else fields


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
    return _rows(answer, "gpuTypes")


def _rows(answer: object, key: str) -> list[object]:
    """The rows of a GraphQL answer. Errors about single fields do not discard the rows."""
    data = answer.get("data") if isinstance(answer, dict) else None
    rows = data.get(key) if isinstance(data, dict) else None
    if isinstance(rows, list):
        return rows
    errors = answer.get("errors") if isinstance(answer, dict) else None
    first_error = errors[0] if isinstance(errors, list) and errors else None
    message = first_error.get("message") if isinstance(first_error, dict) else None
    detail = f"the query failed: {short(message)}" if message else f"no data.{key} in the answer"
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
            most=1 if max_gpus is None or (type(max_gpus) is int and max_gpus == 0) else whole(max_gpus, "maxGpuCount"),
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
    text = name(label, "displayName").replace("RTX-PRO-", "RTXPRO").replace("RTX-", "RTX")
    return _SKYPILOT_NAMES.get(text, text)


def _link(label: str, count: int) -> Interconnect | None:
    if count == 1:
        return None
    return Interconnect.NVLINK if "SXM" in label or label.startswith(("B200", "B300")) else Interconnect.PCIE


def _scale(per_gpu: float | None, count: int) -> float | None:
    return None if per_gpu is None else per_gpu * count
