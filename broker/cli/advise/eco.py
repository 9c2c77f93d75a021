"""`gpubroker advise eco`: energy and carbon of GPU work, a scorecard, and cleaner locations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import applied, gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from broker.app.results.hardware_advice import EcoAdvice

EXAMPLES = examples(
    "gpubroker advise eco --gpu H100 --gpus 8 --hours 100 --location aws/us-east-1",
    "gpubroker advise eco --gpu A100-80GB --gpus 64 --hours 720 --location DE --pue 1.2 --parameters 7B --json",
    "gpubroker advise eco --gpu L4 --hours 8760 --utilisation 0.3 --location gcp/europe-north1 --inference",
)


@dataclass(frozen=True)
class EcoOptions:
    """The options of `eco`."""

    gpu: inputs.OneGpu = "H100"
    gpus: Annotated[int, typer.Option(help="Number of GPUs.")] = 1
    hours: Annotated[float, typer.Option(help="Duration in hours.")] = 1.0
    location: Annotated[
        str, typer.Option("--location", "-l", metavar="PLACE", help="provider/region, a country such as DE, or world.")
    ] = "world"
    utilisation: Annotated[
        float | None, typer.Option(help="GPU utilisation. Default: 0.7 in training, 0.5 in inference.")
    ] = None
    inference: Annotated[bool, typer.Option("--inference", help="Inference, not training.")] = False
    pue: Annotated[float | None, typer.Option(help="Power usage effectiveness. Default: the provider's, if known.")] = (
        None
    )
    idle_watts: Annotated[float | None, typer.Option(help="Power of an idle GPU. Default: 15 % of its limit.")] = None
    watts: Annotated[float | None, typer.Option(help="Measured average power of one GPU, instead of an estimate.")] = (
        None
    )
    parameters: inputs.Parameters = None
    smallest: Annotated[
        float | None,
        typer.Option(
            "--smallest-parameters",
            parser=inputs.count,
            metavar="COUNT",
            help="Parameters of the smallest sufficient model.",
        ),
    ] = None
    units: Annotated[float, typer.Option(help="Units of work, such as runs or 1000 requests.")] = 1.0


@gathered
def eco(context: typer.Context, given: EcoOptions, as_json: AsJson = False) -> None:
    """Compute energy and carbon of GPU work, with a scorecard and cleaner locations.

    kWh = power x hours x PUE, with the power between idle and the board's limit; kg CO2e from the grid of the region.
    """
    from broker.app.advise.emissions import cleaner, scores
    from broker.app.results.hardware_advice import EcoAdvice
    from broker.core.values.accelerators import lookup
    from broker.economics.energy import default_pue, footprint
    from broker.economics.units import positive

    utilisation = given.utilisation
    positive("--hours", given.hours, "hours")
    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    card = lookup(given.gpu)
    notes: list[str] = []
    if utilisation is None:
        utilisation = thumb.inference_utilization if given.inference else thumb.training_utilization
        notes.append(f"GPU utilisation {utilisation:.0%}, the target")
    if given.pue is None:
        notes.append(f"PUE {default_pue(given.location):g}")
    if given.parameters is None:
        notes.append("model size is not scored without --parameters")
    elif given.smallest is None:
        notes.append("the model is the smallest sufficient one (--smallest-parameters)")
    own = {"idle_w": given.idle_watts, "measured_w": given.watts}
    used = applied(footprint, given, accelerator=card, utilisation=utilisation, rules=thumb, **own)
    notes += [
        f"grid: {used.intensity.grams_per_kwh:g} g CO2e/kWh in {used.intensity.year} ({used.intensity.source})",
        f"the range: the grid of these hours against that of its year ({used.range_source})",
        "manufacture of the hardware and the host around the GPU are not counted",
    ]
    advice = EcoAdvice.from_parts(
        used,
        gpu=card.name,
        gpus=given.gpus,
        hours=given.hours,
        utilisation=utilisation,
        location=given.location,
        scorecard=applied(
            scores, given, used=used, card=card, rules=thumb, utilisation=utilisation, training=not given.inference
        ),
        cleaner=cleaner(used, given.location),
        assumptions=notes,
    )
    terminal.result(advice, lambda: _screen(terminal.out, advice))


def _screen(console: Console, found: EcoAdvice) -> Iterator[RenderableType]:
    from broker.cli.advise import view
    from broker.cli.render.tables import ValueColumn, listed
    from broker.economics.energy import ScorecardLine
    from broker.economics.estimates import digits

    span = f"{digits(found.kg_co2e_low)} to {digits(found.kg_co2e_high)} kg"
    work = f"{found.gpus} × {found.gpu} for {found.hours:g} h"
    yield view.heading(f"{digits(found.kg_co2e)} kg CO2e", f" ({span}) from {digits(found.kwh)} kWh: {work}")
    card = found.scorecard
    yield view.figures(
        [
            ("power", f"{found.watts:,.0f} W average per GPU, PUE {found.pue:g}"),
            ("grid", f"{found.intensity.grams_per_kwh:g} g CO2e/kWh ({found.intensity.region})"),
            ("grade", f"{card.grade} ({card.points:.2f} of 1)"),
        ]
    )
    columns: tuple[ValueColumn[ScorecardLine], ...] = (
        ValueColumn("scorecard", lambda one: one.what),
        ValueColumn("value", lambda one: f"{one.value:,.3g}", align="right"),
        ValueColumn("target", lambda one: f"{one.target:,.3g}", 2, "right"),
        ValueColumn("unit", lambda one: one.unit, 3),
        ValueColumn("points", lambda one: f"{one.points:.2f}", align="right"),
        ValueColumn("to improve", lambda one: "" if one.points >= 1 else one.improve, 1),
    )
    yield from listed(console, columns, card.scores)
    if found.cleaner:
        yield view.heading("Cleaner locations", " for the same energy")
        yield view.figures((one.location, f"{digits(one.kg_co2e)} kg CO2e") for one in found.cleaner)
    yield from view.assumptions(found.assumptions)
