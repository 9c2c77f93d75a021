"""`gpubroker advise capacity`: cost of the same GPUs owned, reserved, on demand and on spot, by the same rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import applied, gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from broker.app.advise.places import Places
    from broker.app.advise.same_machine import RentedAs
    from broker.app.results.cost_advice import CapacityAdvice
    from broker.economics.rules import RulesOfThumb
    from broker.economics.ways import WaysCompared, WaysInputs

EXAMPLES = examples(
    "gpubroker advise capacity --gpu H100 --hours-per-day 12 --years 3",
    "gpubroker advise capacity --gpu H100 --gpus 16 --utilisation 0.6 --years 3 --provider aws --price-decline 0.2",
    "gpubroker advise capacity --gpu H100 --gpus 8 --from-history --days 90",
    "gpubroker advise capacity --gpus 8 --server-usd 300000 --on-demand-usd-per-hour 24 --reserved-usd-per-hour 15 "
    "--json",
)


@dataclass(frozen=True)
class CapacityTypeOptions:
    """The options of `capacity`."""

    gpu: inputs.Gpu = None
    gpus: Annotated[int, typer.Option(help="Number of GPUs needed.")] = 8
    gpus_per_machine: Annotated[int, typer.Option(help="GPUs per server and per rented machine.")] = 8
    years: Annotated[float, typer.Option(help="Period of use in years.")] = 3.0
    hours_per_day: Annotated[float | None, typer.Option(help="Hours in use per day.")] = None
    utilisation: Annotated[float | None, typer.Option(help="Share of all hours in use.")] = None
    from_history: Annotated[
        bool, typer.Option("--from-history", help="Utilisation from the recorded use of your jobs.")
    ] = False
    days: Annotated[float, typer.Option(help="With --from-history: length of the period in days.")] = 90.0
    where: inputs.PlaceOptions = inputs.ANYWHERE
    server_usd: Annotated[float | None, inputs.usd("Price of a server with its GPUs.")] = None
    reserved_usd_per_hour: Annotated[float | None, inputs.usd("Reserved machine, per hour.")] = None
    on_demand_usd_per_hour: Annotated[float | None, inputs.usd("On-demand machine, per hour.")] = None
    spot_usd_per_hour: Annotated[float | None, inputs.usd("Spot machine, per hour.")] = None
    term_years: Annotated[float, typer.Option(help="Term of a reservation in years.")] = 1.0
    kwh_usd: Annotated[float | None, inputs.usd("Price per kWh.")] = None
    pue: Annotated[float | None, typer.Option(help="Power usage effectiveness.")] = None
    staff_usd_per_gpu_hour: Annotated[float, inputs.usd("Staff cost of owned machines, for all hours.")] = 0.0
    resale_share: Annotated[
        float | None, typer.Option(help="Resale price at the end, as a share of the purchase. Default: 0.15.")
    ] = None
    discount_rate: Annotated[float, typer.Option(help="Per year; 0.08 is 8 %.")] = 0.0
    price_decline: Annotated[float, typer.Option(help="Yearly decline of rents.")] = 0.0
    spot_overhead: Annotated[
        float | None, typer.Option(help="Share of hours repeated or spent waiting. Default: 0.1.")
    ] = None
    lead_time_weeks: Annotated[
        float, typer.Option(help="Weeks until delivery; machines are rented on demand meanwhile.")
    ] = 0.0


@gathered
def capacity(context: typer.Context, given: CapacityTypeOptions, as_json: AsJson = False) -> None:
    """Compare the cost of the same GPUs owned, reserved, on demand and on spot, and the inputs that change the answer.

    Reservations are paid for every hour (take-or-pay), on-demand and spot machines for the hours in use. Servers and
    machines are counted whole. With --gpu, missing prices are looked up for one machine at one provider: the one with
    the most capacity types, of those named.
    """
    from broker.app.results.cost_advice import CapacityAdvice
    from broker.economics.units import positive
    from broker.economics.ways import WaysInputs, compare

    provider = given.where.only_provider
    server_usd = given.server_usd
    term_years = given.term_years
    positive("years", given.years, most=50)  # first, because the lookup of prices needs it
    terminal = Terminal.of(context)
    thumb = inputs.measured(terminal, inputs.thumb(context))
    notes: list[str] = []
    prices = {
        CapacityType.RESERVED: given.reserved_usd_per_hour,
        CapacityType.ON_DEMAND: given.on_demand_usd_per_hour,
        CapacityType.SPOT: given.spot_usd_per_hour,
    }
    watts, elsewhere = 0.0, None
    if given.gpu is not None:
        server_usd, watts = _server(given.gpu, given.gpus_per_machine, server_usd, thumb, notes)
        provider, term_years, elsewhere = _rents(
            terminal, given.gpu, given.gpus_per_machine, given.where, prices, (term_years, given.years), notes
        )
    case = applied(
        WaysInputs,
        given,
        utilisation=_measured(terminal, given, thumb, notes) if given.from_history else _share(given),
        server_usd=server_usd,
        reserved_usd_per_hour=prices[CapacityType.RESERVED],
        on_demand_usd_per_hour=prices[CapacityType.ON_DEMAND],
        spot_usd_per_hour=prices[CapacityType.SPOT],
        term_years=term_years,
        server_watts=watts,
        kwh_usd=thumb.kwh_usd if given.kwh_usd is None else given.kwh_usd,
        pue=thumb.pue if given.pue is None else given.pue,
        resale_share=thumb.resale_share if given.resale_share is None else given.resale_share,
        spot_overhead=_spot_overhead(given, thumb, notes),
    )
    found = compare(case)
    notes += _assumed(case)
    less = ""
    if elsewhere is not None:
        told, is_less = _cheaper_elsewhere(found, case, *elsewhere)
        notes.insert(0, told)
        less = told if is_less else ""
    advice = CapacityAdvice.from_parts(
        found,
        gpu=given.gpu,
        gpus=given.gpus,
        provider=provider,
        gpus_per_machine=given.gpus_per_machine,
        less_elsewhere=less,
        assumptions=notes,
    )
    terminal.result(advice, lambda: _screen(terminal.out, advice))


def _measured(terminal: Terminal, given: CapacityTypeOptions, thumb: RulesOfThumb, notes: list[str]) -> float:
    """The share of hours in which that many owned GPUs would have been in use, according to the recorded jobs."""
    from broker.cli.advise.buy_or_rent import history

    if given.hours_per_day is not None or given.utilisation is not None:
        raise InvalidInput("--from-history cannot be combined with --hours-per-day or --utilisation")
    return history(terminal, given.days, given.gpu, None, notes, thumb, gpus=given.gpus).utilisation


def _share(given: CapacityTypeOptions) -> float:
    hours_per_day, utilisation = given.hours_per_day, given.utilisation
    from broker.economics.buy_or_rent import utilisation_of

    if hours_per_day is not None and utilisation is not None:
        raise InvalidInput("--hours-per-day and --utilisation cannot be combined", hint="remove one of them")
    if hours_per_day is not None:
        return utilisation_of(hours_per_day)
    return 1.0 if utilisation is None else utilisation


def _server(
    gpu: str, per_machine: int, server_usd: float | None, thumb: RulesOfThumb, notes: list[str]
) -> tuple[float | None, float]:
    """The price of a server with its cards (looked up if not given), and its power in use in watts."""
    from broker.core.values.accelerators import lookup

    card = lookup(gpu)
    watts = (card.tdp_w or 0.0) * per_machine * thumb.server_watts_per_card_watt
    if server_usd is None and card.street_price:
        cards = sum(card.street_price) / 2 * per_machine
        server_usd = cards * thumb.server_per_card_price
        notes.append(
            f"server: ${server_usd:,.0f}, {per_machine} × the middle of street prices of {card.name}, "
            f"× {thumb.server_per_card_price:g} for the rest of it"
        )
    notes.append(f"power of a server in use: {watts:,.0f} W")
    return server_usd, watts


def _rents(
    terminal: Terminal,
    gpu: str,
    per_machine: int,
    where: inputs.PlaceOptions,
    prices: dict[CapacityType, float | None],
    times: tuple[float, float],
    notes: list[str],
) -> tuple[str | None, float, tuple[str, float] | None]:
    """Fill in missing prices. Returns the provider, the term of its reservation in years, and another provider with a
    lower on-demand price of such a machine, with that price (USD per hour)."""
    from broker.app.advise.prices import current_offers
    from broker.app.advise.same_machine import cheapest_elsewhere, same_machine
    from broker.cli.render import formats
    from broker.core.values.accelerators import canonical

    term_years, years = times
    provider = where.only_provider
    if all(price is not None for price in prices.values()):
        return provider, term_years, None
    places = where.places(terminal)
    offers = current_offers(terminal.settings().store_url, partial(terminal.broker, look_after=False))
    name = canonical(gpu)
    try:
        machine = same_machine(filter(places.has, offers), name, per_machine, most_term_months=12 * years)
    except InvalidInput as error:
        if any(price is not None for price in prices.values()):
            return provider, term_years, None
        inputs.check_providers(places.providers, {offer.provider for offer in offers})
        raise _none_in(error, places) from error
    for way, price in machine.prices.items():
        if prices[way] is None:
            prices[way] = price.usd_per_hour
            kind = _kind_of_price(way, price)
            term = f", term {price.term_months} months" if price.term_months else ""
            notes.append(
                f"{formats.purchase_type(way)}: ${price.usd_per_hour:,.2f}/h of {name}:{per_machine}, "
                f"{machine.provider}/{price.region}, {kind} of {price.as_of:%Y-%m-%d}{term}"
            )
            if price.term_months:
                term_years = price.term_months / 12
    missing = [formats.purchase_type(way) for way, price in prices.items() if price is None]
    if missing:
        notes.append(f"no {' and no '.join(missing)} price of that machine at {machine.provider}: omitted")
    anywhere = replace(where, provider=None).places(terminal)  # another provider within the same limits
    return machine.provider, term_years, cheapest_elsewhere(filter(anywhere.has, offers), machine)


def _none_in(error: InvalidInput, places: Places) -> InvalidInput:
    if not places.limited:
        return error
    limits = "within --provider, --region, --residency and --compliance"
    return InvalidInput(f"{error.message} {limits}", hint=f"widen these limits; or {error.hint}")


def _kind_of_price(way: CapacityType, price: RentedAs) -> str:
    """``price``, ``list price``, or ``old list price``, which `gpubroker offers` would not show."""
    from datetime import UTC, datetime

    from broker.app.market.offer_rows import LIST_AGE, LIST_AGE_OF_SPOT

    if not price.reference:
        return "price"
    most = LIST_AGE_OF_SPOT if way is CapacityType.SPOT else LIST_AGE
    return "old list price" if datetime.now(UTC) - price.as_of > most else "list price"


def _cheaper_elsewhere(found: WaysCompared, case: WaysInputs, provider: str, usd_per_hour: float) -> tuple[str, bool]:
    """The provider that rents such a machine for less on demand, in words, and whether that is cheaper than every
    compared way."""
    from broker.economics.estimates import about

    told = f"{provider} rents such a machine on demand for ${usd_per_hour:,.2f}/h (--provider {provider})"
    here = next((one for one in found.ways if one.way is CapacityType.ON_DEMAND), None)
    if here is None or not case.on_demand_usd_per_hour:
        return told, False
    there = here.npv_usd * usd_per_hour / case.on_demand_usd_per_hour
    less = there < min(one.npv_usd for one in found.ways)
    what = "less than every way here" if less else "which is not less"
    return f"{told}: {about(there)} in present value, {what}", less


def _spot_overhead(given: CapacityTypeOptions, thumb: RulesOfThumb, notes: list[str]) -> float:
    """The share of hours on spot that are repeated or spent waiting: given, measured in the recorded runs, or
    assumed."""
    if given.spot_overhead is not None:
        notes.append(f"spot: {given.spot_overhead:.0%} of hours redone or waited for, as given")
        return given.spot_overhead
    from broker.core.values.accelerators import canonical

    card, at_once = canonical(given.gpu) if given.gpu else "", min(given.gpus, given.gpus_per_machine)
    notes.append(thumb.spot_text(card, at_once))
    return thumb.spot_overhead_on(card, at_once)[0]


def _assumed(case: WaysInputs) -> list[str]:
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


def _screen(console: Console, found: CapacityAdvice) -> Iterator[RenderableType]:
    from broker.app.results.cost_advice import FlipPointResult, WayCostResult
    from broker.cli.advise import view
    from broker.cli.render.formats import plural, purchase_type
    from broker.cli.render.tables import ValueColumn, listed
    from broker.economics.estimates import digits

    best = found.ways[0]
    machines = f"{plural(found.gpus, 'GPU')} in {plural(found.machines, 'machine')}"
    told = f": {view.estimate(best.npv_usd)} for {machines}, {found.used_gpu_hours:,.0f} GPU-hours in use"
    yield view.heading(f"{purchase_type(best.way).capitalize()} is cheapest", told)
    ways: tuple[ValueColumn[WayCostResult], ...] = (
        ValueColumn("capacity type", lambda one: purchase_type(one.way)),
        ValueColumn("in total", lambda one: view.estimate(one.total_usd), 2, "right"),
        ValueColumn("present value", lambda one: view.estimate(one.npv_usd), align="right"),
        ValueColumn("per used GPU-hour", lambda one: view.estimate(one.npv_usd_per_used_gpu_hour), align="right"),
        ValueColumn("over the cheapest", lambda one: f"{one.npv_usd / best.npv_usd - 1:+.0%}", 1, "right"),
    )
    yield from listed(console, ways, found.ways)
    if found.less_elsewhere:
        yield view.heading("Cheaper elsewhere: ", found.less_elsewhere)
    if found.flips:
        flips: tuple[ValueColumn[FlipPointResult], ...] = (
            ValueColumn("input", lambda one: one.name.replace("_", " ")),
            ValueColumn("now", lambda one: digits(one.value), align="right"),
            ValueColumn("changes at", lambda one: digits(one.flips_at), align="right"),
            ValueColumn("to", lambda one: purchase_type(one.then)),
        )
        yield view.heading("What changes the answer", ", each input alone")
        yield from listed(console, flips, found.flips)
    if found.steady:
        names = ", ".join(name.replace("_", " ") for name in found.steady)
        yield view.heading("", f"the answer is the same from a tenth to ten times the value of: {names}")
    yield from view.assumptions(note for note in found.assumptions if note != found.less_elsewhere)
