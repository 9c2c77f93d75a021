"""Capacity that was paid for or promised: owned machines, reservations, commitments; what an hour of them costs.

Monthly cost of a demand with holdings, new reservations, and bursts on demand and on spot.

Amounts are USD, prices per GPU and hour. A month is 730 hours. The past predicts the future: expected cost is the mean
over the blocks (weeks, or days with fewer than four weeks) of the last year, its range their 10th and 90th
percentile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from broker.core.errors import InvalidInput
from broker.core.values.money import Money
from broker.economics.energy import energy_usd_per_hour
from broker.economics.figures import PlannedUsd
from broker.economics.units import HOURS_PER_MONTH, not_negative, positive, quantile, share, whole


class HoldingKind(StrEnum):
    """The kind of holding. A commitment is a payment for a discount, without capacity of its own."""

    OWNED = "owned"
    RESERVATION = "reservation"
    COMMITMENT = "commitment"


@dataclass(frozen=True, slots=True)
class Holding:
    """``gpus`` accelerators held from ``starts`` until ``ends`` (UTC): the end of the term, or of the machines' life.

    ``provider``: who it is held from, for owned machines what their site is called; ``site``: region or place.
    ``upfront``: paid once, for all of it; ``hourly``: paid for every hour of the time whether used or not, for all of
    it. ``watts``: what all of it draws in use, for owned machines. ``order_id``: what the provider
    calls it, if it has a name there; ``proof``: the SHA-256 of a document that proves it (hex). Raises InvalidInput.
    """

    kind: HoldingKind
    accelerator: str
    gpus: int
    provider: str
    site: str
    starts: datetime
    ends: datetime
    upfront: Money = Money.ZERO
    hourly: Money = Money.ZERO
    watts: float = 0.0
    note: str = ""
    order_id: str = ""
    proof: str = ""

    def __post_init__(self) -> None:
        whole("GPUs", self.gpus)
        not_negative("power", self.watts, "W")
        if self.starts.tzinfo is None or self.ends.tzinfo is None:
            raise InvalidInput("a holding needs times with a time zone")
        if self.ends <= self.starts:
            raise InvalidInput(
                f"the holding ends ({self.ends.isoformat()}) before it starts ({self.starts.isoformat()})"
            )
        if min(self.upfront.micros, self.hourly.micros) < 0:
            raise InvalidInput("payments cannot be negative")

    @property
    def hours(self) -> float:
        """The whole time, in hours."""
        return (self.ends - self.starts) / timedelta(hours=1)

    def active(self, at: datetime) -> bool:
        return self.starts <= at < self.ends

    @property
    def usd_per_gpu_hour(self) -> float:
        """The cost of a GPU-hour, used or not: all payments spread evenly. USD."""
        upfront = float(self.upfront.dollars) / self.hours
        return (upfront + float(self.hourly.dollars)) / self.gpus

    def energy_usd_per_gpu_hour(self, kwh_usd: float, pue: float) -> float:
        """The extra cost of a GPU-hour in use. USD."""
        return energy_usd_per_hour(self.watts, kwh_usd, pue) / self.gpus


@dataclass(frozen=True, slots=True)
class RecordedHolding:
    """A recorded holding: its number, when (UTC) and by whom it was added."""

    number: int
    holding: Holding
    added_at: datetime
    added_by: str


DAY, WEEK, QUARTER, YEAR = 24, 168, 13 * 168, 52 * 168


@dataclass(frozen=True, slots=True)
class BurstPrices:
    """Prices of bursts. ``spot``: None if unavailable. ``spot_share``: the part of bursts on spot. ``lot``: the GPUs of
    the machine that is rented, all of which are paid for."""

    on_demand: float
    spot: float | None
    spot_share: float = 0.0
    lot: int = 1

    def __post_init__(self) -> None:
        positive("on-demand price", self.on_demand, "USD")
        if self.spot is not None:
            positive("spot price", self.spot, "USD")
        if share("spot share", self.spot_share) and self.spot is None:
            raise InvalidInput(
                "the spot price is missing, and a share of the bursts runs on spot", hint="give --spot-price"
            )

    @property
    def burst(self) -> float:
        """The blended price of a burst's GPU-hour."""
        return self.on_demand if self.spot is None else self.on_demand - self.spot_share * (self.on_demand - self.spot)


