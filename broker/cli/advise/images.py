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
    from rich.console import RenderableType

    from broker.app.results.hardware_advice import ImagesAdvice, ImagesOption
    from broker.economics.images import ImageUse
    from broker.economics.rules import RulesOfThumb

EXAMPLES = examples(
    "gpubroker advise images --network ViT-L/16 --batch 64 --items 100M",
    "gpubroker advise images --network SDXL --method lora --batch 4 --checkpointing --gpu RTX4090 --json",
    "gpubroker advise images --network SD-1.5 --method inference --size 768",
)
_ROWS = 12


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
    gpu: inputs.Gpus = None
    price: inputs.Price = None


@gathered
def images(context: typer.Context, given: ImagesOptions, where: inputs.PlaceOptions, as_json: AsJson = False) -> None:
    """Compute GPU memory of a network that works on images, the accelerators that hold it, their speed and cost.

    The memory is that of one GPU; more GPUs by data parallelism need the same on each. Of a diffusion model it is the
    denoiser alone: text encoders and the autoencoder come on top unless their results are stored beforehand.
    """
    from broker.app.results.hardware_advice import ImageMemoryFigures, ImagesAdvice
    from broker.economics.images import ImageUse, image_memory, launch_seconds, network_of

    terminal = Terminal.of(context)
    thumb = inputs.thumb(context)
    rules = thumb if given.adapter is None else replace(thumb, adapter_fraction=given.adapter)
    use = ImageUse(network_of(given.network), given.method, given.batch, given.size, given.checkpointing,
                   given.optimizer)  # fmt: skip
    needs = image_memory(use, rules)
    share = rules.image_mfu_attention if use.network.attention else rules.image_mfu_convolution
    advice = ImagesAdvice(
        network=use.network.name,
        parameters=use.network.parameters,
        method=use.method,
        batch=use.batch,
        size=use.side,
        checkpointing=use.checkpointing,
        memory=ImageMemoryFigures.of(needs),
        total_gib=needs.total_gib,
        options=_options(terminal, given, where, use, rules),
        assumptions=[
            f"activations counted from the published network at {use.network.size} pixels a side, and in proportion to"
            " the pixels",
            f"{share:.0%} of the 16-bit peak, and the time in which parameters are moved; a step takes at least "
            f"{1000 * launch_seconds(use, rules):,.0f} ms, in which eager PyTorch launches its operations: a larger "
            "--batch fills the card",
            "within a factor of 2 of our measurements on an H100 (`backtest memory`)",
            "measure on your own images first; reading and decoding them keep up",
            f"{rules.memory_headroom:.0%} of GPU memory kept free",
            *([f"adapter of {rules.adapter_fraction:.2%} of the parameters"] * (use.method is ImageMethod.LORA)),
            *(
                ["gradients are freed between steps; accumulated ones add their size"]
                * (use.method is ImageMethod.FULL)
            ),
        ],
    )
    terminal.result(advice, lambda: _screen(terminal, advice))


def _options(
    terminal: Terminal, given: ImagesOptions, where: inputs.PlaceOptions, use: ImageUse, rules: RulesOfThumb
) -> list[ImagesOption]:
    """The accelerators that hold the model, by the cost of an image, cheapest first; those without a price are last."""
    from broker.app.results.hardware_advice import ImagesOption
    from broker.core.market.offers import CapacityType
    from broker.economics.images import image_speed

    prices = inputs.market(
        terminal, given.price, given.gpu[0] if given.gpu and len(given.gpu) == 1 else None, where.places(terminal)
    )
    found = []
    for card in inputs.accelerators(given.gpu):
        speed = image_speed(use, card, rules)
        if speed is None or speed.batch < use.batch:
            continue
        quotes = (prices.gpu_hour(card.name, kind) for kind in (CapacityType.ON_DEMAND, CapacityType.SPOT))
        quote = min(filter(None, quotes), default=None,
                    key=lambda one: (one.stale, not one.launchable, one.usd_per_gpu_hour))  # fmt: skip
        rate, price = speed.at_batch, quote.usd_per_gpu_hour if quote else None
        hours = given.items / rate / 3600 if given.items and rate else None
        found.append(
            ImagesOption(
                accelerator=card.name,
                largest_batch=speed.batch,
                images_per_second=rate,
                gpu_hours=hours,
                usd=None if hours is None or price is None else hours * price,
                usd_per_gpu_hour=price,
                capacity_type=quote.capacity_type if quote else None,
                where=quote.where if quote else None,
            )
        )
    return sorted(found, key=_merit)


def _merit(option: ImagesOption) -> tuple[bool, float]:
    price, rate = option.usd_per_gpu_hour, option.images_per_second
    return (True, 0.0) if price is None or not rate else (False, price / rate)


def _screen(terminal: Terminal, advice: ImagesAdvice) -> list[RenderableType]:
    from broker.cli.advise import view
    from broker.cli.render import formats
    from broker.cli.render.tables import Column, fitted
    from broker.economics.estimates import about, digits

    title = f"{advice.network} {advice.method}, {advice.batch} × {advice.size} pixels"
    parts: list[RenderableType] = [view.heading(title, f": {digits(advice.total_gib)} GiB on a GPU")]
    memory = advice.memory
    named = (
        ("weights", memory.weights_gib), ("optimizer", memory.optimizer_gib), ("16-bit copies", memory.copies_gib),
        ("activations", memory.activations_gib), ("gradients (at the end)", memory.gradients_gib),
        ("recomputed (at the end)", memory.recomputed_gib), ("driver and libraries", memory.runtime_gib),
    )  # fmt: skip
    parts.append(view.figures([(name, f"{gib:>10,.1f} GiB") for name, gib in named if gib]))
    columns = (
        Column("accelerator"), Column("largest batch", align="right"), Column("images/s", align="right"),
        Column("GPU-hours", 1, align="right"), Column("cost", 1, align="right"), Column("price/h", align="right"),
        Column("place", 2),
    )  # fmt: skip
    rows = [
        (one.accelerator, f"{one.largest_batch:,}", formats.known(one.images_per_second, digits),
         formats.known(one.gpu_hours, digits), formats.known(one.usd, about),
         formats.known(one.usd_per_gpu_hour, view.dollars), one.where or "no price known")
        for one in advice.options[:_ROWS]
    ]  # fmt: skip
    if rows:
        parts += fitted(terminal.out, columns, rows)
    else:
        parts.append(
            view.heading("No accelerator holds it.", " Try --checkpointing, a smaller --batch, or --method lora.")
        )
    if len(advice.options) > _ROWS:
        parts.append(view.heading("", f"the first {_ROWS} of {len(advice.options)} are shown; use --json for all"))
    return [*parts, *view.assumptions(advice.assumptions)]
