"""`gpubroker advise run-cost`: the whole cost of a training run, with what failed, was tried, prepared and stored."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

EXAMPLES = examples(
    "gpubroker advise run-cost --gpu-hours 2000 --gpu H100 --failed-share 0.1 --experiments 2",
    "gpubroker advise run-cost --gpu-hours 2000 --usd-per-gpu-hour 2.5 --storage-gb 800 --storage-months 6 "
    "--quality 0.86 --baseline-quality 0.8 --json",
)


def run_cost(
    context: typer.Context,
    gpu_hours: Annotated[float, typer.Option("--gpu-hours", help="Of the run that ends well.")],
    usd_per_gpu_hour: Annotated[
        float | None,
        typer.Option("--usd-per-gpu-hour", parser=inputs.dollars, metavar="USD", help="Price of a GPU-hour."),
    ] = None,
    gpu: inputs.Gpu = None,
    failed_share: Annotated[float, typer.Option("--failed-share", help="Of all GPU-hours, failed or redone.")] = 0.0,
    experiments: Annotated[float, typer.Option("--experiments", help="Tried before, in units of the run.")] = 0.0,
    preprocessing: Annotated[
        float | None, typer.Option("--preprocessing-share", help="Data preparation, of training; 0.2 if not given.")
    ] = None,
    storage_gb: Annotated[float, typer.Option("--storage-gb", help="Checkpoints and artifacts.")] = 0.0,
    storage_usd: Annotated[
        float,
        typer.Option("--storage-usd-per-gb-month", parser=inputs.dollars, metavar="USD", help="Object storage."),
    ] = 0.023,
    storage_months: Annotated[float, typer.Option("--storage-months", help="Kept for.")] = 1.0,
    quality: Annotated[float | None, typer.Option("--quality", help="Reached; for the cost of a point.")] = None,
    baseline: Annotated[float, typer.Option("--baseline-quality", help="Before.")] = 0.0,
    price: inputs.Price = None,
    as_json: AsJson = False,
) -> None:
    """What a finished model costs: compute, failed runs, experiments, data preparation, storage; per quality point."""
    from broker.cli.advise import view
    from broker.cli.advise.document import document
    from broker.core.accelerators import canonical
    from broker.economics.unit_cost import per_quality_point, training_run

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    notes: list[str] = []
    if usd_per_gpu_hour is None:
        if gpu is None:
            raise InvalidInput("the price is missing", hint="give --usd-per-gpu-hour, or --gpu to look it up")
        name = canonical(gpu)
        quote = inputs.market(terminal, price, name).gpu_hour(name)
        if quote is None:
            raise InvalidInput(f"no price of {name} is known", hint="give --usd-per-gpu-hour, or --price")
        usd_per_gpu_hour = quote.usd_per_gpu_hour
        notes.append(f"${usd_per_gpu_hour:.2f} per GPU-hour ({view.quoted(quote)})")
    if preprocessing is None:
        notes.append(f"data preparation: {thumb.preprocessing_share:.0%} of training (10-30 % is common)")
    found = training_run(
        gpu_hours=gpu_hours,
        usd_per_gpu_hour=usd_per_gpu_hour,
        failed_share=failed_share,
        experiments=experiments,
        preprocessing_share=preprocessing,
        storage_gb=storage_gb,
        storage_usd_per_gb_month=storage_usd,
        storage_months=storage_months,
        rules=thumb,
    )
    point = None if quality is None else per_quality_point(found.total_usd, quality, baseline)
    if as_json:
        terminal.answer(document(found, usd_per_quality_point=point, assumptions=notes))
        return
    named = (
        ("compute", found.compute_usd), ("failed and redone", found.failed_usd), ("experiments", found.experiments_usd),
        ("data preparation", found.preprocessing_usd), ("storage", found.storage_usd), ("a point of quality", point),
    )  # fmt: skip
    rows = [(name, view.dollars(amount)) for name, amount in named if amount]
    terminal.show(view.heading(view.dollars(found.total_usd), " for the finished model"), view.figures(rows))
    terminal.show(*view.assumptions(notes))
