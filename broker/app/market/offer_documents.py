"""Offers as results, also in groups and with their interruption risk."""

from datetime import timedelta
from math import isfinite
from typing import Any, Self

from pydantic import Field

from broker.app.documents import Figure, Moment, Result, Seconds, is_none
from broker.app.market.offer_rows import ListedOffer, PriceKind
from broker.core.market.offers import Availability, CapacityType, Doubt, Interconnect, MoneyKind
from broker.core.values.money import Money
from broker.placement.pricing.hazard import EDGES, HazardBasis, Risk


class OfferedMachine(Result):
    """The machine that an offer prices. ``term_months``: of a reservation."""

    provider: str
    region: str
    zone: str | None
    instance_type: str
    accelerator: str | None
    count: int
    capacity_type: CapacityType
    term_months: int | None

    @property
    def machine(self) -> str:
        """``H100:8``, or ``cpu`` for a machine without accelerators."""
        return f"{self.accelerator}:{self.count}" if self.accelerator else "cpu"


class OfferResult(OfferedMachine):
    """One offer. Prices in USD an hour; ``spot_discount``: of the cheapest on-demand price of the same machine in the
    same region, as a fraction; ``doubt``: why the price is suspicious, so that no job starts on it, with the figures in
    ``doubt_detail``; ``pool``: its name for `gpubroker prices accept`; ``price_kind``: ``live``, or the first reason
    that applies why it is not (``recorded``: capacity on record that no engine reaches)."""

    price_per_hour: Money | None
    price_per_gpu_hour: Money | None
    spot_discount: Figure | None
    availability: Availability
    unavailable_because: str
    score: Figure | None
    interruption_rate: Figure | None
    as_of: Moment
    age_seconds: Seconds
    stale: bool
    doubt: Doubt | None
    doubt_detail: str
    pool: str
    reference: bool
    price_kind: PriceKind
    source: str
    engine: str | None
    money: MoneyKind
    cpus: Figure | None
    memory_gib: Figure | None
    interconnect: Interconnect | None
    slots: int | None

    @classmethod
    def of(cls, row: ListedOffer, **extra: Any) -> Self:
        offer = row.offer
        return cls.from_parts(
            offer,
            price_per_hour=offer.price,
            price_per_gpu_hour=row.per_gpu,
            spot_discount=row.discount,
            age_seconds=row.age,
            stale=row.stale,
            price_kind=row.price_kind,
            **extra,
        )


class OfferCounts(Result):
    """``matching``: how many offers there are, where the list has only the first; ``total``: how many are known;
    ``old_hidden``: how many more would match, but are reference prices too old to be shown by default; ``converted``:
    by provider, the rates by which prices in another currency became dollars; ``nearby``: where nothing matches, the
    nearest alternatives to a requested accelerator without offers."""

    as_of: Moment
    matching: int
    total: int
    old_hidden: int
    converted: dict[str, list[str]]
    nearby: dict[str, list[str]]


class OfferList(OfferCounts):
    """Offers in the order that was asked for."""

    offers: list[OfferResult]


class OfferGroupResult(Result):
    """Offers with the same values in the dimensions of the list; the other dimensions are left out. ``cheapest``: of
    those that are not sold out; null where there is none. Prices in USD."""

    gpu: str | None = Field(default=None, exclude_if=is_none)
    machine: str | None = Field(default=None, exclude_if=is_none)
    provider: str | None = Field(default=None, exclude_if=is_none)
    region: str | None = Field(default=None, exclude_if=is_none)
    zone: str | None = Field(default=None, exclude_if=is_none)
    instance_type: str | None = Field(default=None, exclude_if=is_none)
    capacity_type: str | None = Field(default=None, exclude_if=is_none)
    offers: int
    max_price_per_gpu_hour: Money | None
    cheapest: OfferResult | None


class OfferGroupList(OfferCounts):
    """Offers in groups, the cheapest first. ``matching``: the number of offers in all groups; ``matching_groups``: how
    many groups there are, where ``groups`` has only the first."""

    group_by: list[str]
    matching_groups: int
    groups: list[OfferGroupResult]


class RiskBand(Result):
    """Interruptions per hour of machines from that age on."""

    start: Seconds = Field(validation_alias="from", serialization_alias="from")
    interruptions_per_hour: Figure


class RiskEvidence(Result):
    """How much was seen: hours of all machines, and losses."""

    hours: Figure
    losses: Figure


class RiskResult(Result):
    """The expected interruptions of one machine of a pool. ``mean_life``: null for capacity that is never interrupted;
    ``left_after_3_hours``: the mean further life of a machine that has run for three hours, null likewise;
    ``time_to_return``: how long a lost pool stays away."""

    interruptions_per_hour: Figure
    mean_life: Seconds | None
    left_after_3_hours: Seconds | None
    time_to_return: Seconds
    by_age: list[RiskBand]
    basis: HazardBasis
    prior_per_hour: Figure
    own: RiskEvidence
    family: RiskEvidence

    @classmethod
    def of(cls, risk: Risk) -> Self:
        return cls.from_parts(
            risk,
            mean_life=timedelta(hours=risk.mean_life) if isfinite(risk.mean_life) else None,
            left_after_3_hours=timedelta(hours=remaining) if isfinite(remaining := risk.life_left(3.0)) else None,
            time_to_return=timedelta(hours=risk.time_to_return),
            by_age=[
                RiskBand(start=timedelta(hours=edge), interruptions_per_hour=rate)
                for edge, rate in zip(EDGES, risk.by_age, strict=True)
            ],
            prior_per_hour=risk.prior,
        )


class OfferWithRisk(OfferResult):
    """An offer with its interruption risk."""

    risk: RiskResult


class OfferRiskList(OfferCounts):
    """Offers with their risk."""

    offers: list[OfferWithRisk]
