"""Memory and speed of networks that work on images: classifiers, and the denoisers of diffusion models.

Their activations follow from the network, not from a number of parameters, so they are a table (``images.toml``),
counted per item at a size and scaled with the pixels. All sizes are GiB (2**30 bytes) of one GPU; data parallelism
needs them on each. Full training is in mixed precision by autocast: FP32 weights, gradients and moments, a 16-bit copy
of the weights during the step, activations in 16 bits. An adapter's frozen weights are 16 bits, and so is inference.

Embedding a collection of documents or images once: GPU-hours, cost, and the size of the vectors.

An encoder reads each item whole and in large batches, so it is bound by compute: 2 FLOPs per parameter and token, and
the scores of attention, which is not causal: 4 × layers × hidden size × tokens² (Devlin et al., BERT, NAACL 2019;
Dosovitskiy et al., ViT, ICLR 2021: an image is (size ÷ patch)² tokens). Amounts USD, memory GiB, vectors GB (10⁹).
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from broker.core.errors import InvalidInput, UnknownName
from broker.core.extras import load_packaged_toml
from broker.core.market.accelerators import Accelerator
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.figures import Estimate, Gib, Hours
from broker.economics.kinds import Precision
from broker.economics.memory import usable_gib
from broker.economics.throughput import inference_flops, peak_tflops
from broker.economics.units import GB, GIB, TERA, fraction, parameter_count, whole

_MIB = 2**20


class ImageMethod(StrEnum):
    """The use of a network on images."""

    FULL = "full"
    LORA = "lora"
    INFERENCE = "inference"


class ImageOptimizer(StrEnum):
    """The optimizer: two FP32 moments per parameter, or one."""

    ADAMW = "adamw"
    SGD = "sgd"


@dataclass(frozen=True, slots=True)
class ImageNetwork:
    """A row of the table: ``forward_gflops`` of one item of ``size`` pixels a side (a multiply and an add are two).
    ``tensors``: the number of tensors of its parameters, a measure of the operations of a pass.

    MiB of one item: ``train_mib`` stored in full training; ``checkpointed_mib``: with checkpoints, at the loss, and
    while a block is recomputed; ``adapter_mib`` and ``adapter_checkpointed_mib``: the same where only an adapter is
    trained; ``inference_mib``: the most that inference holds at once. None: not counted. ``attention``: a transformer,
    not a network of convolutions.
    """

    name: str
    parameters: float
    size: int
    attention: bool
    forward_gflops: float
    tensors: int
    inference_mib: float
    source: str
    train_mib: float | None = None
    checkpointed_mib: tuple[float, float] | None = None
    adapter_mib: float | None = None
    adapter_checkpointed_mib: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class ImageUse:
    """``batch`` items of ``size`` pixels a side at once on one GPU. ``checkpointing``: blocks are recomputed in the
    backward pass. Raises InvalidInput for what the table does not have."""

    network: ImageNetwork
    method: ImageMethod = ImageMethod.FULL
    batch: int = 1
    size: int | None = None
    checkpointing: bool = False
    optimizer: ImageOptimizer = ImageOptimizer.ADAMW

    def __post_init__(self) -> None:
        whole("batch", self.batch, most=10**6)
        whole("image size", self.side, most=10**5)
        if self.method is ImageMethod.INFERENCE:
            if self.checkpointing:
                raise InvalidInput("checkpointing: inference stores nothing for a backward pass", hint="leave it out")
        elif not any(self.per_item_mib):
            kind = f"{self.method} training {'with' if self.checkpointing else 'without'} checkpointing"
            raise InvalidInput(f"{self.network.name}: activations of {kind} were not counted",
                               hint="try another --method, or with --checkpointing")  # fmt: skip

    @property
    def side(self) -> int:
        """The pixels of one side of an item."""
        return self.network.size if self.size is None else self.size

    @property
    def scale(self) -> float:
        """The item's pixels over those of the table: activations and work follow them (attention is not stored)."""
        return (self.side / self.network.size) ** 2

    @property
    def per_item_mib(self) -> tuple[float, float]:
        """MiB of an item of the table's size at the loss, and while a block is recomputed next to the gradients."""
        network = self.network
        if self.method is ImageMethod.INFERENCE:
            return network.inference_mib, 0.0
        pair = network.adapter_checkpointed_mib if self.method is ImageMethod.LORA else network.checkpointed_mib
        if self.checkpointing:
            return pair or (0.0, 0.0)
        stored = network.adapter_mib if self.method is ImageMethod.LORA else network.train_mib
        return stored or 0.0, 0.0


@dataclass(frozen=True, slots=True)
class ImageMemory:
    """GiB on a GPU. ``copies_gib``: 16-bit copies of FP32 weights. A step has activations and copies at the loss, and
    gradients with what is recomputed at its end: the larger of the two is in ``total_gib``."""

    weights_gib: Gib
    optimizer_gib: Gib
    copies_gib: Gib
    activations_gib: Gib
    gradients_gib: Gib
    recomputed_gib: Gib
    runtime_gib: Gib

    @property
    def total_gib(self) -> float:
        """The peak, driver and libraries included."""
        passing = max(self.copies_gib + self.activations_gib, self.gradients_gib + self.recomputed_gib)
        return self.weights_gib + self.optimizer_gib + passing + self.runtime_gib


