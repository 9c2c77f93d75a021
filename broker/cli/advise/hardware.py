"""`gpubroker advise hardware`: value for money, radar scores, and candidates that you measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.render.figures import Drawing, draw
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.economics.hardware import BoundBy

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.app.advise.prices import CurrentPrices
    from broker.cli.render.charts.chart import Chart
    from broker.economics.hardware import Candidate, RadarRow, Trial, TrialResult, Value

EXAMPLES = examples(
    "gpubroker advise hardware --for compute",
    "gpubroker advise hardware --for bandwidth --buy --gpu RTX3090 --gpu RTX4090 --gpu A100 --gpu H100 --gpu L40S",
    "gpubroker advise hardware --gpu H100 --gpu A100-80GB --price H100=2.5 --chart",
    "gpubroker advise hardware --trial 'L4:0.7:1200' --trial 'H100:2.5:5100' --trial 'cpu-16:0.6:900' --json",
)
_ROWS = 15


@dataclass(frozen=True)
class HardwareOptions:
    """The options of `hardware`."""

    bound_by: Annotated[
        BoundBy, typer.Option("--for", help="Training is bound by compute, small-batch inference by bandwidth.")
    ] = BoundBy.COMPUTE
    gpu: inputs.Gpus = None
    buy: Annotated[bool, typer.Option("--buy", help="Compare street prices instead of hourly prices.")] = False
    price: inputs.Price = None
    where: inputs.PlaceOptions = inputs.ANYWHERE
    trial: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:USD_PER_HOUR:UNITS_PER_HOUR", help="Your own measurement. Repeatable."),
    ] = None


@gathered
def hardware(context: typer.Context, given: HardwareOptions, drawing: Drawing, as_json: AsJson = False) -> None:
    """Compare hardware: performance per dollar in the limiting resource, and a radar of scores.

    Scores from 0 to 1 (best of those compared): cost, performance, energy efficiency, software maturity. Before buying,
    measure three or four candidates on your own work and compare the cost per unit of work (--trial).
    """
    from broker.app.results.hardware_advice import HardwareAdvice
    from broker.economics.hardware import compare, radar, rank

    terminal = Terminal.of(context)
    trials = compare(_trials(given.trial)) if given.trial else ()
    only = given.gpu[0] if given.gpu and len(given.gpu) == 1 else None
    prices = inputs.market(terminal, given.price, only, given.where.places(terminal))
    candidates, unpriced = _candidates(given.gpu, prices, buy=given.buy)
    if not candidates and not trials:
        raise InvalidInput(
            "no price is known for these accelerators", hint="give --price NAME=USD, or --buy for street prices"
        )
    values = rank(candidates, given.bound_by)
    rows = radar(candidates, given.bound_by) if candidates else ()
    unit = "purchase price" if given.buy else "rent"
    notes = ["prices: the middle of street prices per GPU"] if given.buy else _origins(candidates, prices)
    notes += [f"omitted, no price known: {', '.join(unpriced)}"] if unpriced else []
    if as_json:
        told = {"bound_by": given.bound_by, "per": unit, "ranking": values, "radar": rows, "trials": trials}
        terminal.answer(HardwareAdvice.from_parts(**told, unpriced=unpriced, assumptions=notes))
    else:
        terminal.show(*_screen(terminal, given.bound_by, values, rows, trials, unit, notes))
    draw(terminal, lambda: [chart_of(rows, unit)], drawing)


def _trials(texts: list[str]) -> list[Trial]:
    from broker.economics.hardware import Trial

    found = []
    for text in texts:
        name, *numbers = text.split(":")
        try:
            usd, units = (float(number.lstrip("$")) for number in numbers)
        except ValueError as error:
            raise InvalidInput(
                f"expected NAME:USD_PER_HOUR:UNITS_PER_HOUR; got {text[:60]!r}", where="--trial"
            ) from error
        found.append(Trial(name, usd, units))
    return found


def _candidates(gpu: list[str] | None, prices: CurrentPrices, *, buy: bool) -> tuple[list[Candidate], list[str]]:
    """Accelerators with a price, and the names of requested ones without a price."""
    from broker.core.market.offers import CapacityType
    from broker.economics.hardware import Candidate

    found, missing = [], []
    for card in inputs.accelerators(gpu):
        quote = prices.gpu_hour(card.name) or prices.gpu_hour(card.name, CapacityType.SPOT)
        usd = prices.stated.get(card.name)
        if usd is None and buy:
            usd = sum(card.street_price) / 2 if card.street_price else None
        elif usd is None and quote is not None:
            usd = quote.usd_per_gpu_hour
        if usd is None:
            missing.append(card.name)
            continue
        place = quote.where.split("/")[0] if quote else ""
        found.append(Candidate(card, usd, marketplace=not buy and place in _MARKETPLACES))
    return found, missing if gpu else []


def _origins(candidates: list[Candidate], prices: CurrentPrices) -> list[str]:
    """The sources of the prices, of the first few."""
    from broker.cli.advise import view

    told = ["prices: the cheapest on-demand GPU-hour"]
    for one in candidates[:_TOLD]:
        quote = prices.gpu_hour(one.accelerator.name)
        if quote is not None:
            told.append(f"{one.accelerator.name}: {view.quoted(quote)}")
    more = len(candidates) - _TOLD
    return [*told, *([f"and {more} more: `gpubroker offers --gpu NAME` shows each"] if more > 0 else [])]


_TOLD = 5  # prices whose source is shown
_MARKETPLACES = frozenset({"vast"})  # they rent out machines of third parties


def _screen(
    terminal: Terminal,
    bound_by: BoundBy,
    values: tuple[Value, ...],
    rows: tuple[RadarRow, ...],
    trials: tuple[TrialResult, ...],
    unit: str,
    notes: list[str],
) -> list[RenderableType]:
    from broker.cli.advise import view
    from broker.cli.render.tables import Column, fitted

    parts: list[RenderableType] = []
    if trials:
        parts.append(view.heading(f"{trials[0].name} is the cheapest", " per unit of your work"))
        columns = (Column("candidate"), Column("$/unit", align="right"), Column("times the cheapest", align="right"))
        cells = [(one.name, f"${one.usd_per_unit:.6f}", f"{one.times_cheapest:.2f}") for one in trials]
        parts += fitted(terminal.out, columns, cells)
    if rows:
        by = {row.accelerator: row for row in rows}
        what = "TFLOPS" if bound_by is BoundBy.COMPUTE else "GB/s"
        parts.append(view.heading(f"By {what} per $1,000 of {unit}", ", radar axes from 0 to 1"))
        header = (
            Column("accelerator"), Column("$/GPU" if unit != "rent" else "$/h", 2, align="right"),
            Column(f"{what} per $1,000", align="right"), Column("link", 6), Column("cost", 3, align="right"),
            Column("performance", 3, align="right"), Column("energy", 4, align="right"),
            Column("maturity", 4, align="right"), Column("score", align="right"), Column("caveats", 5),
        )  # fmt: skip
        table = [
            (
                value.accelerator, view.dollars(value.usd), f"{value.per_kusd:,.0f}", "yes" if value.linked else "",
                *(view.number(x, 2) for x in _axes(by[value.accelerator])), f"{by[value.accelerator].score:.2f}",
                "; ".join(by[value.accelerator].caveats),
            )
            for value in values[:_ROWS]
        ]  # fmt: skip
        parts += fitted(terminal.out, header, table)
        if len(values) > _ROWS:
            notes = [*notes, f"the best {_ROWS} of {len(values)} are shown; use --json for all"]
    parts += view.assumptions(notes)
    return parts


def _axes(row: RadarRow) -> tuple[float | None, ...]:
    return row.cost, row.performance, row.energy_efficiency, row.maturity


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def chart_of(rows: tuple[RadarRow, ...], unit: str) -> Chart:
    """The radar as bars, because terminals cannot draw a radar chart."""
    from broker.cli.render.charts.chart import Bars, Chart

    shown = rows[:8]
    names = [row.accelerator for row in shown]
    axes = ("cost", "performance", "energy efficiency", "maturity")
    return Chart(
        title="Hardware compared",
        x_label="accelerator",
        y_label="share of the best, 0 to 1",
        bars=[Bars(name, names, [_rounded(_axes(row)[i]) for row in shown]) for i, name in enumerate(axes)],
        note=f"cost is performance per dollar of {unit}; best scores first",
    )
