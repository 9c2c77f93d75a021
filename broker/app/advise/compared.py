"""Accelerators compared at current prices: for embedding, for networks on images, and by performance per dollar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker.app.advise.prices import CurrentPrices
from broker.app.results.advice_values import quoted
from broker.app.results.hardware_advice import (
    EmbedAdvice,
    EmbedOption,
    HardwareAdvice,
    ImageMemoryFigures,
    ImagesAdvice,
    ImagesOption,
)
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType
from broker.core.values.accelerators import Accelerator, known, lookup
from broker.core.values.figures import plural
from broker.economics import embedding
from broker.economics.assumptions import Assumptions
from broker.economics.hardware import Candidate, TrialResult, radar, rank
from broker.economics.images import ImageMethod, ImageUse, image_memory, image_speed, launch_seconds
from broker.economics.kinds import BoundBy

_TOLD = 5  # prices whose source is shown
_MARKETPLACES = frozenset({"vast"})  # they rent out machines of third parties


def named_or_all(names: Iterable[str] | None) -> list[Accelerator]:
    """The named accelerators, or all known ones. Raises `UnknownName` with a suggestion."""
    return [lookup(name) for name in names or known()]


def embed_advice(
    job: embedding.EmbeddingJob, cards: Iterable[Accelerator], prices: CurrentPrices, rules: Assumptions
) -> EmbedAdvice:
    """The embedding of a collection, the cheapest accelerator first. Raises `InvalidInput` if none with a price holds
    the model."""
    options = []
    for card in cards:
        speed = embedding.embedding_speed(job, card, rules=rules)
        quote = prices.cheapest_gpu_hour(card.name)
        if speed is None or quote is None:
            continue
        on_spot = quote.capacity_type is CapacityType.SPOT
        hours = speed.gpu_hours * (1 + (rules.spot_overhead_on(card.name)[0] if on_spot else 0.0))
        options.append(EmbedOption.from_parts(speed, quote, gpu_hours=hours, usd=hours * quote.usd_per_gpu_hour))
    if not options:
        raise InvalidInput("no accelerator with a price holds this model", hint="give --price, or another place")
    options.sort(key=lambda one: one.usd)
    name = options[0].accelerator
    share, runs = rules.prompt_share_on(name, job.parameters)
    measured = f", measured by {plural(runs, 'finished run')} of a model of this size on {name}"
    return EmbedAdvice(
        items=job.items,
        tokens_per_item=job.tokens,
        vectors_gb=job.vectors_gb,
        index_gb=embedding.index_gb(job),
        options=options,
        assumptions=[
            embedding.encoder_of(job.parameters)[1],
            f"{share:.0%} of peak compute in 16 bits"
            + (measured if runs else ": measure on a sample of your items first"),
            f"{rules.spot_text(name)}; reading and tokenising keep up",
            "index: HNSW with 32 links, in memory; quantised vectors need a quarter and less",
        ],
    )


def images_advice(
    use: ImageUse, items: float | None, cards: Iterable[Accelerator], prices: CurrentPrices, rules: Assumptions
) -> ImagesAdvice:
    """The memory of a network, and the accelerators that hold it, by the cost of an image, cheapest first; those
    without a price are last."""
    needs = image_memory(use, rules)
    share = rules.image_mfu_attention if use.network.attention else rules.image_mfu_convolution
    notes = [
        f"activations counted from the published network at {use.network.size} pixels a side, and in proportion to the"
        " pixels",
        f"{share:.0%} of the 16-bit peak, and the time in which parameters are moved; a step takes at least "
        f"{1000 * launch_seconds(use, rules):,.0f} ms, in which eager PyTorch launches its operations: a larger "
        "--batch fills the card",
        "within a factor of 2 of our measurements on an H100",
        "measure on your own images first; reading and decoding them keep up",
        f"{rules.memory_headroom:.0%} of GPU memory kept free",
    ]
    if use.method is ImageMethod.LORA:
        notes.append(f"adapter of {rules.adapter_fraction:.2%} of the parameters")
    if use.method is ImageMethod.FULL:
        notes.append("gradients are freed between steps; accumulated ones add their size")
    options = (_image_option(use, items, card, prices, rules) for card in cards)
    return ImagesAdvice(
        network=use.network.name,
        parameters=use.network.parameters,
        method=use.method,
        batch=use.batch,
        size=use.side,
        checkpointing=use.checkpointing,
        memory=ImageMemoryFigures.of(needs),
        total_gib=needs.total_gib,
        options=sorted(filter(None, options), key=_merit),
        assumptions=notes,
    )


def _image_option(
    use: ImageUse, items: float | None, card: Accelerator, prices: CurrentPrices, rules: Assumptions
) -> ImagesOption | None:
    speed = image_speed(use, card, rules)
    if speed is None or speed.batch < use.batch:
        return None
    quote = prices.cheapest_gpu_hour(card.name)
    rate, price = speed.at_batch, quote.usd_per_gpu_hour if quote else None
    hours = items / rate / 3600 if items and rate else None
    return ImagesOption(
        accelerator=card.name,
        largest_batch=speed.batch,
        images_per_second=rate,
        gpu_hours=hours,
        usd=None if hours is None or price is None else hours * price,
        usd_per_gpu_hour=price,
        capacity_type=quote.capacity_type if quote else None,
        where=quote.where if quote else None,
    )


def _merit(option: ImagesOption) -> tuple[bool, float]:
    price, rate = option.usd_per_gpu_hour, option.images_per_second
    return (True, 0.0) if price is None or not rate else (False, price / rate)


def hardware_advice(
    bound_by: BoundBy, names: Sequence[str] | None, prices: CurrentPrices, trials: tuple[TrialResult, ...], *, buy: bool
) -> HardwareAdvice:
    """Performance per dollar and scores of the named accelerators, or of all. ``buy``: at street prices. Raises
    `InvalidInput` if no price is known and nothing was measured, `UnknownName`."""
    candidates, unpriced = _candidates(named_or_all(names), prices, buy=buy)
    if not candidates and not trials:
        raise InvalidInput(
            "no price is known for these accelerators", hint="give --price NAME=USD, or --buy for street prices"
        )
    unpriced = unpriced if names else []
    notes = ["prices: the middle of street prices per GPU"] if buy else _origins(candidates, prices)
    notes += [f"omitted, no price known: {', '.join(unpriced)}"] if unpriced else []
    return HardwareAdvice.from_parts(
        bound_by=bound_by,
        per="purchase price" if buy else "rent",
        ranking=rank(candidates, bound_by),
        radar=radar(candidates, bound_by) if candidates else (),
        trials=trials,
        unpriced=unpriced,
        assumptions=notes,
    )


def _candidates(cards: Iterable[Accelerator], prices: CurrentPrices, *, buy: bool) -> tuple[list[Candidate], list[str]]:
    """Accelerators with a price, and the names of those without one."""
    found, missing = [], []
    for card in cards:
        quote = prices.gpu_hour(card.name) or prices.gpu_hour(card.name, CapacityType.SPOT)
        usd = prices.stated.get(card.name)
        if usd is None and buy:
            usd = sum(card.street_price) / 2 if card.street_price else None
        elif usd is None and quote is not None:
            usd = quote.usd_per_gpu_hour
        if usd is None:
            missing.append(card.name)
            continue
        place = quote.where.split("/")[0] if quote else ""
        found.append(Candidate(card, usd, marketplace=not buy and place in _MARKETPLACES))
    return found, missing


def _origins(candidates: Sequence[Candidate], prices: CurrentPrices) -> list[str]:
    """The sources of the prices, of the first few."""
    quotes = {one.accelerator.name: prices.gpu_hour(one.accelerator.name) for one in candidates[:_TOLD]}
    told = [f"{name}: {quoted(quote)}" for name, quote in quotes.items() if quote is not None]
    more = len(candidates) - _TOLD
    rest = [f"and {more} more: `gpubroker offers --gpu NAME` shows each"] if more > 0 else []
    return ["prices: the cheapest on-demand GPU-hour", *told, *rest]
