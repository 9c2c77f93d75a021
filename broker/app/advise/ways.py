"""Prices of the same GPUs owned, reserved, on demand and on spot, with the assumptions of their comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from broker.app.advise.places import Places, check_providers
from broker.app.advise.same_machine import RentedAs, cheapest_elsewhere, same_machine
from broker.app.market.offer_rows import LIST_AGE, LIST_AGE_OF_SPOT
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.accelerators import canonical, lookup
from broker.core.values.units import split_machine
from broker.economics.assumptions import Assumptions
from broker.economics.estimates import about
from broker.economics.ways import WaysCompared, WaysInputs


@dataclass(frozen=True, slots=True)
class FoundRents:
    """Where a machine is rented. ``term_years``: of its reservation, None without one; ``elsewhere``: another provider
    with a lower on-demand price of such a machine, and that price (USD per hour)."""

    provider: str
    term_years: float | None
    elsewhere: tuple[str, float] | None


def server(
    gpu: str, per_machine: int, server_usd: float | None, rules: Assumptions, notes: list[str]
) -> tuple[float | None, float]:
    """The price of a server with its cards (looked up if not given), and its power in use in watts."""
    card = lookup(gpu)
    watts = (card.tdp_w or 0.0) * per_machine * rules.server_watts_per_card_watt
    if server_usd is None and card.street_price:
        cards = sum(card.street_price) / 2 * per_machine
        server_usd = cards * rules.server_per_card_price
        notes.append(
            f"server: ${server_usd:,.0f}, {per_machine} × the middle of street prices of {card.name}, "
            f"× {rules.server_per_card_price:g} for the rest of it"
        )
    notes.append(f"power of a server in use: {watts:,.0f} W")
    return server_usd, watts


def rents(
    offers: Sequence[Offer],
    machine: str,
    within: tuple[Places, Places],
    prices: dict[CapacityType, float | None],
    years: float,
    notes: list[str],
) -> FoundRents | None:
    """Fill in missing prices (USD per hour) of one ``machine``, such as ``H100:8``, at one provider, with a note on
    each. ``within``: where, and where without the limit to some providers. None if such a machine is not offered, but a
    price is given. Raises `InvalidInput` if none is known, `UnknownName`."""
    places, anywhere = within
    wanted, per_machine = split_machine(machine)
    name = canonical(wanted)
    try:
        found = same_machine(filter(places.has, offers), name, per_machine, most_term_months=12 * years)
    except InvalidInput as error:
        if any(price is not None for price in prices.values()):
            return None
        check_providers(places.providers, {offer.provider for offer in offers})
        if not places.limited:
            raise
        limits = "within --provider, --region, --residency and --compliance"
        raise InvalidInput(f"{error.message} {limits}", hint=f"widen these limits; or {error.hint}") from error
    term_years = None
    for way, price in found.prices.items():
        if prices[way] is None:
            prices[way] = price.usd_per_hour
            term = f", term {price.term_months} months" if price.term_months else ""
            notes.append(
                f"{_named(way)}: ${price.usd_per_hour:,.2f}/h of {name}:{per_machine}, "
                f"{found.provider}/{price.region}, {_kind_of_price(way, price)} of {price.as_of:%Y-%m-%d}{term}"
            )
            if price.term_months:
                term_years = price.term_months / 12
    if missing := [_named(way) for way, price in prices.items() if price is None]:
        notes.append(f"no {' and no '.join(missing)} price of that machine at {found.provider}: omitted")
    return FoundRents(found.provider, term_years, cheapest_elsewhere(filter(anywhere.has, offers), found))


def _named(way: CapacityType) -> str:
    return way.value.replace("_", "-")


def _kind_of_price(way: CapacityType, price: RentedAs) -> str:
    """``price``, ``list price``, or ``old list price``, which `gpubroker offers` would not show."""
    if not price.reference:
        return "price"
    most = LIST_AGE_OF_SPOT if way is CapacityType.SPOT else LIST_AGE
    return "old list price" if datetime.now(UTC) - price.as_of > most else "list price"


def cheaper_elsewhere(found: WaysCompared, case: WaysInputs, provider: str, usd_per_hour: float) -> tuple[str, bool]:
    """The provider that rents such a machine for less on demand, in words, and whether that is cheaper than every
    compared way."""
    told = f"{provider} rents such a machine on demand for ${usd_per_hour:,.2f}/h (--provider {provider})"
    here = next((one for one in found.ways if one.way is CapacityType.ON_DEMAND), None)
    if here is None or not case.on_demand_usd_per_hour:
        return told, False
    there = here.npv_usd * usd_per_hour / case.on_demand_usd_per_hour
    less = there < min(one.npv_usd for one in found.ways)
    what = "less than every way here" if less else "which is not less"
    return f"{told}: {about(there)} in present value, {what}", less


def assumed(case: WaysInputs) -> list[str]:
    """The assumptions, and the costs that count as 0."""
    zero = {
        "staff": case.staff_usd_per_gpu_hour,
        "discount rate": case.discount_rate,
        "price decline": case.price_decline,
        "lead time": case.lead_time_weeks,
    }
    return [
        f"in use {24 * case.utilisation:.1f} h/day for {case.years:g} years; a year is 8,760 hours",
        f"owning: ${case.kwh_usd:g}/kWh, PUE {case.pue:g}, resale {case.resale_share:.0%}; no building, no network",
        f"reserved: every hour is paid, in terms of {case.term_years:g} years",
        *(f"{name}: 0" for name, value in zero.items() if not value),
    ]
