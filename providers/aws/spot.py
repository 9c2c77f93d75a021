"""Spot prices per zone (DescribeSpotPriceHistory), zone names and IDs, and spot placement scores; with a login.

Zones are identified by ID (``use1-az6``): a name such as ``us-east-1a`` means a different place in each account. A
query of the history from now on returns the current price of each pool; of several the latest counts. ``as_of`` is the
time of the query, not of the last price change.

The spot instance advisor: AWS's interruption rates and savings of spot machines by region; without a login.

AWS gives bands: the share of spot machines of that type that it reclaimed in the trailing month (below 5 %, 5–10 %,
10–15 %, 15–20 %, above 20 %), all zones and hours together. To a rate per hour: a machine that runs for E hours and is
reclaimed with probability p sees ``-ln(1 - p) / E`` interruptions an hour. p is the upper edge of the band; for the
open one halfway between its lower edge and all. AWS does not say how long the machines it counts ran; a month would
give the lowest rate, and public traces of GPU pools show mean lives of hours. E is a day unless the setting
``spot_exposure_hours`` says otherwise: an assumption on the careful side, and cruder than what is measured here.

The advisor gives no prices, and its saving is a mean over 30 days and all zones; so without a login these offers have
no price.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from broker.core.errors import BrokerError, Malformed
from broker.core.market.offers import CapacityType, Offer, SkippedRow
from broker.core.values.clock import Clock
from providers.aws.login import AwsLogin
from providers.aws.machines import AwsMachine, accelerated_types, is_listed, machine
from providers.aws.settings import NAME, SPOT_BILLING, SPOT_MAX_AGE, AwsSettings, utc
from providers.http import Api
from providers.rows import OfferRows, RowRejected, decimal_text, name, number, price, short

SOURCE = "aws-spot-price-history"

_LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_OTHER_SYSTEMS = tuple(
    f"{system}{network}"
    for system in ("SUSE Linux", "Windows", "Red Hat Enterprise Linux")
    for network in ("", " (Amazon VPC)")
)
_NEVER = datetime.min.replace(tzinfo=UTC)
_REGIONS_PER_QUERY = 10  # the maximum of GetSpotPlacementScores
_BEST_SCORE = 10

Scores = Mapping[tuple[str, str], float]
AdviceByPool = Mapping[tuple[str, str], "SpotAdvisorEntry"]


def zone_ids(login: AwsLogin, region: str) -> Mapping[str, str]:
    """This account's zone names to zone IDs, of one region. Raises what `AwsLogin.call` raises."""
    answer = login.call("ec2", region, "describe_availability_zones")
    zones = answer.get("AvailabilityZones") or ()
    return {zone["ZoneName"]: zone["ZoneId"] for zone in zones if zone.get("ZoneName") and zone.get("ZoneId")}


def spot_prices(
    login: AwsLogin, region: str, types: tuple[str, ...], now: datetime, zones: Mapping[str, str]
) -> Iterator[Offer | SkippedRow]:
    """The spot offers of one region, one per zone and instance type, without interruption rates. ``zones``: names to
    IDs, for answers without an ID. Raises what `AwsLogin.rows` raises, after the rows received.
    """
    latest: dict[tuple[str, str], tuple[datetime, Any]] = {}
    failure: BrokerError | None = None
    rows = login.rows(
        "ec2",
        region,
        "describe_spot_price_history",
        "SpotPriceHistory",
        InstanceTypes=list(types),
        ProductDescriptions=list(_LINUX),
        StartTime=now,
    )
    try:
        for row in rows:
            product = row.get("ProductDescription")
            if product not in _LINUX:
                if product not in _OTHER_SYSTEMS:
                    label = f"{row.get('AvailabilityZone')}: {row.get('InstanceType')}: a product called {product!r}"
                    yield SkippedRow("unknown_product", short(label))
                continue
            zone_name = row.get("AvailabilityZone", "")
            zone = row.get("AvailabilityZoneId") or zones.get(zone_name) or zone_name
            pool, changed_at = (zone, str(row.get("InstanceType"))), utc(row.get("Timestamp")) or _NEVER
            if pool not in latest or latest[pool][0] < changed_at:
                latest[pool] = changed_at, row
    except BrokerError as error:
        failure = error
    for (zone, _), (_, row) in latest.items():
        yield _offer(region, zone, row, now)
    if failure is not None:
        raise failure


