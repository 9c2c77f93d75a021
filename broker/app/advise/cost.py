"""What GPU work costs at current prices: a finished model, a million tokens, an owned GPU-hour, networks on images, the
embedding of a collection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil

from broker.app.advise.prices import CurrentPrices, Quote
from broker.app.advise.size import accelerators_or_all
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType
from broker.core.values.figures import plural
from broker.economics.assumptions import Assumptions
from broker.economics.figures import (
    Count,
    Estimate,
    EstimatedUsd,
    Figure,
    Gib,
    Hours,
    Usd,
    count_text,
    number_text,
    usd_text,
)
from broker.economics.images import (
    EmbeddingSpeed,
    ImageMemory,
    ImageMethod,
    ImageOptimizer,
    ImageUse,
    embedding_speed,
    encoder_of,
    image_memory,
    image_speed,
    index_gb,
    launch_seconds,
    network_of,
    tokens_of,
    vectors_gb,
)
from broker.economics.kinds import Method
from broker.economics.memory import Subject
from broker.economics.unit_cost import (
    ClusterCost,
    RunCost,
    TokenCost,
    cluster_cost,
    token_cost,
    training_run,
    with_middle_overheads,
)


@dataclass(frozen=True, slots=True)
class RunCostAdvice:
    """The whole cost of a model that was trained with that many GPU-hours; ``hours``: on the stated number of GPUs."""

    gpu_hours: Figure
    hours: Hours | None
    usd_per_gpu_hour: Usd
    cost: RunCost
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        hours, gpu_hours = self.hours, f"{number_text(self.gpu_hours)} GPU-hours"
        time = f" on {plural(round(self.gpu_hours / hours), 'GPU')}: {number_text(hours)} h" if hours else ""
        return f"{usd_text(self.cost.total_usd)}: the finished model; {gpu_hours}{time}"


@dataclass(frozen=True, slots=True)
class UnitCostAdvice:
    """The cost of a million tokens of a machine with that speed."""

    tokens_per_second: Estimate
    cost: TokenCost
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"${self.cost.usd_per_million_tokens:.4f}: a million tokens"


@dataclass(frozen=True, slots=True)
class ClusterCostAdvice:
    """The cost of an hour of an owned GPU."""

    gpus: int
    server_usd: Usd
    cost: ClusterCost
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{usd_text(self.cost.usd_per_used_gpu_hour)}: a used GPU-hour"


def run_cost(gpu_hours: float, gpu: str, prices: CurrentPrices, assumptions: Assumptions) -> RunCostAdvice:
    """The advice for a run of that many GPU-hours, on ``gpus`` if they are stated. Raises InvalidInput without a
    price."""
    quote = gpu_hour_quote(gpu, prices, "give --price USD", assumptions)
    price = quote.usd_per_gpu_hour
    notes = [
        f"${price:.2f} per GPU-hour of {quote.machine} ({quote.basis})",
        f"data preparation: {assumptions.preprocessing_share:.0%} of training (10-30 % is common)",
    ]
    hours = gpu_hours / assumptions.gpus if assumptions.gpus else None
    return RunCostAdvice(gpu_hours, hours, price, training_run(gpu_hours, price, assumptions), tuple(notes))


def unit_cost(
    tokens_per_second: float, gpu: str, prices: Callable[[], CurrentPrices], assumptions: Assumptions
) -> UnitCostAdvice:
    """The advice for a machine that is owned (``purchase_usd``) or rented: at the stated rent, else at that of the
    accelerator. Raises InvalidInput without a price."""
    notes = [f"utilization {assumptions.utilization:.0%}"]
    if assumptions.purchase_usd is not None and assumptions.rent_usd_per_hour is not None:
        raise InvalidInput("purchase_usd (owned) and rent_usd_per_hour (rented) cannot be combined")
    if assumptions.purchase_usd is not None:
        notes += [f"depreciation over {assumptions.years:g} years", f"electricity at ${assumptions.kwh_usd:g}/kWh"]
        notes.append(f"PUE {assumptions.pue:g}, {assumptions.watts or 0:g} W (--assume watts=N)")
    elif assumptions.rent_usd_per_hour is None:
        hint = "give --assume rent_usd_per_hour=USD, or purchase_usd=USD if it is owned"
        quote = gpu_hour_quote(gpu, prices(), hint, assumptions)
        assumptions = replace(assumptions, rent_usd_per_hour=quote.usd_per_gpu_hour)
        notes.append(f"rent: ${quote.usd_per_gpu_hour:.3f}/h per GPU of {quote.machine} ({quote.basis})")
    return UnitCostAdvice(tokens_per_second, token_cost(tokens_per_second, assumptions), tuple(notes))


def owned_hour(server_usd: float, assumptions: Assumptions) -> ClusterCostAdvice:
    """The advice for a cluster whose servers cost that much in all."""
    assumptions = with_middle_overheads(assumptions)
    notes = [
        f"{assumptions.years:g} years of 8,760 hours, utilization {assumptions.utilization:.0%}, resale "
        f"{assumptions.resale_share:.0%}, discount rate {assumptions.discount_rate:.0%}, ${assumptions.kwh_usd:g}/kWh, "
        f"PUE {assumptions.pue:g}",
        f"facilities ${assumptions.facility_usd:,.0f} once (facility_usd), {assumptions.watts:,.0f} W (watts), staff "
        f"${assumptions.staff_usd_per_gpu_hour:.2f} per GPU-hour (staff_usd_per_gpu_hour); where not stated, the "
        "middle of quoted ranges",
    ]
    gpus = assumptions.gpus or assumptions.gpus_per_node
    return ClusterCostAdvice(gpus, server_usd, cluster_cost(server_usd, assumptions), tuple(notes))


def gpu_hour_quote(gpu: str, prices: CurrentPrices, hint: str, assumptions: Assumptions) -> Quote:
    """The cheapest GPU-hour on demand: of machines for the ``gpus`` of the assumptions, if there are any, else of any
    size. Raises InvalidInput if none is known."""
    if not gpu:
        other = hint.removeprefix("give ")
        raise InvalidInput("no accelerator is named", hint=f"add --gpu, such as --gpu H100, or {other}")
    per_machine = min(assumptions.gpus or 1, assumptions.gpus_per_node)
    machines = ceil((assumptions.gpus or 1) / per_machine)
    quote = (prices.quote(gpu, per_machine, machines) if assumptions.gpus else None) or prices.gpu_hour(gpu)
    if quote is None:
        raise InvalidInput(f"no price of {gpu} is known", hint=f"run `gpubroker prices poll`, or {hint}")
    return quote


@dataclass(frozen=True, slots=True)
class EmbeddingOption:
    """An accelerator for a collection; hours and cost with those that spot repeats."""

    accelerator: str
    gpu_hours: Hours
    usd: EstimatedUsd
    speed: EmbeddingSpeed
    quote: Quote


@dataclass(frozen=True, slots=True)
class EmbeddingAdvice:
    """The embedding of a collection once, the cheapest accelerator first. Sizes are GB (10⁹ bytes)."""

    items: Count
    tokens_per_item: int
    vectors_gb: Estimate
    index_gb: Estimate
    options: tuple[EmbeddingOption, ...]
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        best = self.options[0]
        items = f"{count_text(self.items)} items of {self.tokens_per_item:,} tokens"
        return f"{usd_text(best.usd)} on {best.accelerator}: {number_text(best.gpu_hours)} GPU-hours for {items}"


def embedding_cost(
    model: Subject, accelerators: Sequence[str], prices: CurrentPrices, assumptions: Assumptions
) -> EmbeddingAdvice:
    """The advice for the ``items`` of the assumptions. Raises InvalidInput if no accelerator with a price holds the
    model."""
    items, parameters, tokens = assumptions.items, model.parameters, tokens_of(assumptions)
    if items is None:
        raise InvalidInput("the number of documents or images is missing", hint="give --items, such as 1B")
    options = []
    for card in accelerators_or_all(accelerators):
        speed = embedding_speed(parameters, items, card, assumptions)
        quote = prices.cheapest_gpu_hour(card.name)
        if speed is None or quote is None:
            continue
        is_spot = quote.capacity_type is CapacityType.SPOT
        hours = speed.gpu_hours * (1 + (assumptions.spot_overhead_on(card.name)[0] if is_spot else 0.0))
        options.append(EmbeddingOption(card.name, hours, hours * quote.usd_per_gpu_hour, speed, quote))
    if not options:
        raise InvalidInput("no accelerator with a price holds this model", hint="give --price, or another place")
    options.sort(key=lambda option: option.usd)
    name = options[0].accelerator
    share, runs = assumptions.prompt_share_on(name, parameters)
    measured_note = f", measured by {plural(runs, 'finished run')} of a model of this size on {name}"
    return EmbeddingAdvice(
        items=items,
        tokens_per_item=tokens,
        vectors_gb=vectors_gb(items, assumptions),
        index_gb=index_gb(items, assumptions),
        options=tuple(options),
        assumptions=(
            encoder_of(parameters)[1],
            f"{share:.0%} of peak compute in 16 bits"
            + (measured_note if runs else ": measure on a sample of your items first"),
            f"{assumptions.spot_text(name)}; reading and tokenizing keep up",
            "index: HNSW with 32 links, in memory; quantized vectors need a quarter and less",
        ),
    )


@dataclass(frozen=True, slots=True)
class ImagesOption:
    """An accelerator that holds the network with this batch; null where no speed, price or number is known."""

    accelerator: str
    largest_batch: int
    images_per_second: Estimate | None
    gpu_hours: Hours | None
    usd: EstimatedUsd | None
    quote: Quote | None


@dataclass(frozen=True, slots=True)
class ImagesAdvice:
    """A network on images: memory on one GPU, and the accelerators that hold it, the least cost an image first."""

    network: str
    parameters: Count
    method: ImageMethod
    batch: int
    size: int
    memory: ImageMemory
    total_gib: Gib
    options: tuple[ImagesOption, ...]
    assumptions: tuple[str, ...]

    @property
    def title(self) -> str:
        warning = "" if self.options else "; no accelerator holds it"
        use = f"{self.network} {self.method}, {self.batch} × {self.size} pixels"
        return f"{use}: {number_text(self.total_gib)} GiB on a GPU{warning}"


def images_cost(
    network: str, method: Method, accelerators: Sequence[str], prices: CurrentPrices, assumptions: Assumptions
) -> ImagesAdvice:
    """The memory of a network, and the accelerators that hold it, by the cost of an image, cheapest first; those
    without a price are last. Raises InvalidInput for a method that networks on images do not have."""
    if method is Method.QLORA:
        raise InvalidInput("networks on images are not trained by qlora here", where="--method", hint="try lora")
    full = method in (Method.ADAMW, Method.SGD)
    use = ImageUse(
        network_of(network),
        ImageMethod.FULL if full else ImageMethod(method.value),
        assumptions.batch or 1,
        assumptions.image_size,
        assumptions.checkpointing,
        ImageOptimizer.SGD if method is Method.SGD else ImageOptimizer.ADAMW,
    )
    needs = image_memory(use, assumptions)
    share = assumptions.image_mfu_attention if use.network.attention else assumptions.image_mfu_convolution
    notes = [
        f"activations counted from the published network at {use.network.size} pixels a side, and in proportion to the"
        " pixels",
        f"{share:.0%} of the 16-bit peak, and the time in which parameters are moved; a step takes at least "
        f"{1000 * launch_seconds(use, assumptions):,.0f} ms, in which eager PyTorch launches its operations: a larger "
        "--batch fills the card",
        "within a factor of 2 of our measurements on an H100",
        "measure on your own images first; reading and decoding them keep up",
        f"{assumptions.memory_headroom:.0%} of GPU memory kept free",
    ]
    if use.method is ImageMethod.LORA:
        notes.append(f"adapter of {assumptions.adapter_fraction:.2%} of the parameters")
    if use.method is ImageMethod.FULL:
        notes.append("gradients are freed between steps; accumulated ones add their size")
    options = []
    for card in accelerators_or_all(accelerators):
        speed = image_speed(use, card, assumptions)
        if speed is None or speed.batch < use.batch:
            continue
        quote, rate, items = prices.cheapest_gpu_hour(card.name), speed.at_batch, assumptions.items
        hours = items / rate / 3600 if items and rate else None
        usd = None if hours is None or quote is None else hours * quote.usd_per_gpu_hour
        options.append(ImagesOption(card.name, speed.batch, rate, hours, usd, quote))
    return ImagesAdvice(
        network=use.network.name,
        parameters=use.network.parameters,
        method=use.method,
        batch=use.batch,
        size=use.side,
        memory=needs,
        total_gib=needs.total_gib,
        options=tuple(sorted(options, key=_price_order)),
        assumptions=tuple(notes),
    )


def _price_order(option: ImagesOption) -> tuple[bool, float]:
    quote, rate = option.quote, option.images_per_second
    return (True, 0.0) if quote is None or not rate else (False, quote.usd_per_gpu_hour / rate)
