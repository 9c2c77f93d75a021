"""Compares the same GPUs owned, reserved, on demand and on spot, at current prices of one machine at one provider."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated

from broker.app.advise.history import PastUse
from broker.app.advise.places import Places, check_providers
from broker.app.market.offer_rows import LIST_AGE, SPOT_LIST_AGE
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.accelerators import lookup
from broker.core.values.figures import plural
from broker.core.values.money import MICROS_PER_USD
from broker.economics.assumptions import Assumptions, override
from broker.economics.buy_or_rent import BuyOrRent, compare, priced_ways, server
from broker.economics.figures import HIDDEN, Figure, Usd, usd_text

RENTED = (CapacityType.RESERVED, CapacityType.ON_DEMAND, CapacityType.SPOT)
_PRICE_ASSUMPTIONS = {
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
        return f"{way} is cheapest: {usd_text(best.present_value_usd)} for {machines}"


def buy_or_rent(
    gpu: str | None,
    offers: Sequence[Offer],
    place_limits: tuple[Places, Places],
    assumptions: Assumptions,
    usage: PastUse | None = None,
) -> BuyOrRentAdvice:
    """The advice. Missing prices of a machine with that accelerator are taken from the ``offers``. ``place_limits``:
    the places, and the same places at any provider. Raises `InvalidInput` if no price is known, `UnknownName`."""
    inputs = assumptions
    gpus = inputs.gpus or 1
    per_machine = inputs.gpus_per_machine or min(gpus, inputs.gpus_per_node)
    case = replace(inputs, gpus=gpus, gpus_per_machine=per_machine)
    notes: list[str] = []
    if usage is not None:
        case = replace(case, utilization=usage.utilization, hours_per_day=None, peak_to_baseline=usage.peak_to_baseline)
        notes.append(usage.text)
    provider, elsewhere = None, None
    if gpu is not None:
        case = _add_purchase(case, gpu, notes)
        case, provider, elsewhere = _add_rents(case, gpu, offers, place_limits, notes)
    comparison = compare(case)
    elsewhere_note = ""
    if elsewhere is not None:
        elsewhere_text, is_less = _elsewhere_text(comparison, case, *elsewhere)
        elsewhere_note = elsewhere_text if is_less else ""
        notes.insert(0, elsewhere_text)
    return BuyOrRentAdvice(
        gpu=gpu,
        gpus=gpus,
        gpus_per_machine=per_machine,
        provider=provider,
        cheaper_elsewhere=elsewhere_note,
        comparison=comparison,
        usage=usage,
        by_hours=tuple(_hours_cost(case, hours) for hours in range(1, 25)),
        assumptions=(*notes, *comparison.assumptions),
    )


def _hours_cost(case: Assumptions, hours: int) -> HoursCost:
    """Both at that many hours in use per day."""
    way_costs = priced_ways(replace(case, hours_per_day=float(hours)))
    owned = [way_cost.present_value_usd for way_cost in way_costs if way_cost.way is CapacityType.OWNED]
    rented = [way_cost.present_value_usd for way_cost in way_costs if way_cost.way is not CapacityType.OWNED]
    return HoursCost(hours, min(owned, default=None), min(rented, default=None))


def _add_purchase(case: Assumptions, gpu: str, notes: list[str]) -> Assumptions:
    """The case with the price of a server and its power, if they are not stated."""
    card, per_machine = lookup(gpu), case.gpus_per_machine or 1
    price, watts = server(card, per_machine, case)
    if case.watts is None:
        case = replace(case, watts=watts)
        notes.append(f"power of a machine in use: {watts:,.0f} W")
    if case.purchase_usd is None and price is not None:
        case = replace(case, purchase_usd=price)
        notes.append(
            f"purchase: ${price:,.0f}, {per_machine} × the middle of street prices of {card.name}, "
            f"× {case.server_per_card_price:g} for the rest of the server"
        )
    return case


def _add_rents(
    case: Assumptions, gpu: str, offers: Sequence[Offer], place_limits: tuple[Places, Places], notes: list[str]
) -> tuple[Assumptions, str | None, tuple[str, float] | None]:
    """The case with the rents of one machine at one provider, that provider, and a cheaper one (with its price)."""
    places, anywhere = place_limits
    per_machine = case.gpus_per_machine or 1
    if all(getattr(case, row) is not None for row in _PRICE_ASSUMPTIONS.values()):
        return case, None, None
    machine = same_machine(filter(places.has, offers), gpu, per_machine, max_term_months=12 * case.years)
    if machine is None:
        if case.purchase_usd is not None and any(getattr(case, row) is not None for row in _PRICE_ASSUMPTIONS.values()):
            return case, None, None
        check_providers(places.providers, {offer.provider for offer in offers})
        raise InvalidInput(
            f"no price of {gpu}:{per_machine} is known{' in the places of --where' if places.limited else ''}",
            hint="run `gpubroker prices poll`, name another size with --assume gpus_per_machine=N, or give the prices",
        )
    for way, price in machine.prices.items():
        if getattr(case, _PRICE_ASSUMPTIONS[way]) is None:
            case = override({_PRICE_ASSUMPTIONS[way]: price.usd_per_hour}, base=case)
            term = f", term {price.term_months} months" if price.term_months else ""
            if price.term_months:
                case = replace(case, term_years=price.term_months / 12)
            notes.append(
                f"{_way_name(way)}: ${price.usd_per_hour:,.2f}/h of {price.machine}, "
                f"{machine.provider}/{price.region}, {_price_kind(way, price)} of {price.as_of:%Y-%m-%d}{term}"
            )
    if missing := [_way_name(way) for way, row in _PRICE_ASSUMPTIONS.items() if getattr(case, row) is None]:
        notes.append(f"no {' and no '.join(missing)} price of that machine at {machine.provider}: omitted")
    share = case.spot_overhead_on(gpu, min(case.gpus or 1, per_machine))[0]
    if case.spot_usd_per_hour is not None:
        notes.append(case.spot_text(gpu, min(case.gpus or 1, per_machine)))
    elsewhere = cheapest_elsewhere(filter(anywhere.has, offers), machine)
    return replace(case, spot_overhead=share), machine.provider, elsewhere


def _way_name(way: CapacityType) -> str:
    return way.value.replace("_", "-")


@dataclass(frozen=True, slots=True)
class RentPrice:
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
    prices: Mapping[CapacityType, RentPrice]


def same_machine(
    offers: Iterable[Offer], accelerator: str, gpus: int, *, max_term_months: float | None = None
) -> SameMachine | None:
    """That many GPUs of a machine at the provider that has the most capacity types of it; among equals, the lowest
    on-demand price. A machine of that size comes before a share of a larger one. ``max_term_months``: longer
    reservations are omitted. None if no provider offers it."""
    prices_by_provider: dict[str, dict[CapacityType, RentPrice]] = {}
    matching = [offer for offer in offers if offer.accelerator == accelerator and offer.capacity_type in RENTED]
    exact = [offer for offer in matching if offer.count == gpus]
    for offer in exact or [offer for offer in matching if offer.count > gpus]:
        if not offer.price or (max_term_months is not None and (offer.term_months or 0) > max_term_months):
            continue
        price = RentPrice(
            offer.price.micros / MICROS_PER_USD * gpus / offer.count, offer.term_months, f"{accelerator}:{offer.count}",
            offer.region, offer.as_of, offer.reference,
        )  # fmt: skip
        prices = prices_by_provider.setdefault(offer.provider, {})
        best = prices.get(offer.capacity_type)
        if best is None or price.usd_per_hour < best.usd_per_hour:
            prices[offer.capacity_type] = price

    def order(name: str) -> tuple[int, float, str]:
        on_demand_price = prices_by_provider[name].get(CapacityType.ON_DEMAND)
        return -len(prices_by_provider[name]), on_demand_price.usd_per_hour if on_demand_price else float("inf"), name

    if not prices_by_provider:
        return None
    best_provider = min(prices_by_provider, key=order)
    return SameMachine(best_provider, accelerator, gpus, prices_by_provider[best_provider])


def cheapest_elsewhere(offers: Iterable[Offer], machine: SameMachine) -> tuple[str, float] | None:
    """Provider and USD per hour of a cheaper on-demand machine of that size at another provider; None without one."""
    own_price = machine.prices.get(CapacityType.ON_DEMAND)
    candidates = [
        (offer.price.micros / MICROS_PER_USD, offer.provider)
        for offer in offers
        if offer.accelerator == machine.accelerator
        and offer.count == machine.gpus
        and offer.capacity_type is CapacityType.ON_DEMAND
        and offer.price
    ]
    usd, provider = min(candidates, default=(float("inf"), ""))
    if not candidates or provider == machine.provider or (own_price is not None and usd >= own_price.usd_per_hour):
        return None
    return provider, usd


def _price_kind(way: CapacityType, price: RentPrice) -> str:
    """``price``, ``list price``, or ``old list price``, which `gpubroker offers` would not show."""
    if not price.reference:
        return "price"
    max_age = SPOT_LIST_AGE if way is CapacityType.SPOT else LIST_AGE
    return "old list price" if datetime.now(UTC) - price.as_of > max_age else "list price"


def _elsewhere_text(comparison: BuyOrRent, case: Assumptions, provider: str, usd_per_hour: float) -> tuple[str, bool]:
    """The provider that rents such a machine for less on demand, in words, and whether that is cheaper than every
    compared way."""
    text = f"{provider} rents such a machine on demand for ${usd_per_hour:,.2f}/h (--where provider={provider})"
    on_demand = next((way for way in comparison.ways if way.way is CapacityType.ON_DEMAND), None)
    if on_demand is None or not case.rent_usd_per_hour:
        return text, False
    present_value = on_demand.present_value_usd * usd_per_hour / case.rent_usd_per_hour
    is_cheaper = present_value < comparison.ways[0].present_value_usd
    verdict = "less than every way here" if is_cheaper else "which is not less"
    return f"{text}: {usd_text(present_value)} in present value, {verdict}", is_cheaper
