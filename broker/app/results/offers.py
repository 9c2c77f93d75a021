"""Offers as results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import Field

from broker.app.market.market import OfferListing
from broker.app.market.offer_rows import ListedOffer
from broker.app.results.values import Figure, Moment, Result, Seconds, is_none
from broker.core.market.offers import Availability, CapacityType, Doubt, Interconnect, MoneyKind, Offer
from broker.core.values.money import Money


class OfferResult(Result):
    """One offer. Prices in USD an hour; ``spot_discount``: of the cheapest on-demand price of the same machine in the
    same region, as a fraction; ``term_months``: of a reservation; ``doubt``: why it is not believed, so that no job
    starts on it, with the figures in ``doubt_detail``; ``pool``: its name for `gpubroker prices accept`."""

    provider: str
    region: str
    zone: str | None
    instance_type: str
    accelerator: str | None
    count: int
    capacity_type: CapacityType
    term_months: int | None
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
            **machine_of(offer),
            price_per_hour=offer.price,
            price_per_gpu_hour=row.per_gpu,
            spot_discount=row.discount,
            age_seconds=row.age,
            stale=row.stale,
            **more,
        )


class OfferList(Result):
    """Offers. ``matching``: how many there are, where ``offers`` has only the first; ``total``: how many are known;
    ``old_hidden``: how many more would match, but are reference prices too old to be shown unasked; ``converted``: by
    provider, the rates by which prices in another currency became dollars; ``nearby``: where nothing matches, what is
    offered near to a wanted accelerator that nobody offers."""

    as_of: Moment
    matching: int
    total: int
    old_hidden: int
    converted: dict[str, list[str]]
    nearby: dict[str, list[str]]
    offers: list[OfferResult]

    @classmethod
    def of(
        cls,
        matching: Sequence[ListedOffer],
        found: OfferListing,
        limit: int | None,
        old_hidden: int,
        nearby: Mapping[str, list[str]],
    ) -> Self:
        return cls(
            as_of=found.now,
            matching=len(matching),
            total=found.total,
            old_hidden=old_hidden,
            converted={provider: list(rates) for provider, rates in found.converted.items()},
            nearby=dict(nearby),
            offers=[OfferResult.of(row) for row in matching[:limit]],
        )


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


class OfferGroupList(Result):
    """Offers in groups, the cheapest first. ``matching``: the number of offers in all groups."""

    as_of: Moment
    matching: int
    total: int
    group_by: list[str]
    groups: list[OfferGroupResult]


def machine_of(offer: Offer) -> dict[str, Any]:
    """The fields that identify an offer's machine in every document."""
    return {
        "provider": offer.provider,
        "region": offer.region,
        "zone": offer.zone,
        "instance_type": offer.instance_type,
        "accelerator": offer.accelerator,
        "count": offer.count,
        "capacity_type": offer.capacity_type,
        "term_months": offer.term_months,
    }
