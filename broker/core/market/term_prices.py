"""Prices of terms, and the rent of machines of the same class that they are compared with: like with like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from broker.core.market.offers import CapacityType, Offer
from broker.core.market.price_basis import (
    MachineClass,
    PriceBasis,
    is_current,
    is_for_rent,
    is_obtainable,
    machine_price,
    price_basis,
    usd_per_gpu_hour,
)


@dataclass(frozen=True, slots=True)
class TermPrices:
    """``rent``: on demand, and ``spot``, of machines of one class; ``terms``: reserved ones of this class, cheapest
    first; ``notes``: what does not count, in sentences. None without a price."""

    rent: PriceBasis | None
    spot: PriceBasis | None
    terms: tuple[Offer, ...]
    notes: tuple[str, ...]


def term_prices(offers: Sequence[Offer], now: datetime, accelerator: str) -> TermPrices:
    """The current terms of providers that an engine reaches, else of others, in the class that has any: data centers
    before private hosts, linked cards before others; and the rent of this class by `price_basis`. Without a current
    rent of the class, that is the provider's own price on demand of the machine with the cheapest term, which the term
    discounts. ``now``: UTC."""
    known_terms = sorted(filter(is_term, offers), key=usd_per_gpu_hour)
    current_terms = [offer for offer in known_terms if is_current(offer, now)]
    reachable = {offer.provider for offer in offers if offer.engine is not None}
    in_reach = [offer for offer in current_terms if offer.provider in reachable]
    candidates = in_reach or current_terms
    classes = map(MachineClass.of, candidates)
    machine_class = min(classes, key=lambda own: (own.private, not own.linked), default=None)
    terms = [offer for offer in candidates if MachineClass.of(offer) == machine_class]
    rent = price_basis(offers, now, accelerator, machine_class=machine_class)
    notes = []
    own_offers = _same_machine(offers, terms[0]) if terms and (rent is None or not rent.is_current) else []
    if own_rent := price_basis(own_offers, now, accelerator):
        rent = own_rent
        notes.append("no other machine of this class has a current rent: the term is compared with its own rent")
    rent = rent or price_basis(offers, now, accelerator)
    spot_class = machine_class if rent is None else MachineClass.of(rent.offer)
    spot = price_basis(offers, now, accelerator, CapacityType.SPOT, machine_class=spot_class)
    if terms and not in_reach:
        notes.append(f"no engine starts jobs at {terms[0].location}: machines with this term are used by hand")
    elif terms and (lowest_term := current_terms[0]) not in terms:
        notes.append(f"not proposed: {_term_price(lowest_term)}: out of reach, or of another class")
    rents = [offer for offer in offers if _is_rent(offer) and is_current(offer, now)]
    lowest = min(rents, key=usd_per_gpu_hour, default=None)
    if terms and lowest is not None and usd_per_gpu_hour(lowest) < usd_per_gpu_hour(terms[0]):
        notes.append(f"if your jobs run on {machine_price(lowest)}, rent there: reserve nothing")
    return TermPrices(
        rent,
        spot,
        tuple(terms),
        (*notes, *_old_terms(offers, known_terms, {offer.term_months for offer in terms}, now)),
    )


def is_term(offer: Offer) -> bool:
    """Whether it is capacity for a term of months that can be bought for cash."""
    is_for_sale = offer.capacity_type is CapacityType.RESERVED and bool(offer.term_months)
    return is_for_sale and is_for_rent(offer) and is_obtainable(offer)


def term_name(offer: Offer) -> str:
    """``gcp/us-central1 a3-highgpu-8g, 12 months``"""
    return f"{offer.location} {offer.instance_type}, {offer.term_months} months"


def _term_price(term: Offer) -> str:
    return f"{term_name(term)} at ${usd_per_gpu_hour(term):,.2f} per GPU-hour"


def _is_rent(offer: Offer) -> bool:
    return offer.capacity_type is CapacityType.ON_DEMAND and is_for_rent(offer) and is_obtainable(offer)


def _same_machine(offers: Iterable[Offer], term: Offer) -> list[Offer]:
    machine = (term.provider, term.region, term.instance_type)
    return [offer for offer in offers if (offer.provider, offer.region, offer.instance_type) == machine]


def _old_terms(
    offers: Sequence[Offer], terms: Iterable[Offer], proposed: set[int | None], now: datetime
) -> Iterator[str]:
    """The cheapest old term of each length that no proposed term has."""
    for term in terms:
        if term.term_months in proposed or is_current(term, now):
            continue
        proposed = {*proposed, term.term_months}
        usd, own = usd_per_gpu_hour(term), price_basis(_same_machine(offers, term), now, term.accelerator or "")
        share = f", {usd / own.usd:.2f} of its own price on demand, ${own.usd:,.2f}" if own is not None else ""
        yield (
            f"not used: {_term_price(term)}{share}: "
            f"{'list price' if term.reference else 'price'} of {term.as_of:%Y-%m-%d}, ask for a quote"
        )
