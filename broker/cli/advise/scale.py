"""`gpubroker advise scale`: speed-up by number of GPUs, and the most economical number."""

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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from broker.app.results.training_advice import ScaleAdvice
    from broker.cli.render.charts.chart import Chart
    from broker.economics.assumptions import Assumptions
    from broker.economics.scaling import ScalingModel

EXAMPLES = examples(
    "gpubroker advise scale --parameters 7B --tokens 100B --gpu H100 --deadline 240",
    "gpubroker advise scale --gpu-hours 5000 --measured 1:410 --measured 8:3000 --measured 32:10100 "
    "--price 2.5 --chart",
    "gpubroker advise scale --gpu-hours 5000 --serial 0.005 --communication 0.00002 --price H100=2.5 --json",
)
_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
_POINTED = 60  # points of a curve in a chart


@dataclass(frozen=True)
class ScaleOptions:
    """The options of `scale`."""

    gpu: inputs.OneGpu = "H100"
    gpu_hours: Annotated[float | None, typer.Option(help="Work, in hours of one such GPU.")] = None
    parameters: inputs.Parameters = None
    tokens: Annotated[
        float | None, typer.Option(parser=inputs.count, metavar="COUNT", help="Work, as number of training tokens.")
    ] = None
    mfu: Annotated[float | None, typer.Option(help="MFU on one GPU. Default: 0.4.")] = None
    measured: Annotated[
        list[str] | None,
        typer.Option(metavar="GPUS:SPEED", help="Measured speed in any unit. Repeat it at least twice."),
    ] = None
    serial: Annotated[float | None, typer.Option(help="Serial share of the work, 0 to 1.")] = None
    communication: Annotated[
        float | None, typer.Option(help="Communication cost per pair of GPUs, as a share of a step.")
    ] = None
    sizes: Annotated[str | None, typer.Option(metavar="N,N,…", help="Cluster sizes to compare.")] = None
    deadline: Annotated[float | None, typer.Option(metavar="HOURS", help="Time limit in hours.")] = None
    fixed_usd_per_hour: Annotated[float, inputs.usd("Other cost per hour: storage, staff.")] = 0.0
    at: inputs.PriceOptions = inputs.ANY_PRICE


@gathered
def scale(context: typer.Context, given: ScaleOptions, drawing: Drawing, as_json: AsJson = False) -> None:
    """Compute time and cost by cluster size, the cheapest size that meets the deadline, and diminishing returns.

    The scaling model is fitted to your measurements (--measured), if given.
    """
    from broker.app.results.advice_values import quoted
    from broker.app.results.training_advice import ScaleAdvice
    from broker.core.values.accelerators import lookup
    from broker.economics.scaling import curve

    gpu_hours = given.gpu_hours
    terminal = Terminal.of(context)
    thumb = inputs.measured(terminal, inputs.thumb(context))
    card = lookup(given.gpu)
    notes: list[str] = []
    model, residual = _model(given.measured, given.serial, given.communication, notes, thumb)
    if gpu_hours is None:
        from broker.economics.throughput import training_time

        if given.parameters is None or given.tokens is None:
            raise InvalidInput("the work is missing", hint="give --gpu-hours, or --parameters and --tokens")
        alone = training_time(
            card, parameters=given.parameters, tokens=given.tokens, gpus=1, mfu=given.mfu, rules=thumb
        )
        gpu_hours = alone.gpu_hours
        notes.append(
            f"{gpu_hours:,.0f} hours of one {card.name}: 6 × parameters × tokens at an "
            + (f"MFU of {alone.mfu:.0%}, as stated" if given.mfu else thumb.mfu_text(card.name, given.parameters))
        )
    prices = given.at.market(terminal, card.name)
    quote = prices.quote(card.name, per_machine=thumb.gpus_per_node) or prices.gpu_hour(card.name)
    if quote is None:
        raise InvalidInput(f"no price of {card.name} is known", hint="give --price, or `gpubroker prices poll`")
    notes.append(f"${quote.usd_per_gpu_hour:.2f} per GPU-hour ({quoted(quote)})")
    found = curve(
        model,
        gpu_hours=gpu_hours,
        usd_per_gpu_hour=quote.usd_per_gpu_hour,
        sizes=_sizes(given.sizes),
        deadline_hours=given.deadline,
        fixed_usd_per_hour=given.fixed_usd_per_hour,
        residual=residual,
        rules=thumb,
    )
    advice = ScaleAdvice.from_parts(
        found,
        gpu=card.name,
        gpu_hours=gpu_hours,
        usd_per_gpu_hour=quote.usd_per_gpu_hour,
        deadline_hours=given.deadline,
        peak_gpus=model.peak,
        assumptions=notes,
    )
    terminal.result(advice, lambda: _screen(terminal.out, advice))
    draw(terminal, lambda: [chart_of(advice)], drawing)


