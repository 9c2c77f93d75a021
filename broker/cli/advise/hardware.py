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
from broker.economics.kinds import BoundBy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from broker.app.results.hardware_advice import HardwareAdvice
    from broker.cli.render.charts.chart import Chart
    from broker.economics.hardware import RadarRow, Trial

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
    compared: inputs.GpuOptions = inputs.ANY_GPU
    buy: Annotated[bool, typer.Option("--buy", help="Compare street prices instead of hourly prices.")] = False
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
    from broker.app.advise.compared import hardware_advice
    from broker.economics.hardware import compare

    terminal = Terminal.of(context)
    trials = compare(_trials(given.trial)) if given.trial else ()
    prices = given.compared.market(terminal)
    advice = hardware_advice(given.bound_by, given.compared.gpu, prices, trials, buy=given.buy)
    terminal.result(advice, lambda: _screen(terminal.out, advice))
    draw(terminal, lambda: [chart_of(advice)], drawing)


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


def _screen(console: Console, found: HardwareAdvice) -> Iterator[RenderableType]:
    from broker.app.results.hardware_advice import HardwareTrial, RankedHardware
    from broker.cli.advise import view
    from broker.cli.render.tables import ValueColumn, listed

    if found.trials:
        trials: tuple[ValueColumn[HardwareTrial], ...] = (
            ValueColumn("candidate", lambda one: one.name),
            ValueColumn("$/unit", lambda one: f"${one.usd_per_unit:.6f}", align="right"),
            ValueColumn("times the cheapest", lambda one: f"{one.times_cheapest:.2f}", align="right"),
        )
        yield view.heading(f"{found.trials[0].name} is the cheapest", " per unit of your work")
        yield from listed(console, trials, found.trials)
    if found.radar:
        by = {row.accelerator: row for row in found.radar}
        what = "TFLOPS" if found.bound_by is BoundBy.COMPUTE else "GB/s"

        def axis(title: str, rank: int, index: int) -> ValueColumn[RankedHardware]:
            return ValueColumn(title, lambda one: view.number(_axes(by[one.accelerator])[index], 2), rank, "right")

        columns: tuple[ValueColumn[RankedHardware], ...] = (
            ValueColumn("accelerator", lambda one: one.accelerator),
            ValueColumn("$/h" if found.per == "rent" else "$/GPU", lambda one: view.dollars(one.usd), 2, "right"),
            ValueColumn(f"{what} per $1,000", lambda one: f"{one.per_kusd:,.0f}", align="right"),
            ValueColumn("link", lambda one: "yes" if one.linked else "", 6),
            *(axis(*one) for one in (("cost", 3, 0), ("performance", 3, 1), ("energy", 4, 2), ("maturity", 4, 3))),
            ValueColumn("score", lambda one: f"{by[one.accelerator].score:.2f}", align="right"),
            ValueColumn("caveats", lambda one: "; ".join(by[one.accelerator].caveats), 5),
        )
        yield view.heading(f"By {what} per $1,000 of {found.per}", ", radar axes from 0 to 1")
        yield from view.best(console, columns, found.ranking, "best", _ROWS)
    yield from view.assumptions(found.assumptions)


def _axes(row: RadarRow) -> tuple[float | None, ...]:
    return row.cost, row.performance, row.energy_efficiency, row.maturity


def chart_of(found: HardwareAdvice) -> Chart:
    """The radar as bars, because terminals cannot draw a radar chart."""
    from broker.cli.render.charts.chart import Bars, Chart

    shown = found.radar[:8]
    names = [row.accelerator for row in shown]
    heights = [[None if value is None else round(value, 2) for value in _axes(row)] for row in shown]
    axes = ("cost", "performance", "energy efficiency", "maturity")
    return Chart(
        title="Hardware compared",
        x_label="accelerator",
        y_label="share of the best, 0 to 1",
        bars=[Bars(name, names, [row[i] for row in heights]) for i, name in enumerate(axes)],
        note=f"cost is performance per dollar of {found.per}; best scores first",
    )