@dataclass(frozen=True, slots=True)
class ImageSpeed:
    """On one card: the largest ``batch`` that fits, and items per second at the expected share of the peak;
    ``at_batch``: with the batch of the use, which may be too small to fill the card."""

    batch: int
    items_per_second: float | None
    at_batch: float | None


def image_memory(use: ImageUse, assumptions: Assumptions = DEFAULTS) -> ImageMemory:
    size = use.network.parameters
    trained = 0.0
    if use.method is ImageMethod.FULL:
        trained = size
    elif use.method is ImageMethod.LORA:
        trained = size * fraction("adapter fraction", assumptions.adapter_fraction)
    frozen = size if use.method is not ImageMethod.FULL else 0.0
    moments = assumptions.sgd_bytes if use.optimizer is ImageOptimizer.SGD else assumptions.adamw_fp32_bytes
    at_loss, recomputed = (use.batch * use.scale * mib * _MIB / GIB for mib in use.per_item_mib)
    return ImageMemory(
        weights_gib=(frozen * 2 + trained * 4) / GIB,
        optimizer_gib=trained * moments / GIB,
        copies_gib=trained * 2 / GIB,
        activations_gib=at_loss,
        gradients_gib=trained * assumptions.gradient_bytes / GIB,
        recomputed_gib=recomputed,
        runtime_gib=assumptions.runtime_gib,
    )


def image_flops(use: ImageUse) -> float:
    """FLOPs of one item: the forward pass; in training twice that again, and once more with checkpointing. Where only
    an adapter is trained the gradients of the weights, a third, are left out."""
    passes = 1.0
    if use.method is not ImageMethod.INFERENCE:
        passes = (2.0 if use.method is ImageMethod.LORA else 3.0) + use.checkpointing
    return passes * use.network.forward_gflops * 1e9 * use.scale


def launch_seconds(use: ImageUse, assumptions: Assumptions = DEFAULTS) -> float:
    """The minimum seconds of a step in eager PyTorch, whatever the batch: operations are launched one by one. A forward
    pass takes a fixed time for each tensor of the network; a backward pass takes twice that, also with an adapter,
    whose own operations are added."""
    if use.method is ImageMethod.INFERENCE:
        return use.network.tensors * assumptions.image_launch_s
    return use.network.tensors * assumptions.image_launch_s * (3 + use.checkpointing)


def traffic_seconds(use: ImageUse, card: Accelerator, assumptions: Assumptions = DEFAULTS) -> float:
    """Seconds in which a step moves its parameters, whatever the batch: read by the passes in 16 bits, and for trained
    ones the 16-bit copy (6 bytes each), gradients (6), and what AdamW reads and writes in 32 bits (28; SGD 20)."""
    size = use.network.parameters
    moved = 2.0 * size
    if use.method is not ImageMethod.INFERENCE:
        moved *= 2 + use.checkpointing
    if use.method is ImageMethod.FULL:
        moved += size * (6 + 6 + (20 if use.optimizer is ImageOptimizer.SGD else 28))
    return moved / (card.bandwidth_gb_s * 1e9 * assumptions.decode_efficiency) if card.bandwidth_gb_s else 0.0


def image_speed(use: ImageUse, card: Accelerator, assumptions: Assumptions = DEFAULTS) -> ImageSpeed | None:
    """The speed on a card; None where it does not hold the use with one item."""
    free_gib = usable_gib(card.memory_gib, assumptions.memory_headroom)
    max_batch = _largest_batch(use, free_gib, assumptions)
    if max_batch < 1:
        return None
    peak = peak_tflops(card, Precision.BF16)
    share = assumptions.image_mfu_attention if use.network.attention else assumptions.image_mfu_convolution
    if not peak:
        return ImageSpeed(max_batch, None, None)
    full = peak * TERA * share / image_flops(use)
    step = max(use.batch / full + traffic_seconds(use, card, assumptions), launch_seconds(use, assumptions))
    return ImageSpeed(max_batch, full, use.batch / step)


def _largest_batch(use: ImageUse, free_gib: float, assumptions: Assumptions) -> int:
    """The largest batch whose peak is at most ``free_gib`` GiB: each of the two sides of the peak grows with the
    batch."""
    memory = image_memory(use, assumptions)
    free = free_gib - memory.weights_gib - memory.optimizer_gib - memory.runtime_gib
    limits = []
    for fixed, growing in ((memory.copies_gib, memory.activations_gib), (memory.gradients_gib, memory.recomputed_gib)):
        if free < fixed:
            return 0
        if growing:
            limits.append(int((free - fixed) / (growing / use.batch) + 1e-9))
    return min(limits)


