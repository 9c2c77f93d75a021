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

    from broker.app.results.cost_advice import CapacityAdvice
    from broker.economics.assumptions import Assumptions

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
    from broker.app.advise import ways
    from broker.app.advise.prices import current_offers
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
        server_usd, watts = ways.server(given.gpu, given.gpus_per_machine, server_usd, thumb, notes)
        if None in prices.values():
            offers = current_offers(terminal.settings().store_url, partial(terminal.broker, look_after=False))
            within = given.where.places(terminal), replace(given.where, provider=None).places(terminal)
            found = ways.rents(offers, f"{given.gpu}:{given.gpus_per_machine}", within, prices, given.years, notes)
            if found is not None:
                provider, elsewhere = found.provider, found.elsewhere
                term_years = found.term_years or term_years
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
    compared = compare(case)
    notes += ways.assumed(case)
    less = ""
    if elsewhere is not None:
        told, is_less = ways.cheaper_elsewhere(compared, case, *elsewhere)
        notes.insert(0, told)
        less = told if is_less else ""
    advice = CapacityAdvice.from_parts(
        compared,
        gpu=given.gpu,
        gpus=given.gpus,
        provider=provider,
        gpus_per_machine=given.gpus_per_machine,
        less_elsewhere=less,
        assumptions=notes,
    )
    terminal.result(advice, lambda: _screen(terminal.out, advice))


def _measured(terminal: Terminal, given: CapacityTypeOptions, thumb: Assumptions, notes: list[str]) -> float:
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


def _spot_overhead(given: CapacityTypeOptions, thumb: Assumptions, notes: list[str]) -> float:
    """The share of hours on spot that are repeated or spent waiting: given, measured in the recorded runs, or
    assumed."""
    if given.spot_overhead is not None:
        notes.append(f"spot: {given.spot_overhead:.0%} of hours redone or waited for, as given")
        return given.spot_overhead
    from broker.core.values.accelerators import canonical

    card, at_once = canonical(given.gpu) if given.gpu else "", min(given.gpus, given.gpus_per_machine)
    notes.append(thumb.spot_text(card, at_once))
    return thumb.spot_overhead_on(card, at_once)[0]


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
