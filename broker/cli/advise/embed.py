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
    from rich.console import RenderableType

    from broker.app.results.hardware_advice import EmbedAdvice
    from broker.economics.rules import RulesOfThumb

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
    gpu: inputs.Gpus = None
    price: inputs.Price = None


@gathered
def embed(context: typer.Context, given: EmbedOptions, where: inputs.PlaceOptions, as_json: AsJson = False) -> None:
    """Compute GPU-hours and cost of embedding a collection once, and the size of its vectors.

    Such work is bound by compute and can be interrupted: spot prices count where they are lower.
    """
    from broker.app.results.hardware_advice import EmbedAdvice, EmbedOption
    from broker.core.market.offers import CapacityType
    from broker.economics import embedding

    terminal = Terminal.of(context)
    thumb = inputs.measured(terminal, inputs.thumb(context))
    if (given.tokens is None) == (given.image_size is None):
        raise InvalidInput("the length of an item is missing", hint="give either --tokens-per-item or --image-size")
    tokens = given.tokens or embedding.patches(given.image_size or 0, given.patch_size)
    job = embedding.EmbeddingJob(given.items, tokens, given.parameters, given.dimensions, given.value_bytes)
    prices = inputs.market(terminal, given.price, places=where.places(terminal))
    options = []
    for card in inputs.accelerators(given.gpu):
        speed = embedding.embedding_speed(job, card, rules=thumb)
        kinds = (CapacityType.ON_DEMAND, CapacityType.SPOT)
        quote = min(filter(None, (prices.gpu_hour(card.name, kind) for kind in kinds)), default=None,
                    key=lambda one: (one.stale, not one.launchable, one.usd_per_gpu_hour))  # fmt: skip
        if speed is None or quote is None:
            continue
        on_spot = quote.capacity_type is CapacityType.SPOT
        hours = speed.gpu_hours * (1 + (thumb.spot_overhead_on(card.name)[0] if on_spot else 0.0))
        options.append(
            EmbedOption(
                accelerator=card.name,
                items_per_second=speed.items_per_second,
                gpu_hours=hours,
                usd=hours * quote.usd_per_gpu_hour,
                capacity_type=quote.capacity_type,
                usd_per_gpu_hour=quote.usd_per_gpu_hour,
                where=quote.where,
                batch=speed.batch,
            )
        )
    if not options:
        raise InvalidInput("no accelerator with a price holds this model", hint="give --price, or another place")
    _, origin = embedding.encoder_of(given.parameters)
    cheapest = min(options, key=lambda one: one.usd)
    advice = EmbedAdvice(
        items=job.items,
        tokens_per_item=tokens,
        vectors_gb=job.vectors_gb,
        index_gb=embedding.index_gb(job),
        options=sorted(options, key=lambda one: one.usd),
        assumptions=[
            origin,
            _share(thumb, cheapest.accelerator, given.parameters),
            f"{thumb.spot_text(cheapest.accelerator)}; reading and tokenising keep up",
            "index: HNSW with 32 links, in memory; quantised vectors need a quarter and less",
        ],
    )
    terminal.result(advice, lambda: _screen(terminal, advice))


def _share(rules: RulesOfThumb, accelerator: str, parameters: float) -> str:
    share, runs = rules.prompt_share_on(accelerator, parameters)
    return f"{share:.0%} of peak compute in 16 bits" + (
        f", measured by {runs} finished run{'s' * (runs > 1)} of a model of this size on {accelerator}"
        if runs
        else ": measure on a sample of your items first"
    )


def _screen(terminal: Terminal, advice: EmbedAdvice) -> list[RenderableType]:
    from broker.cli.advise import view
    from broker.cli.render import formats
    from broker.cli.render.tables import Column, fitted
    from broker.economics.estimates import about, digits

    best = advice.options[0]
    parts: list[RenderableType] = [
        view.heading(
            f"{about(best.usd)} on {best.accelerator}",
            f": {digits(best.gpu_hours)} GPU-hours for {view.big(advice.items)} items of {advice.tokens_per_item:,} "
            f"tokens; vectors {digits(advice.vectors_gb)} GB, index {digits(advice.index_gb)} GB",
        )
    ]
    columns = (
        Column("accelerator"), Column("items/s", align="right"), Column("GPU-hours", align="right"),
        Column("cost", align="right"), Column("price/h", align="right"), Column("capacity type", 1), Column("place", 2),
    )  # fmt: skip
    rows = [
        (one.accelerator, digits(one.items_per_second), digits(one.gpu_hours), about(one.usd),
         f"${one.usd_per_gpu_hour:.2f}", formats.purchase_type(one.capacity_type), one.where)
        for one in advice.options[:12]
    ]  # fmt: skip
    parts += fitted(terminal.out, columns, rows)
    return [*parts, *view.assumptions(advice.assumptions)]