def _model(
    measured: list[str] | None, serial: float | None, communication: float | None, notes: list[str], thumb: Assumptions
) -> tuple[ScalingModel, float | None]:
    """The scaling model: fitted to measurements, else from --serial and --communication, else the default."""
    from broker.economics.scaling import ScalingModel, fit

    if measured:
        if serial is not None or communication is not None:
            raise InvalidInput("--measured cannot be combined with --serial or --communication")
        model, residual = fit(_point(text) for text in measured)
        notes.append(f"fitted to {len(measured)} measurements; typical error of a speed-up {residual:.2g}")
        return model, residual
    if serial is None and communication is None:
        notes.append(
            f"scaling not measured: serial share {thumb.serial_share * 100:.3g}%, communication cost per pair of GPUs "
            f"{thumb.pair_cost * 100:.3g}% of a step"
        )
        return ScalingModel(thumb.serial_share, thumb.pair_cost), None
    return ScalingModel(serial or 0.0, communication or 0.0), None


def _point(text: str) -> tuple[int, float]:
    gpus, _, speed = text.partition(":")
    try:
        return int(gpus), float(speed)
    except ValueError as error:
        raise InvalidInput(f"expected GPUS:SPEED such as 8:3000; got {text[:40]!r}", where="--measured") from error


def _sizes(text: str | None) -> list[int]:
    if text is None:
        return list(_SIZES)
    try:
        return [int(size) for size in text.split(",")]
    except ValueError as error:
        raise InvalidInput(f"expected numbers such as 8,16,32; got {text[:40]!r}", where="--sizes") from error


def _screen(console: Console, found: ScaleAdvice) -> Iterator[RenderableType]:
    from broker.app.results.training_advice import ScaledCluster
    from broker.cli.advise import view
    from broker.cli.render.tables import ValueColumn, listed

    deadline, largest = found.deadline_hours, found.points[-1].gpus
    if found.efficient_gpus is None:
        yield view.heading("No size meets the deadline", f" of {deadline:g} h")
    else:
        within = f" that finishes within {deadline:g} h" if deadline else ""
        yield view.heading(f"{found.efficient_gpus} × {found.gpu}", f" is the cheapest size{within}")
    worthwhile = f"{found.diminishing_gpus} GPUs (one more adds less than half a GPU)"
    if found.diminishing_gpus == largest:
        worthwhile = f"not reached with {largest} GPUs"
    yield view.figures(
        [
            ("diminishing returns beyond", worthwhile),
            ("fastest of these", f"{found.fastest_gpus} GPUs"),
            ("serial share", f"{found.model.serial:.3%}"),
            ("cost per pair", f"{found.model.communication * 100:.3g}% of a step"),
        ]
    )
    marks = {} if found.diminishing_gpus == largest else {found.diminishing_gpus: "diminishing returns beyond"}
    marks |= {found.efficient_gpus: "cheapest on time"} if found.efficient_gpus else {}
    columns: tuple[ValueColumn[ScaledCluster], ...] = (
        ValueColumn("GPUs", lambda one: str(one.gpus), align="right"),
        ValueColumn("speed-up", lambda one: f"{one.speedup:.1f}", 2, "right"),
        ValueColumn("utilisation", lambda one: view.share(one.utilisation), align="right"),
        ValueColumn("marginal GPU", lambda one: f"{one.marginal:.2f}", 3, "right"),
        ValueColumn("hours", lambda one: f"{one.hours:,.1f}", align="right"),
        ValueColumn("cost", lambda one: view.estimate(one.cost_usd), align="right"),
        ValueColumn("", lambda one: marks.get(one.gpus, "") if one.meets_deadline else "too late", 1),
    )
    yield from listed(console, columns, found.points)
    yield from view.assumptions(found.assumptions)


def chart_of(found: ScaleAdvice) -> Chart:
    """Utilisation over cluster size, with the cheapest size and diminishing returns marked."""
    from broker.cli.render.charts.chart import Chart, Line

    first, last = found.points[0].gpus, found.points[-1].gpus
    step = max((last - first) / _POINTED, 1e-9)
    xs = [first + index * step for index in range(_POINTED + 1)] if last > first else [float(first)]
    lines = [Line("utilisation", xs, [found.model.speedup(x) / x * 100 for x in xs])]
    for name, gpus in (("cheapest on time", found.efficient_gpus), ("diminishing returns", found.diminishing_gpus)):
        if gpus is not None:
            height = found.model.speedup(gpus) / gpus * 100
            lines.append(Line(f"{name}: {gpus} GPUs", [float(gpus), float(gpus)], [0.0, height]))
    return Chart(
        title=f"Utilisation of {found.gpu} clusters",
        x_label="GPUs",
        y_label="utilisation, % of perfect scaling",
        lines=lines,
        note="; ".join(found.assumptions),
    )
