"""Offers as results."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from broker.app.market.offer_rows import ListedOffer, PriceKind
from broker.app.results.values import Figure, Moment, Result, Seconds, is_none
from broker.core.market.offers import Availability, CapacityType, Doubt, Interconnect, MoneyKind
from broker.core.values.money import Money


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
    same region, as a fraction; ``doubt``: why it is not believed, so that no job starts on it, with the figures in
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
    def of(cls, row: ListedOffer, **more: Any) -> Self:
        offer = row.offer
        return cls.from_parts(
            offer,
            price_per_hour=offer.price,
            price_per_gpu_hour=row.per_gpu,
            spot_discount=row.discount,
            age_seconds=row.age,
            stale=row.stale,
            price_kind=row.price_kind,
            **more,
        )


class OfferCounts(Result):
    """``matching``: how many offers there are, where the list has only the first; ``total``: how many are known;
    ``old_hidden``: how many more would match, but are reference prices too old to be shown unasked; ``converted``: by
    provider, the rates by which prices in another currency became dollars; ``nearby``: where nothing matches, what is
    offered near to a wanted accelerator that nobody offers."""

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
