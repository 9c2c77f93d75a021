"""GPUs in use by hour, and the current cash prices that use is compared with; for plans and findings."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import floor

from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer

HOUR = timedelta(hours=1)
Stretch = tuple[datetime, datetime, int]
"""Start and end (UTC), and the number of GPUs in use."""


def hourly(stretches: Iterable[Stretch], begins: datetime, hours: int) -> tuple[int, ...]:
    """The mean number of GPUs in use in each hour from ``begins`` (UTC) on, rounded to whole GPUs."""
    sums, ends = [0.0] * hours, begins + hours * HOUR
    for start, end, gpus in stretches:
        at, last = max(start, begins), min(end, ends)
        while at < last:
            index = (at - begins) // HOUR
            edge = min(last, begins + (index + 1) * HOUR)
            sums[index] += gpus * ((edge - at) / HOUR)
            at = edge
    return tuple(floor(gpus + 0.5) for gpus in sums)


def full_hour(at: datetime) -> datetime:
    """The full hour at or before ``at``."""
    return at.replace(minute=0, second=0, microsecond=0)


def has_current_price(offer: Offer, now: datetime) -> bool:
    """Whether the offer has a cash price that holds now: not in doubt, not sold out, and not stale."""
    gone = offer.availability in (Availability.UNAVAILABLE, Availability.NO_QUOTA)
    stale = not offer.reference and offer.max_age is not None and now - offer.as_of > offer.max_age
    believed = offer.doubt is None and offer.has_valid_price()
    return offer.money is MoneyKind.CASH and believed and not gone and not stale


def cheapest(offers: Iterable[Offer], kind: CapacityType) -> Offer | None:
    """The offer of that capacity type with the lowest price of a GPU-hour."""
    return min((offer for offer in offers if offer.capacity_type is kind), key=usd, default=None)


def usd(offer: Offer) -> float:
    """USD per GPU-hour; infinite without a price."""
    price = offer.price_per_gpu
    return float(price.dollars) if price is not None else float("inf")