def _offer(region: str, zone: str, row: Mapping[str, Any], now: datetime) -> Offer | SkippedRow:
    try:
        shape = machine(str(row.get("InstanceType")))
        label = f"{zone}: {shape.instance_type}"
        return Offer(
            provider=NAME,
            region=region,
            zone=name(zone, "the zone"),
            instance_type=shape.instance_type,
            accelerator=shape.accelerator,
            count=shape.count,
            capacity_type=CapacityType.SPOT,
            price=price(decimal_text(row.get("SpotPrice")), label),
            as_of=now,
            source=SOURCE,
            cpus=shape.cpus,
            memory_gib=shape.memory_gib,
            interconnect=shape.interconnect,
            engine=shape.engine,
            billing=SPOT_BILLING,
            max_age=SPOT_MAX_AGE,
        )
    except RowRejected as error:
        return error.skipped


def placement_scores(login: AwsLogin, query_region: str, regions: tuple[str, ...], accelerator: str) -> Scores:
    """The probable success of a request for one spot machine with that accelerator: (region, accelerator) → 0.1 to 1.

    AWS scores a set of instance types together, from 1 to 10, and scores fewer than three types low; so one query
    covers all types of the accelerator. It is by region, because by zone AWS names only the ten best worldwide. Raises
    what `AwsLogin.rows` raises; ``MaxConfigLimitExceeded`` (too many different questions in 24 hours) is `Throttled`.
    """
    scores: dict[tuple[str, str], float] = {}
    types = [name for name in accelerated_types() if machine(name).accelerator == accelerator]
    for start in range(0, len(regions), _REGIONS_PER_QUERY):
        rows = login.rows(
            "ec2",
            query_region,
            "get_spot_placement_scores",
            "SpotPlacementScores",
            InstanceTypes=types,
            TargetCapacity=1,
            SingleAvailabilityZone=False,
            RegionNames=list(regions[start : start + _REGIONS_PER_QUERY]),
        )
        for row in rows:
            score = row.get("Score")
            if isinstance(score, int) and 1 <= score <= _BEST_SCORE and row.get("Region") in regions:
                scores[row["Region"], accelerator] = score / _BEST_SCORE
    return scores


def with_advice(offers: OfferRows, advice_by_pool: AdviceByPool, scores: Scores) -> OfferRows:
    """The spot offers, with the advisor's data and placement scores of their pools."""
    for offer in offers:
        if isinstance(offer, Offer) and offer.capacity_type is CapacityType.SPOT:
            advice = advice_by_pool.get((offer.region, offer.instance_type))
            offer = replace(
                offer,
                interruption_rate=advice.rate if advice else offer.interruption_rate,
                score=scores.get((offer.region, offer.accelerator or ""), offer.score),
            )
        yield offer


def by_pool(advice: Iterable["SpotAdvisorEntry"]) -> AdviceByPool:
    """Advice by region and instance type."""
    return {(entry.region, entry.shape.instance_type): entry for entry in advice}


def accelerators_of(types: Iterable[str]) -> tuple[str, ...]:
    """The accelerators of these instance types, each once, in their order."""
    return tuple(dict.fromkeys(machine(name).accelerator for name in types))


