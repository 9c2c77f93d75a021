"""`gpubroker advise unit-cost`: cost of a million tokens, owned or rented, compared with an API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import applied, gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from broker.app.results.cost_advice import UnitCostAdvice
    from broker.economics.assumptions import Assumptions
    from broker.economics.claims import RuleCheck
    from broker.economics.unit_cost import UnitCost

EXAMPLES = examples(
    "gpubroker advise unit-cost --hardware-usd 1600 --tokens-per-second 70 --watts 450 --utilisation 0.7 --years 3 "
    "--kwh-usd 0.12",
    "gpubroker advise unit-cost --rent-usd-per-hour 2.50 --tokens-per-second 1500 --utilisation 0.5 --api-usd 0.60",
    "gpubroker advise unit-cost --gpu H100 --tokens-per-second 1500 --tokens-per-prediction 700 --json",
)


@dataclass(frozen=True)
class UnitCostOptions:
    """The options of `unit-cost`."""

    tokens_per_second: Annotated[float, typer.Option(help="Speed of the busy machine.")]
    hardware_usd: Annotated[float | None, inputs.usd("Owned: purchase price.")] = None
    rent_usd_per_hour: Annotated[float | None, inputs.usd("Rented: hourly rent.")] = None
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", "-g", metavar="NAME", help="Rented: use the market price of this accelerator."),
    ] = None
    watts: Annotated[float, typer.Option(help="Owned: power draw at the plug, around the clock.")] = 0.0
    utilisation: Annotated[float, typer.Option(help="Share of hours in use.")] = 0.7
    years: Annotated[float, typer.Option(help="Owned: years of depreciation.")] = 3.0
    kwh_usd: Annotated[float, inputs.usd("Price per kWh.")] = 0.12
    pue: Annotated[float, typer.Option(help="Power usage effectiveness.")] = 1.0
    api_usd: Annotated[float | None, inputs.usd("Price of an API per million tokens.")] = None
    tokens_per_prediction: Annotated[float | None, typer.Option(help="Also show the cost of one prediction.")] = None
    at: inputs.PriceOptions = inputs.ANY_PRICE


@gathered
def unit_cost(context: typer.Context, given: UnitCostOptions, as_json: AsJson = False) -> None:
    """Compute the cost of a million tokens, owned (hardware and power) or rented, and the break-even with an API.

    For the cost of a training run see `advise run-cost`; for the total cost of a cluster see `advise cluster-cost`.
    """
    from broker.app.results.advice_values import quoted
    from broker.app.results.cost_advice import UnitCostAdvice
    from broker.economics import unit_cost as economics

    rent_usd_per_hour = given.rent_usd_per_hour
    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    notes = [f"utilisation {given.utilisation:.0%}"]
    if rent_usd_per_hour is None and given.hardware_usd is None:
        ways = "give --hardware-usd (owned), --rent-usd-per-hour, or --gpu to look it up"
        quote = given.at.rent(terminal, given.gpu, "--rent-usd-per-hour", missing=ways)
        rent_usd_per_hour = quote.usd_per_gpu_hour
        notes.append(f"rent: ${rent_usd_per_hour:.3f}/h per GPU of {quote.machine} ({quoted(quote)})")
    if given.hardware_usd is not None and rent_usd_per_hour is not None:
        raise InvalidInput("--hardware-usd (owned) and --rent-usd-per-hour (rented) cannot be combined")
    if given.hardware_usd is not None:
        found = applied(economics.owned, given)
        notes += [f"depreciation over {given.years:g} years", f"electricity at ${given.kwh_usd:g}/kWh"]
        notes += [] if given.watts else ["power: 0 W, because --watts is not given"]
        notes += ["PUE: 1"] if given.pue == 1 else []
    else:
        found = applied(economics.rented, given, rent_usd_per_hour=rent_usd_per_hour)
    per_prediction = None
    if given.tokens_per_prediction is not None:
        per_prediction = economics.per_prediction(found.usd_per_million_tokens, given.tokens_per_prediction)
    break_even, rules = _against_api(found, given.tokens_per_second, given.api_usd, thumb)
    advice = UnitCostAdvice.from_parts(
        found,
        usd_per_prediction=per_prediction,
        api_usd=given.api_usd,
        break_even_utilisation=break_even,
        rules_of_thumb=rules,
        assumptions=notes,
    )
    terminal.result(advice, lambda: _screen(advice))


def _against_api(
    found: UnitCost, tokens_per_second: float, api_usd: float | None, thumb: Assumptions
) -> tuple[float | None, tuple[RuleCheck, ...]]:
    """The break-even utilisation with the API, and the quoted ones compared with it."""
    from broker.economics.claims import API_BREAK_EVEN
    from broker.economics.unit_cost import break_even_utilisation, check_quoted_utilisation

    if api_usd is None:
        return None, ()
    quoted = tuple(
        check_quoted_utilisation(name, share, found.usd_per_hour, tokens_per_second, api_usd, thumb)
        for name, share in API_BREAK_EVEN
    )
    return break_even_utilisation(found.usd_per_hour, tokens_per_second, api_usd), quoted


def _screen(found: UnitCostAdvice) -> Iterator[RenderableType]:
    from broker.cli.advise import view

    named = {
        "hardware": found.hardware_usd_per_million_tokens,
        "power": found.power_usd_per_million_tokens,
        "rent": found.rent_usd_per_million_tokens,
    }
    rows = [(name, f"${amount:.4f} per million tokens") for name, amount in named.items() if amount]
    rows.append(("per hour", view.estimate(found.usd_per_hour)))
    rows.append(("per year", f"{found.million_tokens_per_year:,.0f} million tokens"))
    if found.usd_per_prediction is not None:
        rows.append(("per prediction", f"${found.usd_per_prediction:.6f}"))
    if (break_even := found.break_even_utilisation) is not None:
        never = "never: the API is cheaper even at full utilisation"
        reached = f"at a utilisation of {break_even:.1%}" if break_even <= 1 else never
        rows.append((f"break-even with the API at ${found.api_usd:g}", reached))
    yield view.heading(f"${found.usd_per_million_tokens:.4f} per million tokens")
    yield view.figures(rows)
    yield from view.rules(found.rules_of_thumb)
    yield from view.assumptions(found.assumptions)
