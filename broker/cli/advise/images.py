"""`gpubroker advise images`: memory, speed and cost of classifiers and of diffusion models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.economics.images import ImageMethod, ImageOptimizer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from broker.app.results.hardware_advice import ImagesAdvice, ImagesOption

EXAMPLES = examples(
    "gpubroker advise images --network ViT-L/16 --batch 64 --items 100M",
    "gpubroker advise images --network SDXL --method lora --batch 4 --checkpointing --gpu RTX4090 --json",
    "gpubroker advise images --network SD-1.5 --method inference --size 768",
)


@dataclass(frozen=True)
class ImagesOptions:
    """The options of `images`."""

    network: Annotated[str, typer.Option(metavar="NAME", help="Network, such as ResNet-50, ViT-L/16, SDXL or FLUX.1.")]
    method: Annotated[ImageMethod, typer.Option("--method", "-m", help="Training of all weights, of an adapter, or"
                                                " inference.")] = ImageMethod.FULL  # fmt: skip
    batch: Annotated[int, typer.Option(help="Images per GPU at once.")] = 1
    size: Annotated[int | None, typer.Option(help="Pixels of a side. Default: as published.")] = None
    checkpointing: Annotated[
        bool, typer.Option("--checkpointing", help="Activations are recomputed in the backward pass.")
    ] = False
    optimizer: Annotated[ImageOptimizer, typer.Option(help="Optimizer.")] = ImageOptimizer.ADAMW
    items: Annotated[
        float | None,
        typer.Option(
            parser=inputs.count, metavar="COUNT", help="Images in all, each time it is seen: GPU-hours, cost."
        ),
    ] = None
    adapter: Annotated[
        float | None, typer.Option("--adapter-fraction", help="LoRA parameters as a share of all. Default: 0.01.")
    ] = None
    compared: inputs.GpuOptions = inputs.ANY_GPU


@gathered
def images(context: typer.Context, given: ImagesOptions, as_json: AsJson = False) -> None:
    """Compute GPU memory of a network that works on images, the accelerators that hold it, their speed and cost.

    The memory is that of one GPU; more GPUs by data parallelism need the same on each. Of a diffusion model it is the
    denoiser alone: text encoders and the autoencoder come on top unless their results are stored beforehand.
    """
    from broker.app.advise.compared import images_advice, named_or_all
    from broker.economics.images import ImageUse, network_of

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    rules = thumb if given.adapter is None else replace(thumb, adapter_fraction=given.adapter)
    use = ImageUse(network_of(given.network), given.method, given.batch, given.size, given.checkpointing,
                   given.optimizer)  # fmt: skip
    compared = given.compared
    advice = images_advice(use, given.items, named_or_all(compared.gpu), compared.market(terminal), rules)
    terminal.result(advice, lambda: _screen(terminal.out, advice))


def _screen(console: Console, advice: ImagesAdvice) -> Iterator[RenderableType]:
    from broker.cli.advise import view
    from broker.cli.render.formats import known
    from broker.cli.render.tables import ValueColumn
    from broker.economics.estimates import about, digits

    title = f"{advice.network} {advice.method}, {advice.batch} × {advice.size} pixels"
    yield view.heading(title, f": {digits(advice.total_gib)} GiB on a GPU")
    named = {
        "weights": advice.memory.weights_gib,
        "optimizer": advice.memory.optimizer_gib,
        "16-bit copies": advice.memory.copies_gib,
        "activations": advice.memory.activations_gib,
        "gradients (at the end)": advice.memory.gradients_gib,
        "recomputed (at the end)": advice.memory.recomputed_gib,
        "driver and libraries": advice.memory.runtime_gib,
    }
    yield view.figures((name, f"{gib:>10,.1f} GiB") for name, gib in named.items() if gib)
    columns: tuple[ValueColumn[ImagesOption], ...] = (
        ValueColumn("accelerator", lambda one: one.accelerator),
        ValueColumn("largest batch", lambda one: f"{one.largest_batch:,}", align="right"),
        ValueColumn("images/s", lambda one: known(one.images_per_second, digits), align="right"),
        ValueColumn("GPU-hours", lambda one: known(one.gpu_hours, digits), 1, "right"),
        ValueColumn("cost", lambda one: known(one.usd, about), 1, "right"),
        ValueColumn("price/h", lambda one: view.dollars(one.usd_per_gpu_hour), align="right"),
        ValueColumn("place", lambda one: one.where or "no price known", 2),
    )
    if advice.options:
        yield from view.best(console, columns, advice.options, "first")
    else:
        yield view.heading("No accelerator holds it.", " Try --checkpointing, a smaller --batch, or --method lora.")
    yield from view.assumptions(advice.assumptions)
