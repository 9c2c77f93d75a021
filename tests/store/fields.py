"""What tests of the store say by keyword of an offer, a poll or an entry's tags, and the offer they start from."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypedDict, Unpack

from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.values.money import Money


class OfferFields(TypedDict, total=False):
    provider: str
    region: str
    zone: str | None
    accelerator: str | None
    count: int
    capacity_type: CapacityType
    source: str
    availability: Availability
    unavailable_because: str
    score: float | None
    interruption_rate: float | None
    money: MoneyKind
    reference: bool
    max_age: timedelta | None


class TagFields(TypedDict, total=False):
    team: str | None
    project: str | None
    workload: str | None
    environment: str | None
    capacity_type: CapacityType | None


def spot_offer(instance_type: str, price: Money | None, as_of: datetime, **more: Unpack[OfferFields]) -> Offer:
    """Eight H100 that AWS has, as spot, at so much an hour."""
    plain = Offer(
        "aws", "us-east-1", None, instance_type, "H100", 8, CapacityType.SPOT, price, as_of, "api",
        availability=Availability.AVAILABLE,
    )  # fmt: skip
    return replace(plain, **more)


def micros_of(price: Money | None) -> int | None:
    """An unknown price stays None."""
    return None if price is None else price.micros
