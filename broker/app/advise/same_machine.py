"""Prices of one machine at one provider for every capacity type, so that they differ in nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import MICROS_PER_USD

RENTED = (CapacityType.RESERVED, CapacityType.ON_DEMAND, CapacityType.SPOT)


@dataclass(frozen=True, slots=True)
class RentedAs:
    """The USD per hour of the machine for one capacity type; ``term_months`` of a reservation. ``reference``: a list
    price; ``as_of``: its date (UTC)."""

    usd_per_hour: float
    term_months: int | None
    region: str
    source: str
    as_of: datetime
    reference: bool


@dataclass(frozen=True, slots=True)
class SameMachine:
    """A machine with ``gpus`` at one ``provider``, with its lowest price for each capacity type."""

    provider: str
    accelerator: str
    gpus: int
    prices: Mapping[CapacityType, RentedAs]


def same_machine(
    offers: Iterable[Offer],
    accelerator: str,
    gpus: int,
    *,
    provider: str | None = None,
    most_term_months: float | None = None,
) -> SameMachine:
    """The machine at the provider that has the most capacity types of it; among equals, the lowest on-demand price.

    ``most_term_months``: longer reservations are omitted. Raises InvalidInput if no provider offers it.
    """
    found: dict[str, dict[CapacityType, RentedAs]] = {}
    for offer in offers:
        if offer.accelerator != accelerator or offer.count != gpus or offer.capacity_type not in RENTED:
            continue
        if offer.price is None or not offer.price or (provider is not None and offer.provider != provider):
            continue
        if most_term_months is not None and (offer.term_months or 0) > most_term_months:
            continue
        price = RentedAs(
            offer.price.micros / MICROS_PER_USD, offer.term_months, offer.region, offer.source, offer.as_of,
            offer.reference,
        )  # fmt: skip
        ways = found.setdefault(offer.provider, {})
        best = ways.get(offer.capacity_type)
        if best is None or price.usd_per_hour < best.usd_per_hour:
            ways[offer.capacity_type] = price
    if not found:
        at = f" at {provider}" if provider else ""
        raise InvalidInput(
            f"no price of {accelerator}:{gpus}{at} is known",
            hint="run `gpubroker prices poll`, name another size with --gpus-per-machine, or give the prices",
        )

    def order(name: str) -> tuple[int, float, str]:
        on_demand = found[name].get(CapacityType.ON_DEMAND)
        return -len(found[name]), on_demand.usd_per_hour if on_demand else float("inf"), name

    best_provider = min(found, key=order)
    return SameMachine(best_provider, accelerator, gpus, found[best_provider])


def cheapest_elsewhere(offers: Iterable[Offer], machine: SameMachine) -> tuple[str, float] | None:
    """Provider and USD per hour of a cheaper on-demand machine of that size at another provider; None without one."""
    here = machine.prices.get(CapacityType.ON_DEMAND)
    found = [
        (offer.price.micros / MICROS_PER_USD, offer.provider)
        for offer in offers
        if offer.accelerator == machine.accelerator
        and offer.count == machine.gpus
        and offer.capacity_type is CapacityType.ON_DEMAND
        and offer.price
    ]
    usd, provider = min(found, default=(float("inf"), ""))
    if not found or provider == machine.provider or (here is not None and usd >= here.usd_per_hour):
        return None
    return provider, usd
