"""Compares four ways to get the same GPUs: owned, reserved, on demand, spot.

Amounts USD, a year is 8,760 hours. Whole servers are bought and whole machines rented. A reservation is paid for every
hour of its term, used or not (take-or-pay), at the price of the day it starts; on-demand and spot for the hours in use.
Owning pays purchase, energy of the hours in use, staff of all hours, and rent until delivery; it gets the resale
value. Present values discount each month's money at its middle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType
from broker.economics.units import (
    HOURS_PER_YEAR,
    MOST_USD,
    ceil,
    fraction,
    not_negative,
    overhead,
    positive,
    share,
    whole,
)

WEEKS_PER_YEAR = HOURS_PER_YEAR / 168


@dataclass(frozen=True, slots=True)
class WaysInputs:
    """The need and the prices; a way without a price is left out.

    ``gpus`` for ``years``, in use for the share ``utilisation`` of the hours. ``gpus_per_machine``: of a server or a
    rented machine, whose prices are ``server_usd`` and ``..._usd_per_hour``. ``term_years``: of a reservation.
    ``server_watts``: of a server in use. ``staff_usd_per_gpu_hour``: of owning, all hours. ``resale_share``: of the
    price, at the end. ``spot_overhead``: hours redone and waited for, as a share. ``price_decline``: of rents a year.
    ``lead_time_weeks``: the owner rents on demand until delivery. Raises InvalidInput.
    """

    gpus: int
    gpus_per_machine: int
    years: float
    utilisation: float
    server_usd: float | None = None
    reserved_usd_per_hour: float | None = None
    on_demand_usd_per_hour: float | None = None
    spot_usd_per_hour: float | None = None
    term_years: float = 1.0
    server_watts: float = 0.0
    kwh_usd: float = 0.0
    pue: float = 1.0
    staff_usd_per_gpu_hour: float = 0.0
    resale_share: float = 0.0
    discount_rate: float = 0.0
    price_decline: float = 0.0
    spot_overhead: float = 0.0
    lead_time_weeks: float = 0.0

    def __post_init__(self) -> None:
        whole("gpus", self.gpus)
        whole("gpus per machine", self.gpus_per_machine, most=1024)
        positive("years", self.years, most=50)
        fraction("utilisation", self.utilisation)
        for name in ("server_usd", "reserved_usd_per_hour", "on_demand_usd_per_hour", "spot_usd_per_hour"):
            value = getattr(self, name)
            if value is not None:
                positive(name.removesuffix("_usd_per_hour").replace("_", " "), value, "USD", most=MOST_USD)
        positive("term", self.term_years, most=10)
        not_negative("server power", self.server_watts, "W")
        not_negative("price per kWh", self.kwh_usd, "USD")
        overhead(self.pue)
        not_negative("staff", self.staff_usd_per_gpu_hour, "USD per GPU-hour")
        share("resale share", self.resale_share)
        not_negative("discount rate", self.discount_rate, most=1)
        not_negative("price decline", self.price_decline, most=0.99)
        not_negative("spot overhead", self.spot_overhead, most=10)
        if not_negative("lead time", self.lead_time_weeks, "weeks") >= self.years * WEEKS_PER_YEAR:
            raise InvalidInput(f"lead time: {self.lead_time_weeks:g} weeks is longer than the {self.years:g} years")

    @property
    def machines(self) -> int:
        """Whole machines, or servers."""
        return ceil(self.gpus / self.gpus_per_machine)

    @property
    def used_gpu_hours(self) -> float:
        return self.gpus * self.years * HOURS_PER_YEAR * self.utilisation


@dataclass(frozen=True, slots=True)
class WayCost:
    """One way: the sum of what is paid, its present value, and the present value per GPU-hour in use."""

    way: CapacityType
    total_usd: float
    npv_usd: float
    npv_usd_per_used_gpu_hour: float


@dataclass(frozen=True, slots=True)
class FlipPoint:
    """An input alone, its present ``value``, the nearest value at which another way is cheapest, and which one."""

    name: str
    value: float
    flips_at: float
    then: CapacityType


@dataclass(frozen=True, slots=True)
class WaysCompared:
    """The ways, cheapest first; ``flips``: inputs that alone would change the answer, the smallest change first;
    ``steady``: inputs that do not change it within a tenth to ten times their value."""

    machines: int
    used_gpu_hours: float
    ways: tuple[WayCost, ...]
    flips: tuple[FlipPoint, ...]
    steady: tuple[str, ...]


def compare(case: WaysInputs) -> WaysCompared:
    """All ways with a price, and the inputs that would change the answer. Raises InvalidInput if no way has one."""
    found = costs(case)
    if not found:
        raise InvalidInput(
            "no price of owning or renting is known", hint="give the price of a server, or of a machine for rent"
        )
    flips, steady = [], []
    for name in _VARIED:
        value = float(getattr(case, name) or 0.0)
        if not value or len(found) == 1:
            continue
        flip = _flip(case, name, value, found[0].way)
        if flip is None:
            steady.append(name)
        else:
            flips.append(flip)
    return WaysCompared(
        machines=case.machines,
        used_gpu_hours=case.used_gpu_hours,
        ways=found,
        flips=tuple(sorted(flips, key=lambda one: abs(math.log(one.flips_at / one.value)))),
        steady=tuple(steady),
    )


_NOT_VARIED = {"gpus", "gpus_per_machine", "term_years"}
_VARIED = tuple(field.name for field in fields(WaysInputs) if field.name not in _NOT_VARIED)
_MOST = {
    "utilisation": 1.0,
    "resale_share": 1.0,
    "discount_rate": 1.0,
    "price_decline": 0.99,
    "pue": 5.0,
    "years": 50.0,
}
_LEAST = {"pue": 1.0}
_STEPS = 60


def _flip(case: WaysInputs, name: str, value: float, winner: CapacityType) -> FlipPoint | None:
    """The nearest value, up or down to ten times, at which another way wins; found on a grid, then halved."""

    def changes(changed: float) -> dict[str, Any]:
        return {name: changed}

    def wins(changed: float) -> CapacityType | None:
        try:
            found = costs(replace(case, **changes(changed)))
        except InvalidInput:
            return None
        return found[0].way

    found = []
    for direction in (1, -1):
        last = value
        for step in range(1, _STEPS + 1):
            tried = value * 10 ** (direction * step / _STEPS)
            tried = max(_LEAST.get(name, 0.0), min(_MOST.get(name, math.inf), tried))
            if tried == last:
                break
            way = wins(tried)
            if way is None:
                break
            if way is not winner:
                at = _halved(last, tried, lambda one: wins(one) is winner)
                found.append(FlipPoint(name, value, at, wins(at) or way))
                break
            last = tried
    return min(found, key=lambda one: abs(math.log(one.flips_at / value)), default=None)


def _halved(holds: float, fails: float, still: Callable[[float], bool]) -> float:
    """The first value that fails, to a thousandth."""
    while abs(fails / holds - 1) > 1e-3:
        middle = math.sqrt(holds * fails)
        if still(middle):
            holds = middle
        else:
            fails = middle
    return fails


def costs(case: WaysInputs) -> tuple[WayCost, ...]:
    """The ways that have a price, cheapest first."""
    ways = {
        CapacityType.OWNED: case.server_usd,
        CapacityType.RESERVED: case.reserved_usd_per_hour,
        CapacityType.ON_DEMAND: case.on_demand_usd_per_hour,
        CapacityType.SPOT: case.spot_usd_per_hour,
    }
    found = []
    for way, price in ways.items():
        if price is not None:
            npv = _paid(case, way, price, case.discount_rate)
            total = _paid(case, way, price, 0.0) if case.discount_rate else npv
            found.append(WayCost(way, total, npv, npv / case.used_gpu_hours))
    return tuple(sorted(found, key=lambda one: one.npv_usd))


def _paid(case: WaysInputs, way: CapacityType, price: float, rate: float) -> float:
    """The cost of a way (USD), discounted at ``rate`` a year."""
    delivered = case.lead_time_weeks / WEEKS_PER_YEAR
    hours = _hours(case.years, rate, case.price_decline, case.term_years, delivered)
    if way is CapacityType.RESERVED:
        each = price * hours.reserved
    elif way is CapacityType.SPOT:
        each = price * hours.rented * case.utilisation * (1 + case.spot_overhead)
    elif way is CapacityType.ON_DEMAND:
        each = price * hours.rented * case.utilisation
    else:
        rent = case.on_demand_usd_per_hour or case.reserved_usd_per_hour or case.spot_usd_per_hour or 0.0
        energy = case.server_watts / 1000 * case.kwh_usd * case.pue * case.utilisation
        each = price * (1 - case.resale_share / math.pow(1 + rate, case.years))
        each += hours.owned * (energy + case.staff_usd_per_gpu_hour * case.gpus_per_machine)
        each += hours.waiting * rent * case.utilisation
    return each * case.machines


@dataclass(frozen=True, slots=True)
class _DiscountedHours:
    """Discounted hours: ``rented`` and ``waiting`` (until delivery) are also weighted by the fall of rents so far,
    ``reserved`` by the fall until its term began; ``owned``: after delivery."""

    rented: float
    reserved: float
    waiting: float
    owned: float


@lru_cache(maxsize=4096)
def _hours(years: float, rate: float, decline: float, term_years: float, delivered: float) -> _DiscountedHours:
    rented = reserved = waiting = owned = 0.0
    edges = sorted({month / 12 for month in range(ceil(years * 12))} | {min(delivered, years), years})
    for start, end in pairwise(edges):
        middle = (start + end) / 2
        worth = (end - start) * HOURS_PER_YEAR / math.pow(1 + rate, middle)
        fallen = worth * math.pow(1 - decline, middle)
        rented += fallen
        reserved += worth * math.pow(1 - decline, math.floor(middle / term_years) * term_years)
        if middle < delivered:
            waiting += fallen
        else:
            owned += worth
    return _DiscountedHours(rented, reserved, waiting, owned)
