"""Cost of data: of keeping checkpoints during and after a job, and of moving data between regions. Dated list prices
from ``storage_cost.toml`` and ``egress.toml``.
"""

import math
from dataclasses import dataclass
from datetime import date, timedelta
from fnmatch import fnmatchcase
from functools import cache

from pydantic import BaseModel, ConfigDict, Field

from broker.core.extras import load_packaged_toml
from broker.core.job.jobs import DiskTier, Job, MachineRequest
from broker.core.market.offers import MoneyKind, Offer
from broker.core.values.money import Money

MONTH = timedelta(hours=730)
"""A month of cloud billing: a twelfth of 365 days."""


@dataclass(frozen=True, slots=True)
class KeepingRate:
    """One row: USD per GB (10⁹ bytes) and month in a store matching the pattern ``store`` (shell-style over
    ``provider/region``). ``source`` and ``as_of``: publisher and date.
    """

    store: str
    per_gb_month: Money
    source: str
    as_of: date

    def cost(self, size: float, time: timedelta) -> Money:
        """USD for that many bytes over that time."""
        return Money(round(self.per_gb_month.micros * size / 1e9 * (time / MONTH)))


@cache
def keeping_rates() -> tuple[KeepingRate, ...]:
    """The table, in the order in which rows are tried."""
    return tuple(
        KeepingRate(row["store"], Money.usd(row["usd_per_gb_month"]), row["source"], row["as_of"])
        for row in load_packaged_toml("broker.placement.pricing", "storage_cost.toml")["rate"]
    )


@cache
def keeping_rate(store: str) -> KeepingRate | None:
    """The rate of a store at ``provider/region`` (``provider/?`` if the region is unknown); None if no row matches."""
    return next((rate for rate in keeping_rates() if fnmatchcase(store, rate.store)), None)


@dataclass(frozen=True, slots=True)
class EgressRate:
    """One row: USD per GB (10⁹ bytes) from a place matching ``origin`` to one matching ``destination``.

    Patterns are shell-style over ``provider/region``. ``source`` and ``as_of``: publisher and date.
    """

    origin: str
    destination: str
    per_gb: Money
    source: str
    as_of: date


UNKNOWN_PLACE = "an unknown place"
FREE = EgressRate("*", "*", Money.ZERO, "stays in its region", date.min)


@cache
def egress_rates() -> tuple[EgressRate, ...]:
    """The table, in the order in which rows are tried."""
    return tuple(
        EgressRate(row["from"], row["to"], Money.usd(row["usd_per_gb"]), row["source"], row["as_of"])
        for row in load_packaged_toml("broker.placement.pricing", "egress.toml")["rate"]
    )


@cache
def egress_rate(origin: str, destination: str) -> EgressRate:
    """The rate for data going from ``origin`` to ``destination`` (both ``provider/region``); free within one region.
    From `UNKNOWN_PLACE`: its own row, or the highest rate to that destination."""
    if origin == destination:
        return FREE
    rates = [rate for rate in egress_rates() if fnmatchcase(destination, rate.destination)]
    if origin == UNKNOWN_PLACE:
        return next((rate for rate in rates if rate.origin == origin), max(rates, key=lambda rate: rate.per_gb))
    return next(rate for rate in rates if fnmatchcase(origin, rate.origin))


DEFAULT_GIB = 256
"""The disk that SkyPilot attaches to a machine whose job names no `disk_size` (sky/resources.py of 0.14)."""
_ATTACHES_DISKS = "skypilot"  # the engine that attaches such disks
_HOURS_PER_MONTH = MONTH // timedelta(hours=1)


class DiskRate(BaseModel):
    """One row: USD per GiB and month, and per disk and month, of a disk of that tier in places matching the pattern
    ``place`` (shell-style over ``provider/region``), but for machine types that match one of ``not_for``.
    ``upper_bound``: no list price, but more than any known one of that tier. ``source`` and ``as_of``: publisher and
    the day on which the figure was read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: str
    tier: DiskTier = DiskTier.MEDIUM
    upper_bound: bool = False
    usd_per_gib_month: str = Field(pattern=r"^[0-9]+(\.[0-9]+)?$")
    usd_per_disk_month: str = Field(default="0", pattern=r"^[0-9]+(\.[0-9]+)?$")
    not_for: tuple[str, ...] = ()
    source: str
    as_of: date

    def per_hour(self, gib: int) -> Money:
        """USD an hour for a disk of that size, rounded half-even to a micro-dollar."""
        return _hourly(self.usd_per_gib_month, self.usd_per_disk_month, gib)


def attaches_disk(offer: Offer) -> bool:
    """Whether a disk is rented with the machine, in addition to its price."""
    return offer.engine == _ATTACHES_DISKS and offer.money is MoneyKind.CASH


def disk_gib(request: MachineRequest | None) -> int:
    """The size in GiB of the disk that a job's machine gets."""
    return math.ceil(request.disk_gib) if request is not None and request.disk_gib else DEFAULT_GIB


def data_origins(job: Job) -> tuple[str, ...]:
    """The places that a job's data may come from. Mounts without one count as being at `data.location`, if given."""
    places = [place for _, place in job.data_locations if place is not None or job.data.location is None]
    return tuple(dict.fromkeys(place or UNKNOWN_PLACE for place in places))


def data_bytes(job: Job) -> int:
    """Bytes of data that each start moves. Without a stated size, mounts and data of a stated place count as much as
    the disks of the job's machines hold."""
    if job.data.size is not None or not any(target or place for target, place in job.data_locations):
        return job.data.size or 0
    return max(map(disk_gib, job.resources), default=DEFAULT_GIB) * job.num_nodes * 2**30


def rate_for(offer: Offer, request: MachineRequest | None) -> DiskRate:
    """The rate of the disk that a job's machine gets there: its list price, or an upper bound where none is known. An
    unknown price is never zero."""
    tier = request.disk_tier if request is not None and request.disk_tier else DiskTier.MEDIUM
    return disk_rate(offer.location, offer.instance_type, tier)


def disk_price(offer: Offer, request: MachineRequest | None, unknown: Money | None = None) -> Money:
    """USD an hour for the disk of one machine; zero if none is rented. ``unknown``: USD per GiB and month, a lower
    bound for disks without a known list price than the one of the table."""
    if not attaches_disk(offer):
        return Money.ZERO
    rate, gib = rate_for(offer, request), disk_gib(request)
    price = rate.per_hour(gib)
    return price if unknown is None or not rate.upper_bound else min(price, (unknown * gib).share(1, _HOURS_PER_MONTH))


@cache
def rates() -> tuple[DiskRate, ...]:
    """The table, in the order in which rows are tried."""
    return tuple(
        DiskRate.model_validate(row) for row in load_packaged_toml("broker.placement.pricing", "disk_cost.toml")["rate"]
    )


@cache  # called for every offer of a plan; there are few places, machine types and tiers
def disk_rate(place: str, instance_type: str, tier: DiskTier = DiskTier.MEDIUM) -> DiskRate:
    """The rate at ``provider/region`` for machines of that type."""
    return next(
        rate
        for rate in rates()
        if rate.tier is tier
        and fnmatchcase(place, rate.place)
        and not any(fnmatchcase(instance_type, pattern) for pattern in rate.not_for)
    )


@cache
def _hourly(per_gib_month: str, per_disk_month: str, gib: int) -> Money:
    return (Money.usd(per_gib_month) * gib + Money.usd(per_disk_month)).share(1, _HOURS_PER_MONTH)
