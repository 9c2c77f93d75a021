"""`gpubroker advise scale`: how much faster more GPUs are, and how many are worth it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import RenderableType

    from broker.cli.charts.chart import Chart
    from broker.economics.rules import RulesOfThumb
    from broker.economics.scaling import ScalingCurve, ScalingModel

EXAMPLES = examples(
    "gpubroker advise scale --parameters 7B --tokens 100B --gpu H100 --deadline 240",
    "gpubroker advise scale --gpu-hours 5000 --measured 1:410 --measured 8:3000 --measured 32:10100 "
    "--price 2.5 --chart",
    "gpubroker advise scale --gpu-hours 5000 --serial 0.005 --communication 0.00002 --price H100=2.5 --json",
)
_SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
_POINTED = 60  # points of a drawn curve


def scale(
    context: typer.Context,
    gpu: Annotated[str, typer.Option("--gpu", "-g", metavar="NAME", help="The accelerator.")] = "H100",
    gpu_hours: Annotated[float | None, typer.Option("--gpu-hours", help="The work, in hours of one such GPU.")] = None,
    parameters: inputs.Parameters = None,
    tokens: Annotated[
        float | None,
        typer.Option("--tokens", parser=inputs.count, metavar="COUNT", help="The work as training on so many tokens."),
    ] = None,
    mfu: Annotated[float | None, typer.Option("--mfu", help="On one GPU; 0.4 if not given.")] = None,
    measured: Annotated[
        list[str] | None,
        typer.Option("--measured", metavar="GPUS:SPEED", help="Measured speed, any unit. Repeatable, two at least."),
    ] = None,
    serial: Annotated[
        float | None, typer.Option("--serial", help="Share of the work that does not divide, 0 to 1.")
    ] = None,
    communication: Annotated[
        float | None, typer.Option("--communication", help="Cost of each pair of GPUs, as a share of a step.")
    ] = None,
    sizes: Annotated[str | None, typer.Option("--sizes", metavar="N,N,…", help="Cluster sizes to look at.")] = None,
    deadline: Annotated[float | None, typer.Option("--deadline", metavar="HOURS", help="To be done within.")] = None,
    fixed_usd_per_hour: Annotated[
        float,
        typer.Option(
            "--fixed-usd-per-hour", parser=inputs.dollars, metavar="USD", help="What runs along: storage, people."
        ),
    ] = 0.0,
    price: inputs.Price = None,
    chart: inputs.ShowChart = False,
    picture: inputs.Picture = None,
    as_json: AsJson = False,
) -> None:
    """The utilisation-efficiency curve: time and cost by cluster size, the cheapest size that meets the deadline, and
    where more GPUs stop being worth it. Fitted to your measurements where there are any.
    """
    from broker.cli.advise import view
    from broker.cli.advise.document import document
    from broker.core.accelerators import lookup
    from broker.economics.scaling import curve

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    card = lookup(gpu)
    notes: list[str] = []
    model, residual = _model(measured, serial, communication, notes, thumb)
    if gpu_hours is None:
        from broker.economics.throughput import training_time

        if parameters is None or tokens is None:
            raise InvalidInput("the work is missing", hint="give --gpu-hours, or --parameters and --tokens")
        alone = training_time(card, parameters=parameters, tokens=tokens, gpus=1, mfu=mfu, rules=thumb)
        gpu_hours = alone.gpu_hours
        notes.append(f"{gpu_hours:,.0f} hours of one {card.name}: 6 × parameters × tokens at an MFU of {alone.mfu:.0%}")
    quote = inputs.market(terminal, price, card.name).quote(card.name, per_machine=thumb.gpus_per_node)
    quote = quote or inputs.market(terminal, price, card.name).gpu_hour(card.name)
    if quote is None:
        raise InvalidInput(f"no price of {card.name} is known", hint="give --price, or `gpubroker prices poll`")
    notes.append(f"${quote.usd_per_gpu_hour:.2f} per GPU-hour ({view.quoted(quote)})")
    found = curve(
        model,
        gpu_hours=gpu_hours,
        usd_per_gpu_hour=quote.usd_per_gpu_hour,
        sizes=_sizes(sizes),
        deadline_hours=deadline,
        fixed_usd_per_hour=fixed_usd_per_hour,
        residual=residual,
        rules=thumb,
    )
    if as_json:
        told = document(
            found, gpu=card.name, gpu_hours=gpu_hours, usd_per_gpu_hour=quote.usd_per_gpu_hour,
            deadline_hours=deadline, peak_gpus=model.peak, assumptions=notes,
        )  # fmt: skip
        terminal.answer(told)
    else:
        terminal.show(*_screen(terminal, found, card.name, deadline, notes))
    if chart or picture:
        view.picture(terminal, drawing(found, card.name, notes), shown=chart, file=picture)


def _model(
    measured: list[str] | None, serial: float | None, communication: float | None, notes: list[str], thumb: RulesOfThumb
) -> tuple[ScalingModel, float | None]:
    """Fitted where there are measurements, as said where there are none, else the rules' default."""
    from broker.economics.scaling import ScalingModel, fit

    if measured:
        if serial is not None or communication is not None:
            raise InvalidInput("give measurements, or --serial and --communication, not both")
        model, residual = fit(_point(text) for text in measured)
        notes.append(f"fitted to {len(measured)} measurements; typical error of a speed-up {residual:.2g}")
        return model, residual
    if serial is None and communication is None:
        notes.append(
            f"scaling not measured: {thumb.serial_share * 100:.3g}% of the work taken as serial, each pair of GPUs "
            f"to cost {thumb.pair_cost * 100:.3g}% of a step"
        )
        return ScalingModel(thumb.serial_share, thumb.pair_cost), None
    return ScalingModel(serial or 0.0, communication or 0.0), None