@dataclass(frozen=True, slots=True)
class Range:
    """USD per month: expected, and the 10th and 90th percentile of the blocks."""

    expected: PlannedUsd
    low: PlannedUsd
    high: PlannedUsd


class SupplyScenario(StrEnum):
    """Ways to serve the same demand."""

    AS_IS = "as_is"
    ALL_ON_DEMAND = "all_on_demand"
    ALL_SPOT = "all_spot"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class ScenarioCost:
    """``usd_per_month`` in parts: holdings, new reservations, bursts on demand and on spot."""

    scenario: SupplyScenario
    usd_per_month: Range
    held_usd: PlannedUsd
    reserved_anew_usd: PlannedUsd
    on_demand_usd: PlannedUsd
    spot_usd: PlannedUsd


@dataclass(frozen=True, slots=True)
class HeldCapacity:
    """Current holdings: GPUs, their hourly cost, the extra cost per GPU-hour in use, and the hourly commitment for
    bursts.
    """

    gpus: int
    usd_per_hour: float
    energy: float
    promised: float

    @classmethod
    def of(cls, holdings: Iterable[Holding], now: datetime, kwh_usd: float, pue: float) -> HeldCapacity:
        active = [holding for holding in holdings if holding.active(now)]
        serving = [holding for holding in active if holding.kind is not HoldingKind.COMMITMENT]
        gpus = sum(holding.gpus for holding in serving)
        energy = sum(holding.energy_usd_per_gpu_hour(kwh_usd, pue) * holding.gpus for holding in serving)
        paid = sum(holding.usd_per_gpu_hour * holding.gpus for holding in serving)
        all_paid = sum(holding.usd_per_gpu_hour * holding.gpus for holding in active)
        return cls(gpus, paid, energy / gpus if gpus else 0.0, all_paid - paid)


def scenario_cost(
    scenario: SupplyScenario,
    demand: Sequence[int],
    market: BurstPrices,
    held: HeldCapacity,
    reserved: int = 0,
    usd: float = 0.0,
) -> ScenarioCost:
    """The monthly cost of the last year's demand, block by block: with its season, if it has one."""
    recent = demand[-YEAR:]
    size = WEEK if len(recent) >= 4 * WEEK else DAY if len(recent) >= DAY else len(recent)
    full_blocks = recent[len(recent) % size :]
    paid_for, burst = [], []
    for start in range(0, len(full_blocks), size):
        block = full_blocks[start : start + size]
        used = sum(min(needed, held.gpus) for needed in block) / size
        burst_costs = [max(needed - held.gpus - reserved, 0) * market.burst for needed in block]
        paid_for.append(HOURS_PER_MONTH * (held.usd_per_hour + held.promised + held.energy * used))
        burst.append(HOURS_PER_MONTH * sum(max(paid - held.promised, 0.0) for paid in burst_costs) / size)
    reserved_cost = HOURS_PER_MONTH * reserved * usd
    totals = [paid + reserved_cost + rented for paid, rented in zip(paid_for, burst, strict=True)]
    bursts = sum(burst) / len(burst)
    on_spot = market.spot_share * (market.spot or 0.0) / market.burst
    return ScenarioCost(
        scenario=scenario,
        usd_per_month=Range(sum(totals) / len(totals), quantile(totals, 0.1), quantile(totals, 0.9)),
        held_usd=sum(paid_for) / len(paid_for),
        reserved_anew_usd=reserved_cost,
        on_demand_usd=bursts * (1 - on_spot),
        spot_usd=bursts * on_spot,
    )
