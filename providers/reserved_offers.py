"""Offers from held capacity: common parts of the adapters' ``holdings``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from broker.core.market.capacity import Reservation
from broker.core.market.offers import Availability, Offer, SkippedRow
from providers.rows import OfferRows


def is_held(reservation: Reservation, now: datetime) -> bool:
    """Whether the reservation has begun and has not ended."""
    has_begun = reservation.starts is None or reservation.starts <= now
    return has_begun and (reservation.ends is None or reservation.ends > now)


def merge_offers(offers: Iterable[Offer | SkippedRow]) -> OfferRows:
    """One offer per place and instance type, with the free machines (``slots``) of all its reservations: unavailable if
    there are none, unknown if unknown for one of them."""
    merged: dict[str, Offer] = {}
    for offer in offers:
        if isinstance(offer, SkippedRow):
            yield offer
            continue
        previous = merged[offer.id].slots if offer.id in merged else 0
        slots = None if previous is None or offer.slots is None else previous + offer.slots
        merged[offer.id] = replace(offer, slots=slots)
    for offer in merged.values():
        if offer.slots is None:
            yield offer
        elif offer.slots:
            yield replace(offer, availability=Availability.AVAILABLE)
        else:
            because = "every machine of these reservations is in use"
            yield replace(offer, availability=Availability.UNAVAILABLE, unavailable_because=because)
