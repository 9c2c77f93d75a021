"""Compares the same GPUs owned, reserved, on demand and on spot, at current prices of one machine at one provider."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

from broker.app.advise.history import PastUse
from broker.app.advise.places import Places, check_providers
from broker.app.market.offer_rows import LIST_AGE, LIST_AGE_OF_SPOT
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.accelerators import lookup
from broker.core.values.figures import plural
from broker.core.values.money import MICROS_PER_USD
from broker.economics.assumptions import Assumptions, replaced
from broker.economics.buy_or_rent import BuyOrRent, compare, costs, server
from broker.economics.figures import HIDDEN, Figure, Usd, about

RENTED = (CapacityType.RESERVED, CapacityType.ON_DEMAND, CapacityType.SPOT)
_ROWS = {
    CapacityType.RESERVED: "reserved_usd_per_hour",
    CapacityType.ON_DEMAND: "rent_usd_per_hour",
    CapacityType.SPOT: "spot_usd_per_hour",
}


@dataclass(frozen=True, slots=True)
class HoursCost:
    """The present value of the cheapest owned and rented way at that many hours in use per day; null without a
    price."""

    hours_per_day: Figure
    owned_usd: Usd | None
    rented_usd: Usd | None


@dataclass(frozen=True, slots=True)
class BuyOrRentAdvice:
    """The comparison for ``gpus``. ``cheaper_elsewhere``: another provider rents such a machine for less than every way
    here costs; empty if none does. ``usage``: recorded use, only if requested."""

    gpu: str | None
    gpus: Annotated[int, HIDDEN]
    gpus_per_machine: int
    provider: str | None
    cheaper_elsewhere: str
    comparison: BuyOrRent
    usage: PastUse | None
    by_hours: Annotated[tuple[HoursCost, ...], HIDDEN]
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        best = self.comparison.ways[0]
        machines = f"{plural(self.gpus, 'GPU')} in {plural(self.comparison.machines, 'machine')}"
        way = best.way.value.replace("_", "-").capitalize()
        return f"{way} is cheapest: {about(best.present_value_usd)} for {machines}"


def buy_or_rent(
    gpu: str | None,
    offers: Sequence[Offer],
    within: tuple[Places, Places],
    assumptions: Assumptions,
    usage: PastUse | None = None,
) -> BuyOrRentAdvice:
    """The advice. Missing prices of a machine with that accelerator are taken from the ``offers``. ``within``: the
    places, and the same places at any provider. Raises `InvalidInput` if no price is known, `UnknownName`."""
    given = assumptions
    gpus = given.gpus or 1
    each = given.gpus_per_machine or min(gpus, given.gpus_per_node)
    case = replace(given, gpus=gpus, gpus_per_machine=each)
    notes: list[str] = []
    if usage is not None:
        case = replace(case, utilization=usage.utilization, hours_per_day=None, peak_to_baseline=usage.peak_to_baseline)
        notes.append(usage.text)
    provider, elsewhere = None, None
    if gpu is not None:
        case = _bought(case, gpu, notes)
        case, provider, elsewhere = _rented(case, gpu, offers, within, notes)
    compared = compare(case)
    less = ""
    if elsewhere is not None:
        told, is_less = _elsewhere(compared, case, *elsewhere)
        less = told if is_less else ""
        notes.insert(0, told)
    return BuyOrRentAdvice(
        gpu=gpu,
        gpus=gpus,
        gpus_per_machine=each,
        provider=provider,
        cheaper_elsewhere=less,
        comparison=compared,
        usage=usage,
        by_hours=tuple(_at(case, hours) for hours in range(1, 25)),
        assumptions=(*notes, *compared.assumptions),
    )


def _at(case: Assumptions, hours: int) -> HoursCost:
    """Both at that many hours in use per day."""
    found = costs(replace(case, hours_per_day=float(hours)))
    owned = [one.present_value_usd for one in found if one.way is CapacityType.OWNED]
    rented = [one.present_value_usd for one in found if one.way is not CapacityType.OWNED]
    return HoursCost(hours, min(owned, default=None), min(rented, default=None))


def _bought(case: Assumptions, gpu: str, notes: list[str]) -> Assumptions:
    """The case with the price of a server and its power, if they are not stated."""
    card, each = lookup(gpu), case.gpus_per_machine or 1
    price, watts = server(card, each, case)
    if case.watts is None:
        case = replace(case, watts=watts)
        notes.append(f"power of a machine in use: {watts:,.0f} W")
    if case.purchase_usd is None and price is not None:
        case = replace(case, purchase_usd=price)
        notes.append(
            f"purchase: ${price:,.0f}, {each} × the middle of street prices of {card.name}, "
            f"× {case.server_per_card_price:g} for the rest of the server"
        )
    return case


def _rented(
    case: Assumptions, gpu: str, offers: Sequence[Offer], within: tuple[Places, Places], notes: list[str]
) -> tuple[Assumptions, str | None, tuple[str, float] | None]:
    """The case with the rents of one machine at one provider, that provider, and a cheaper one (with its price)."""
    places, anywhere = within
    each = case.gpus_per_machine or 1
    if all(getattr(case, row) is not None for row in _ROWS.values()):
        return case, None, None
    found = same_machine(filter(places.has, offers), gpu, each, most_term_months=12 * case.years)
    if found is None:
        if case.purchase_usd is not None and any(getattr(case, row) is not None for row in _ROWS.values()):
            return case, None, None
        check_providers(places.providers, {offer.provider for offer in offers})
        raise InvalidInput(
            f"no price of {gpu}:{each} is known{' in the places of --where' if places.limited else ''}",
            hint="run `gpubroker prices poll`, name another size with --assume gpus_per_machine=N, or give the prices",
        )
    for way, price in found.prices.items():
        if getattr(case, _ROWS[way]) is None:
            case = replaced({_ROWS[way]: price.usd_per_hour}, base=case)
            term = f", term {price.term_months} months" if price.term_months else ""
            if price.term_months:
                case = replace(case, term_years=price.term_months / 12)
            notes.append(
                f"{_named(way)}: ${price.usd_per_hour:,.2f}/h of {price.machine}, "
                f"{found.provider}/{price.region}, {_kind_of_price(way, price)} of {price.as_of:%Y-%m-%d}{term}"
            )
    if missing := [_named(way) for way, row in _ROWS.items() if getattr(case, row) is None]:
        notes.append(f"no {' and no '.join(missing)} price of that machine at {found.provider}: omitted")
    share = case.spot_overhead_on(gpu, min(case.gpus or 1, each))[0]
    if case.spot_usd_per_hour is not None:
        notes.append(case.spot_text(gpu, min(case.gpus or 1, each)))
    elsewhere = cheapest_elsewhere(filter(anywhere.has, offers), found)
    return replace(case, spot_overhead=share), found.provider, elsewhere


def _named(way: CapacityType) -> str:
    return way.value.replace("_", "-")


@dataclass(frozen=True, slots=True)
class RentedAs:
    """The USD per hour of the machine for one capacity type; ``term_months`` of a reservation. ``reference``: a list
    price; ``as_of``: its date (UTC)."""

    usd_per_hour: float
    term_months: int | None
    machine: str
    region: str
    as_of: datetime
    reference: bool


@dataclass(frozen=True, slots=True)
class SameMachine:
    """GPUs of one machine at one ``provider``, with the lowest price for each capacity type."""

    provider: str
    accelerator: str
    gpus: int
    prices: Mapping[CapacityType, RentedAs]


def same_machine(
    offers: Iterable[Offer], accelerator: str, gpus: int, *, most_term_months: float | None = None
) -> SameMachine | None:
    """That many GPUs of a machine at the provider that has the most capacity types of it; among equals, the lowest
    on-demand price. A machine of that size comes before a share of a larger one. ``most_term_months``: longer
    reservations are omitted. None if no provider offers it."""
    found: dict[str, dict[CapacityType, RentedAs]] = {}
    fitting = [offer for offer in offers if offer.accelerator == accelerator and offer.capacity_type in RENTED]
    exact = [offer for offer in fitting if offer.count == gpus]
    for offer in exact or [offer for offer in fitting if offer.count > gpus]:
        if not offer.price or (most_term_months is not None and (offer.term_months or 0) > most_term_months):
            continue
        price = RentedAs(
            offer.price.micros / MICROS_PER_USD * gpus / offer.count, offer.term_months, f"{accelerator}:{offer.count}",
            offer.region, offer.as_of, offer.reference,
        )  # fmt: skip
        ways = found.setdefault(offer.provider, {})
        best = ways.get(offer.capacity_type)
        if best is None or price.usd_per_hour < best.usd_per_hour:
            ways[offer.capacity_type] = price

    def order(name: str) -> tuple[int, float, str]:
        on_demand = found[name].get(CapacityType.ON_DEMAND)
        return -len(found[name]), on_demand.usd_per_hour if on_demand else float("inf"), name

    if not found:
        return None
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


def _kind_of_price(way: CapacityType, price: RentedAs) -> str:
    """``price``, ``list price``, or ``old list price``, which `gpubroker offers` would not show."""
    if not price.reference:
        return "price"
    most = LIST_AGE_OF_SPOT if way is CapacityType.SPOT else LIST_AGE
    return "old list price" if datetime.now(UTC) - price.as_of > most else "list price"


def _elsewhere(found: BuyOrRent, case: Assumptions, provider: str, usd_per_hour: float) -> tuple[str, bool]:
    """The provider that rents such a machine for less on demand, in words, and whether that is cheaper than every
    compared way."""
    told = f"{provider} rents such a machine on demand for ${usd_per_hour:,.2f}/h (--where provider={provider})"
    here = next((one for one in found.ways if one.way is CapacityType.ON_DEMAND), None)
    if here is None or not case.rent_usd_per_hour:
        return told, False
    there = here.present_value_usd * usd_per_hour / case.rent_usd_per_hour
    less = there < found.ways[0].present_value_usd
    what = "less than every way here" if less else "which is not less"
    return f"{told}: {about(there)} in present value, {what}", less
