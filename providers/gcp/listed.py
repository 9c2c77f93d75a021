"""Offers at list prices: machines on demand and of spot by zone, commitments by region."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.money import Money
from providers.gcp.catalogue import SOURCE, PartPrices
from providers.gcp.machines import GcpMachine
from providers.gcp.settings import BILLING, ENGINE, LIST_MAX_AGE, NAME, SPOT_BILLING, SPOT_MAX_AGE
from providers.gcp.skus import How
from providers.rows import Found, Unfit

_ONLY_RESERVED = "Google sells this machine on demand only together with a reservation"
# Machines for a stated time, at prices of their own, where Google sells them so. They come when there are some (flex
# start, up to seven days) or at a date (calendar mode): pools of their own, with the way added to the machine's name.
AHEAD = {How.FLEX_START: "+flex-start", How.CALENDAR: "+calendar"}
_HOW = {
    CapacityType.ON_DEMAND: (How.ON_DEMAND, *AHEAD),
    CapacityType.SPOT: (How.SPOT,),
    CapacityType.RESERVED: (How.ONE_YEAR, How.THREE_YEARS),
}
_MONTHS = {How.ONE_YEAR: 12, How.THREE_YEARS: 36}


def listed_offers(
    shapes: Iterable[GcpMachine],
    catalogue: PartPrices,
    kinds: Iterable[CapacityType],
    now: datetime,
    judged: Callable[[Offer, GcpMachine], Offer],
) -> Found:
    """The offers of these machines with these purchase types. Unpriced ones are skipped, once per region. ``judged``:
    completes an offer with quotas and spot data."""
    ways = tuple((kind, how) for kind in kinds for how in _HOW.get(kind, ()))
    known: dict[tuple[str, str, str, int, How], Money | None] = {}
    for shape in shapes:
        for kind, how in ways:
            if how in AHEAD and not catalogue.sells(shape, how):
                continue
            machine = (shape.region, shape.name, shape.accelerator, shape.count, how)
            if machine not in known:
                try:
                    known[machine] = catalogue.price(shape, how)
                except Unfit as error:
                    known[machine] = None
                    yield error.skipped
            elif how in _MONTHS:
                continue  # already listed: a commitment applies to a region
            price = known[machine]
            if price is not None:
                yield judged(_offer(shape, kind, how, price, now), shape)


def _offer(shape: GcpMachine, kind: CapacityType, how: How, price: Money, now: datetime) -> Offer:
    months = _MONTHS.get(how)
    only_reserved = how is How.ON_DEMAND and not shape.family.on_demand
    spot = kind is CapacityType.SPOT
    return Offer(
        provider=NAME,
        region=shape.region,
        zone=None if months else shape.zone,
        instance_type=shape.name + AHEAD.get(how, ""),
        accelerator=shape.accelerator,
        count=shape.count,
        capacity_type=kind,
        price=price,
        as_of=now,
        source=SOURCE,
        term_months=months,
        cpus=float(shape.cpus),
        memory_gib=float(shape.memory_gib),
        interconnect=shape.link,
        availability=Availability.UNAVAILABLE if only_reserved else Availability.UNKNOWN,
        unavailable_because=_ONLY_RESERVED if only_reserved else "",
        # No engine for commitments, which must be bought first; none starts parts of a card and TPUs.
        engine=None if months or how is How.CALENDAR or shape.slices else ENGINE,
        billing=SPOT_BILLING if spot else BILLING,
        max_age=SPOT_MAX_AGE if spot else LIST_MAX_AGE,
    )
