"""`gpubroker advise buy-or-rent`: cost of the same hours owned and rented, and their break-even."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import applied, gathered
from broker.cli.options import AsJson, examples
from broker.cli.render.figures import Drawing, draw
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType

if TYPE_CHECKING:
    from broker.app.advise.history import PastUse
    from broker.economics.assumptions import Assumptions
    from broker.economics.buy_or_rent import BuyOrRentInputs, BuyOrRentVerdict
    from broker.economics.claims import RuleCheck

EXAMPLES = examples(
    "gpubroker advise buy-or-rent --purchase-usd 12000 --rent-usd-per-hour 5.12 --years 3",
    "gpubroker advise buy-or-rent --purchase-usd 2200 --rent-usd-per-hour 0.18 --years 2 --hours-per-day 6 "
    "--watts 550 --kwh-usd 0.16 --resale-usd 600",
    "gpubroker advise buy-or-rent --gpu H100 --years 3 --utilisation 0.7 --kwh-usd 0.12 --discount-rate 0.08 --chart",
    "gpubroker advise buy-or-rent --gpu A100-80GB --years 3 --from-history --days 90 --json",
)


@dataclass(frozen=True)
class BuyOrRentOptions:
    """The options of `buy-or-rent`."""

    purchase_usd: Annotated[float | None, inputs.usd("Purchase price of the machine.")] = None
    rent_usd_per_hour: Annotated[float | None, inputs.usd("Hourly rent of an equal machine.")] = None
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", "-g", metavar="NAME", help="Look up missing price, rent and power for this accelerator."),
    ] = None
    rented_as: Annotated[CapacityType, typer.Option(help="Capacity type of the market price that is the rent.")] = (
        CapacityType.ON_DEMAND
    )
    years: Annotated[float, typer.Option(help="Period of use in years.")] = 3.0
    hours_per_day: Annotated[float | None, typer.Option(help="Hours in use per day, up to 24.")] = None
    utilisation: Annotated[float | None, typer.Option(help="Share of all hours in use, up to 1.")] = None
    from_history: Annotated[
        bool, typer.Option("--from-history", help="Utilisation from the recorded use of your jobs.")
    ] = False
    days: Annotated[float, typer.Option(help="With --from-history: length of the period in days.")] = 90.0
    team: Annotated[str | None, typer.Option(help="With --from-history: only jobs of this team.")] = None
    watts: Annotated[float | None, typer.Option(help="Power draw in use.")] = None
    kwh_usd: Annotated[float, inputs.usd("Price per kWh.")] = 0.0
    pue: Annotated[float, typer.Option(help="Power usage effectiveness, 1 or more.")] = 1.0
    resale_usd: Annotated[float, inputs.usd("Resale price at the end.")] = 0.0
    staff_usd_per_hour: Annotated[float, inputs.usd("Staff cost per hour in use.")] = 0.0
    facility_usd: Annotated[float, inputs.usd("One-time cost of power, cooling and racks.")] = 0.0
    discount_rate: Annotated[float, typer.Option(help="Per year; 0.08 is 8 %.")] = 0.0
    price_decline: Annotated[float, typer.Option(help="Yearly decline of rents; 0.2 is 20 %.")] = 0.0
    lead_time_weeks: Annotated[float, typer.Option(help="Weeks until delivery; machines are rented meanwhile.")] = 0.0
    obsolescence: Annotated[
        str | None, typer.Option(metavar="YEARS[:TIMES]", help="After YEARS a newer GPU is TIMES as fast (default 3).")
    ] = None
    peak_to_baseline: Annotated[float, typer.Option(help="Peak demand over steady demand.")] = 1.0
    at: inputs.PriceOptions = inputs.ANY_PRICE


@gathered
def buy_or_rent(context: typer.Context, given: BuyOrRentOptions, drawing: Drawing, as_json: AsJson = False) -> None:
    """Compare buying and renting: present values, break-evens, payback time, and the effect of falling rents.

    Rules of thumb are compared with the arithmetic. Options that are not given count as 0 and are listed.
    """
    from broker.app.results.cost_advice import BuyOrRentAdvice
    from broker.cli.advise import buy_or_rent_view
    from broker.economics.assumptions import changed
    from broker.economics.buy_or_rent import BuyOrRentInputs
    from broker.economics.buy_or_rent import buy_or_rent as answer_of

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    notes = [f"rule of thumb {name}: {value}, not the default" for name, value in changed(thumb).items()]
    if given.from_history and (given.hours_per_day is not None or given.utilisation is not None):
        raise InvalidInput("--from-history cannot be combined with --hours-per-day or --utilisation")
    purchase_usd, rent_usd_per_hour, watts = _prices(terminal, given, notes)
    used = history(terminal, given.days, given.gpu, given.team, notes, thumb) if given.from_history else None
    after, faster = _obsolescence(given.obsolescence, thumb)
    case = applied(
        BuyOrRentInputs,
        given,
        purchase_usd=purchase_usd,
        rent_usd_per_hour=rent_usd_per_hour,
        utilisation=_utilisation(given.hours_per_day, given.utilisation, used, notes),
        watts=watts,
        obsolete_after_years=after,
        new_generation_speedup=faster,
        peak_to_baseline=used.peak_to_baseline if used else given.peak_to_baseline,
        take_or_pay=given.rented_as is CapacityType.RESERVED,
    )
    found = answer_of(case, thumb)
    advice = BuyOrRentAdvice.of_case(case, found, notes, opinions=_opinions(case, found.verdict, thumb), usage=used)
    terminal.result(advice, lambda: buy_or_rent_view.screen(terminal.out, advice))
    draw(terminal, lambda: [buy_or_rent_view.costs_by_hours(advice)], drawing)


def _prices(terminal: Terminal, given: BuyOrRentOptions, notes: list[str]) -> tuple[float, float, float]:
    """Purchase price (USD), rent (USD per hour) and power (W). With --gpu, missing ones are looked up, with a note on
    each. Raises `InvalidInput` for a missing price."""
    from broker.app.results.advice_values import quoted
    from broker.core.values.accelerators import lookup

    purchase, rent, watts = given.purchase_usd, given.rent_usd_per_hour, given.watts
    card = None if given.gpu is None else lookup(given.gpu)
    if card is not None and purchase is None and card.street_price:
        low, high = card.street_price
        purchase = (low + high) / 2
        notes.append(f"purchase: ${purchase:,.0f}, the middle of street prices of ${low:,.0f}-{high:,.0f} per GPU")
    if card is not None and rent is None:
        quote = given.at.rent(terminal, card.name, "--rent-usd-per-hour", given.rented_as)
        rent = quote.usd_per_gpu_hour
        notes.append(f"rent: ${rent:.3f}/h per GPU of {quote.machine} ({quoted(quote)})")
    if card is not None and watts is None and card.tdp_w:
        watts = card.tdp_w
        notes.append(f"power: {watts:g} W, the board power of {card.name}")
    if purchase is None or rent is None:
        flags = {"--purchase-usd": purchase, "--rent-usd-per-hour": rent}
        missing = " and ".join(flag for flag, value in flags.items() if value is None)
        raise InvalidInput(f"{missing}: missing", hint="give --gpu to use market prices")
    return purchase, rent, watts or 0.0


def history(
    terminal: Terminal,
    days: float,
    gpu: str | None,
    team: str | None,
    notes: list[str],
    thumb: Assumptions,
    *,
    gpus: int = 1,
) -> PastUse:
    """The recorded use of the last ``days``, and how busy that many owned ``gpus`` would have been. Adds a note on
    it."""
    from datetime import UTC, datetime, timedelta

    from broker.app.advise.history import known, usage
    from broker.core.values.accelerators import canonical
    from broker.economics.units import positive

    positive("--days", days, "days", most=3650)
    now = datetime.now(UTC)
    ran = known(terminal.settings().store_url, lambda: terminal.broker(look_after=False), now - timedelta(days=days))
    found = usage(ran, now, days=days, accelerator=canonical(gpu) if gpu else None, team=team, gpus=gpus, rules=thumb)
    named = "one owned GPU" if gpus == 1 else f"{gpus:,} owned GPUs"
    notes.append(
        f"use: {found.gpu_hours:,.1f} GPU-hours of {found.attempts} attempts in {days:g} days; the utilisation of "
        f"{named} would have been {found.utilisation:.1%}"
    )
    return found


def _utilisation(
    hours_per_day: float | None, utilisation: float | None, used: PastUse | None, notes: list[str]
) -> float:
    """The share of all hours in use. If hours per day and a share are given and differ, the share applies to those
    hours; if they are equal, it counts once."""
    from broker.economics.buy_or_rent import utilisation_of
    from broker.economics.units import fraction

    if used is not None:
        return used.utilisation
    if hours_per_day is None:
        return 1.0 if utilisation is None else utilisation
    of_day = utilisation_of(hours_per_day)
    if utilisation is None or abs(fraction("utilisation", utilisation) - of_day) <= 0.01 * of_day:
        return of_day
    notes.append(f"{utilisation:.0%} of {hours_per_day:g} h/day in use")
    return of_day * utilisation


def _obsolescence(text: str | None, thumb: Assumptions) -> tuple[float | None, float]:
    """``2`` or ``2:3``: after two years a newer GPU is three times as fast."""
    if text is None:
        return None, 1.0
    years, _, times = text.partition(":")
    try:
        return float(years), float(times) if times else thumb.new_generation_speedup
    except ValueError as error:
        raise InvalidInput(
            f"expected years, or YEARS:TIMES such as 2:3; got {text[:40]!r}", where="--obsolescence"
        ) from error


def _opinions(case: BuyOrRentInputs, verdict: BuyOrRentVerdict, thumb: Assumptions) -> list[RuleCheck]:
    """The verdicts of the rules of thumb for this use, and whether the arithmetic agrees."""
    from broker.economics.claims import RuleCheck
    from broker.economics.sourcing import SourcingNeed, opinions

    bursty = case.peak_to_baseline > thumb.bursty_above_peak_to_baseline
    situation = SourcingNeed(
        hours_per_day=24 * case.utilisation, months=12 * case.years, bursty=bursty, steady_baseline=bursty
    )
    said = opinions(situation, thumb)
    return [RuleCheck(one.rule, one.says, one.says == verdict.value) for one in said]
