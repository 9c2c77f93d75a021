"""The spot instance advisor: AWS's interruption rates and savings of spot machines by region; without a login.

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from broker.core.errors import Malformed
from broker.core.market.offers import CapacityType, Offer, SkippedRow
from broker.core.values.clock import Clock
from providers.aws.machines import AwsMachine, is_listed, machine
from providers.aws.settings import NAME, SPOT_BILLING, SPOT_MAX_AGE, AwsSettings
from providers.http import Api
from providers.rows import OfferRows, RowRejected, number, short

SOURCE = "aws-spot-advisor"

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
        raise Malformed(f"the bands of the spot advisor make no sense: {error}", where=NAME) from error
    by_region = _table(answer, "spot_advisor", dict)
    for region in regions:
        systems = by_region.get(region)
        types = systems.get("Linux") if isinstance(systems, dict) else None
        for name, row in (types if isinstance(types, dict) else {}).items():
            if is_listed(name):
                yield _advice(name, region, row, bands, exposure)


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
        source=SOURCE,
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
