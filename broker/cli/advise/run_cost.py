"""`gpubroker advise run-cost`: total cost of a training run with failures, experiments, preparation and storage."""

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

    from rich.console import RenderableType

    from broker.app.results.cost_advice import RunCostAdvice

EXAMPLES = examples(
    "gpubroker advise run-cost --gpu-hours 2000 --gpu H100 --failed-share 0.1 --experiments 2",
    "gpubroker advise run-cost --gpu-hours 2000 --usd-per-gpu-hour 2.5 --storage-gb 800 --storage-months 6 "
    "--quality 0.86 --baseline-quality 0.8 --json",
)


@dataclass(frozen=True)
class RunCostOptions:
    """The options of `run-cost`."""

    gpu_hours: Annotated[float, typer.Option(help="GPU-hours of the successful run.")]
    usd_per_gpu_hour: Annotated[float | None, inputs.usd("Price per GPU-hour.")] = None
    gpu: inputs.Gpu = None
    failed_share: Annotated[float, typer.Option(help="Share of all GPU-hours that failed or was repeated.")] = 0.0
    experiments: Annotated[float, typer.Option(help="GPU-hours of experiments, in multiples of the run.")] = 0.0
    preprocessing_share: Annotated[
        float | None, typer.Option(help="Data preparation as a share of training. Default: 0.2.")
    ] = None
    storage_gb: Annotated[float, typer.Option(help="Stored checkpoints and artifacts.")] = 0.0
    storage_usd_per_gb_month: Annotated[float, inputs.usd("Price of object storage.")] = 0.023
    storage_months: Annotated[float, typer.Option(help="Months of storage.")] = 1.0
    quality: Annotated[float | None, typer.Option(help="Quality reached, for the cost per quality point.")] = None
    baseline: Annotated[float, typer.Option("--baseline-quality", help="Quality before the run.")] = 0.0
    at: inputs.PriceOptions = inputs.ANY_PRICE


@gathered
def run_cost(context: typer.Context, given: RunCostOptions, as_json: AsJson = False) -> None:
    """Compute the total cost of a model: compute, failed runs, experiments, data preparation, storage."""
    from broker.app.results.advice_values import quoted
    from broker.app.results.cost_advice import RunCostAdvice
    from broker.economics.unit_cost import per_quality_point, quality_point, training_run

    usd_per_gpu_hour = given.usd_per_gpu_hour
    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    notes: list[str] = []
    if usd_per_gpu_hour is None:
        quote = given.at.rent(terminal, given.gpu, "--usd-per-gpu-hour")
        usd_per_gpu_hour = quote.usd_per_gpu_hour
        notes.append(f"${usd_per_gpu_hour:.2f} per GPU-hour ({quoted(quote)})")
    if given.preprocessing_share is None:
        notes.append(f"data preparation: {thumb.preprocessing_share:.0%} of training (10-30 % is common)")
    found = applied(training_run, given, usd_per_gpu_hour=usd_per_gpu_hour, rules=thumb)
    point = unit = None
    if given.quality is not None:
        unit = quality_point(given.quality, given.baseline)
        point = per_quality_point(found.total_usd, given.quality, given.baseline)
    advice = RunCostAdvice.from_parts(found, usd_per_quality_point=point, quality_point=unit, assumptions=notes)
    terminal.result(advice, lambda: _screen(advice))


def _screen(found: RunCostAdvice) -> Iterator[RenderableType]:
    from broker.cli.advise import view

    named = {
        "compute": found.compute_usd,
        "failed and repeated": found.failed_usd,
        "experiments": found.experiments_usd,
        "data preparation": found.preprocessing_usd,
        "storage": found.storage_usd,
        f"per {found.quality_point or 0:g} of quality": found.usd_per_quality_point,
    }
    yield view.heading(view.estimate(found.total_usd), " for the finished model")
    yield view.figures((name, view.estimate(amount)) for name, amount in named.items() if amount)
    yield from view.assumptions(found.assumptions)