def network_of(name: str) -> ImageNetwork:
    """The network of that name, in any case, with or without hyphens. Raises UnknownName with a suggestion."""
    by_name = {_plain(network.name): network for network in networks()}
    if _plain(name) not in by_name:
        raise UnknownName("network", name, [network.name for network in networks()])
    return by_name[_plain(name)]


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


@cache
def networks() -> tuple[ImageNetwork, ...]:
    """The table, in its order."""
    return tuple(_network(row) for row in load_packaged_toml("broker.economics", "images.toml")["networks"])


def _network(row: dict[str, object]) -> ImageNetwork:
    pairs = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
    return ImageNetwork(**{**row, **pairs})  # type: ignore[arg-type]  # the test of the table reads every key's type


@dataclass(frozen=True, slots=True)
class Encoder:
    """An encoder: ``name``, number of ``parameters``, layers and hidden size."""

    name: str
    parameters: float
    layers: int
    hidden: int


# Devlin et al. 2019 (BERT), table 1; Dosovitskiy et al. 2021 (ViT), table 1; Jiang et al. 2023 (Mistral), table 1.
ENCODERS = (
    Encoder("BERT base", 110e6, 12, 768),
    Encoder("BERT large", 340e6, 24, 1024),
    Encoder("ViT huge", 632e6, 32, 1280),
    Encoder("Mistral 7B", 7.24e9, 32, 4096),
)


@dataclass(frozen=True, slots=True)
class EmbeddingSpeed:
    """On one card: items per second, hours for the whole collection, the batch that fits, and the memory of weights and
    that batch."""

    items_per_second: Estimate
    gpu_hours: Hours
    batch: int
    memory_gib: Gib


def encoder_of(parameters: float) -> tuple[Encoder, str]:
    """The published encoder of the nearest size, scaled to this one, and its origin in words."""
    size = parameter_count(parameters)
    nearest = min(ENCODERS, key=lambda encoder: abs(encoder.parameters - size) / max(encoder.parameters, size))
    scale = (size / nearest.parameters) ** (1 / 3)
    layers, hidden = max(1, round(nearest.layers * scale)), max(1, round(nearest.hidden * scale))
    return Encoder(
        nearest.name, size, layers, hidden
    ), f"layers and hidden size as in {nearest.name}, scaled to the size"


def patches(image_size: int, patch_size: int) -> int:
    """Tokens of a square image: (size ÷ patch)², and one for the class."""
    whole("image size", image_size, most=10**5)
    if whole("patch size", patch_size, most=10**4) > image_size:
        raise InvalidInput(f"patch size: expected at most the image's {image_size}, got {patch_size}")
    return (image_size // patch_size) ** 2 + 1


def tokens_of(assumptions: Assumptions) -> int:
    """Tokens of an item: of a document as stated, of an image its patches. Raises InvalidInput if neither is known, or
    both are."""
    tokens, size = assumptions.tokens_per_item, assumptions.image_size
    if tokens is not None and size is None:
        return tokens
    if size is None or tokens is not None:
        raise InvalidInput(
            "the length of an item is missing", hint="give --assume tokens_per_item=N, or image_size=N for images"
        )
    return patches(size, assumptions.patch_size)


def embedding_speed(
    parameters: float, items: float, card: Accelerator, assumptions: Assumptions, precision: Precision = Precision.FP16
) -> EmbeddingSpeed | None:
    """The speed of one card; None where it does not hold the model with one item, or its peak is unknown. The achieved
    share of the peak is the one that finished runs of inference with a model of this size measured on the card, else
    `Assumptions.prefill_efficiency`."""
    peak = peak_tflops(card, precision)
    if peak is None:
        return None
    encoder, _ = encoder_of(parameters)
    tokens, weights = tokens_of(assumptions), parameters * precision.bytes
    item = 16 * tokens * encoder.hidden * 2.0  # inputs, attention and the widened layer of one item, 16 bits
    free_bytes = usable_gib(card.memory_gib, assumptions.memory_headroom) * GIB - weights
    batch = min(int(free_bytes // item), assumptions.serving_most_sequences)
    if batch < 1:
        return None
    flops = inference_flops(parameters, tokens) + 4 * encoder.layers * encoder.hidden * float(tokens) ** 2
    speed = peak * TERA * assumptions.prompt_share_on(card.name, parameters)[0] / flops
    return EmbeddingSpeed(speed, items / speed / 3600, batch, (weights + batch * item) / GIB)


def vectors_gb(items: float, assumptions: Assumptions) -> float:
    """The vectors without an index, GB."""
    return items * assumptions.dimensions * assumptions.value_bytes / GB


def index_gb(items: float, assumptions: Assumptions, links: int = 32) -> float:
    """An HNSW index in memory, GB: the vectors, and 2 × ``links`` neighbors of 4 bytes each (Malkov and Yashunin
    2018)."""
    return vectors_gb(items, assumptions) + items * 2 * links * 4 / GB