def _point(text: str) -> tuple[int, float]:
    gpus, _, speed = text.partition(":")
    try:
        return int(gpus), float(speed)
    except ValueError as error:
        raise InvalidInput(f"--measured: expected GPUS:SPEED such as 8:3000; got {text[:40]!r}") from error


def _sizes(text: str | None) -> list[int]:
    if text is None:
        return list(_SIZES)
    try:
        return [int(size) for size in text.split(",")]
    except ValueError as error:
        raise InvalidInput(f"--sizes: expected numbers such as 8,16,32; got {text[:40]!r}") from error


def _screen(
    terminal: Terminal, found: ScalingCurve, accelerator: str, deadline: float | None, notes: list[str]
) -> list[RenderableType]:
    from broker.cli.advise import view
    from broker.cli.tables import Column

    if found.efficient_gpus is None:
        told = view.heading("No size meets the deadline", f" of {deadline:g} h")
    else:
        within = f" that is done within {deadline:g} h" if deadline else ""
        told = view.heading(f"{found.efficient_gpus} × {accelerator}", f" is the cheapest size{within}")
    model = found.model
    parts: list[RenderableType] = [
        told,
        view.figures(
            [
                ("diminishing returns beyond", _worthwhile(found)),
                ("fastest of these", f"{found.fastest_gpus} GPUs"),
                ("serial share", f"{model.serial:.3%}"),
                ("cost of a pair", f"{model.communication * 100:.3g}% of a step"),
            ]
        ),
    ]
    columns = (
        Column("GPUs", align="right"), Column("speed-up", 2, align="right"), Column("utilisation", align="right"),
        Column("one more adds", 3, align="right"), Column("hours", align="right"), Column("cost", align="right"),
        Column("", 1),
    )  # fmt: skip
    rows = [
        (
            str(point.gpus), f"{point.speedup:.1f}", view.share(point.utilisation), f"{point.marginal:.2f}",
            f"{point.hours:,.1f}", view.dollars(point.cost_usd), _mark(found, point.gpus, point.meets_deadline),
        )
        for point in found.points
    ]  # fmt: skip
    parts += view.table(terminal.out, columns, rows)
    parts += view.assumptions(notes)
    return parts


def _worthwhile(found: ScalingCurve) -> str:
    if found.diminishing_gpus == found.points[-1].gpus:
        return f"not reached with {found.diminishing_gpus} GPUs"
    return f"{found.diminishing_gpus} GPUs (one more adds less than half of one)"


def _mark(found: ScalingCurve, gpus: int, in_time: bool) -> str:
    marks = {found.diminishing_gpus: "diminishing returns beyond"} if gpus != found.points[-1].gpus else {}
    marks |= {found.efficient_gpus: "cheapest in time"} if found.efficient_gpus else {}
    return "too late" if not in_time else marks.get(gpus, "")


def drawing(found: ScalingCurve, accelerator: str, notes: list[str]) -> Chart:
    """Utilisation against cluster size, with the sizes that matter marked."""
    from broker.cli.charts.chart import Chart, Line

    first, last = found.points[0].gpus, found.points[-1].gpus
    step = max((last - first) / _POINTED, 1e-9)
    xs = [first + index * step for index in range(_POINTED + 1)] if last > first else [float(first)]
    lines = [Line("utilisation", xs, [found.model.speedup(x) / x * 100 for x in xs])]
    for name, gpus in (("cheapest in time", found.efficient_gpus), ("diminishing returns", found.diminishing_gpus)):
        if gpus is not None:
            height = found.model.speedup(gpus) / gpus * 100
            lines.append(Line(f"{name}: {gpus} GPUs", [float(gpus), float(gpus)], [0.0, height]))
    return Chart(
        title=f"How well {accelerator} clusters are used",
        x_label="GPUs",
        y_label="utilisation, % of perfect scaling",
        lines=lines,
        note="; ".join(notes),
    )
