"""`gpubroker advise embed`: embedding a collection of documents or images once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.advise import inputs
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from broker.app.results.hardware_advice import EmbedAdvice

EXAMPLES = examples(
    "gpubroker advise embed --items 1B --tokens-per-item 256 --parameters 335M --dimensions 1024",
    "gpubroker advise embed --items 50M --image-size 224 --patch-size 14 --parameters 304M --dimensions 768 --json",
)


@dataclass(frozen=True)
class EmbedOptions:
    """The options of `embed`."""

    items: Annotated[float, typer.Option(parser=inputs.count, metavar="COUNT", help="Documents or images.")]
    parameters: Annotated[
        float, typer.Option(parser=inputs.count, metavar="COUNT", help="Number of model parameters, such as 335M.")
    ]
    tokens: Annotated[int | None, typer.Option("--tokens-per-item", help="Tokens of a document.")] = None
    image_size: Annotated[int | None, typer.Option(help="Pixels of a side of an image, instead of tokens.")] = None
    patch_size: Annotated[int, typer.Option(help="Pixels of a side of a patch.")] = 14
    dimensions: Annotated[int, typer.Option(help="Values of a vector.")] = 1024
    value_bytes: Annotated[float, typer.Option(help="Bytes of a value: 4, 2, or 1 if quantised.")] = 4.0
    compared: inputs.GpuOptions = inputs.ANY_GPU


@gathered
def embed(context: typer.Context, given: EmbedOptions, as_json: AsJson = False) -> None:
    """Compute GPU-hours and cost of embedding a collection once, and the size of its vectors.

    Such work is bound by compute and can be interrupted: spot prices count where they are lower.
    """
    from broker.app.advise.compared import embed_advice, named_or_all
    from broker.economics.embedding import EmbeddingJob, patches

    terminal = Terminal.of(context)
    thumb = inputs.measured(terminal, inputs.thumb(context))
    if (given.tokens is None) == (given.image_size is None):
        raise InvalidInput("the length of an item is missing", hint="give either --tokens-per-item or --image-size")
    tokens = given.tokens or patches(given.image_size or 0, given.patch_size)
    job = EmbeddingJob(given.items, tokens, given.parameters, given.dimensions, given.value_bytes)
    compared = given.compared
    advice = embed_advice(job, named_or_all(compared.gpu), compared.market(terminal), thumb)
    terminal.result(advice, lambda: _screen(terminal.out, advice))


def _screen(console: Console, advice: EmbedAdvice) -> Iterator[RenderableType]:
    from broker.app.results.hardware_advice import EmbedOption
    from broker.cli.advise import view
    from broker.cli.render import formats
    from broker.cli.render.tables import ValueColumn, listed
    from broker.economics.estimates import about, digits

    best = advice.options[0]
    items = f"{view.big(advice.items)} items of {advice.tokens_per_item:,} tokens"
    sizes = f"vectors {digits(advice.vectors_gb)} GB, index {digits(advice.index_gb)} GB"
    title = f": {digits(best.gpu_hours)} GPU-hours for {items}; {sizes}"
    yield view.heading(f"{about(best.usd)} on {best.accelerator}", title)
    columns: tuple[ValueColumn[EmbedOption], ...] = (
        ValueColumn("accelerator", lambda one: one.accelerator),
        ValueColumn("items/s", lambda one: digits(one.items_per_second), align="right"),
        ValueColumn("GPU-hours", lambda one: digits(one.gpu_hours), align="right"),
        ValueColumn("cost", lambda one: about(one.usd), align="right"),
        ValueColumn("price/h", lambda one: f"${one.usd_per_gpu_hour:.2f}", align="right"),
        ValueColumn("capacity type", lambda one: formats.purchase_type(one.capacity_type), 1),
        ValueColumn("place", lambda one: one.where, 2),
    )
    yield from listed(console, columns, advice.options[:12])
    yield from view.assumptions(advice.assumptions)