def offered_types(login: AwsLogin, region: str, types: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    """Which of the instance types exist in the region, and in which zones (IDs). Raises what `AwsLogin.rows` raises."""
    zones_by_type: defaultdict[str, set[str]] = defaultdict(set)
    rows = login.rows(
        "ec2",
        region,
        "describe_instance_type_offerings",
        "InstanceTypeOfferings",
        LocationType="availability-zone-id",
        Filters=[{"Name": "instance-type", "Values": list(types)}],
    )
    for row in rows:
        if row.get("InstanceType") in types and row.get("Location"):
            zones_by_type[row["InstanceType"]].add(row["Location"])
    return {name: frozenset(zones) for name, zones in zones_by_type.items()}


ADVISOR_SOURCE = "aws-spot-advisor"

_EDGES = re.compile(r"\d{1,3}")


@dataclass(frozen=True, slots=True)
class SpotAdvisorEntry:
    """The advisor's data on one instance type in one region. ``rate``: interruptions per machine and hour. ``saving``:
    against on-demand, mean of the last 30 days over all zones, 0 to 1; None if invalid.
    """

    shape: AwsMachine
    region: str
    rate: float
    saving: float | None


def read_advice(
    settings: AwsSettings, clock: Clock, regions: tuple[str, ...]
) -> Iterator[SpotAdvisorEntry | SkippedRow]:
    """The advice on every machine with accelerators in these regions. Raises what `Api.get` raises."""
    with Api(NAME, settings.spot_advisor, settings, clock, url_key="spot_advisor_url") as api:
        answer = api.document("")
    yield from advice_in(answer, regions, settings.spot_exposure_hours)


def advice_in(answer: object, regions: tuple[str, ...], exposure: float) -> Iterator[SpotAdvisorEntry | SkippedRow]:
    """The advice in the advisor's data. Raises `Malformed` if the data has another shape."""
    try:
        bands = {number(band["index"], "a band"): _band(band) for band in _table(answer, "ranges", list)}
    except (RowRejected, KeyError, TypeError) as error:
        reason = f"missing {error}" if isinstance(error, KeyError) else error
        raise Malformed(f"the spot advisor's `ranges` are malformed: {reason}", where=NAME) from error
    by_region = _table(answer, "spot_advisor", dict)
    for region in regions:
        systems = by_region.get(region)
        types = systems.get("Linux") if isinstance(systems, dict) else None
        for type_name, row in (types if isinstance(types, dict) else {}).items():
            if is_listed(type_name):
                yield _advice(type_name, region, row, bands, exposure)


def offers_of(advice: SpotAdvisorEntry, now: datetime) -> OfferRows:
    """The spot offer without a price, from the data available without a login."""
    shape = advice.shape
    yield Offer(
        provider=NAME,
        region=advice.region,
        zone=None,
        instance_type=shape.instance_type,
        accelerator=shape.accelerator,
        count=shape.count,
        capacity_type=CapacityType.SPOT,
        price=None,
        as_of=now,
        source=ADVISOR_SOURCE,
        cpus=shape.cpus,
        memory_gib=shape.memory_gib,
        interconnect=shape.interconnect,
        interruption_rate=advice.rate,
        engine=shape.engine,
        billing=SPOT_BILLING,
        max_age=SPOT_MAX_AGE,
    )


def rate_per_hour(share: float, exposure: float) -> float:
    """Interruptions an hour, from the share (0 to 1) of machines that were reclaimed within ``exposure`` hours."""
    return -math.log1p(-share) / exposure


def _advice(
    name: str, region: str, row: Any, bands: Mapping[Decimal, float], exposure: float
) -> SpotAdvisorEntry | SkippedRow:
    try:
        shape = machine(name)
        if not isinstance(row, dict):
            raise RowRejected("malformed_row", f"{region}: {name}: {short(row)}")
        band = bands.get(number(row.get("r"), f"{region}: {name}: the band"))
        if band is None:
            raise RowRejected("unknown_band", f"{region}: {name}: {short(row.get('r'))}")
        saving = number(row.get("s", 0), f"{region}: {name}: the saving")
    except RowRejected as error:
        return error.skipped
    return SpotAdvisorEntry(
        shape, region, rate_per_hour(band, exposure), float(saving) / 100 if 0 < saving < 100 else None
    )


def _band(band: Any) -> float:
    """The share of machines that a band's label means: "<5%", "5-10%", ">20%"."""
    label = str(band["label"])
    edges = [int(edge) for edge in _EDGES.findall(label)]
    if not edges or not 0 < edges[-1] < 100:
        raise RowRejected("unknown_band", short(label))
    return (edges[-1] + 100) / 200 if label.strip().startswith(">") else edges[-1] / 100


def _table(answer: object, key: str, kind: type) -> Any:
    value = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(value, kind):
        raise Malformed(f"the spot advisor's data have no {key!r}", where=NAME)
    return value
