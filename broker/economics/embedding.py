"""Embedding a collection of documents or images once: GPU-hours, cost, and the size of the vectors.

An encoder reads each item whole and in large batches, so it is bound by compute: 2 FLOPs per parameter and token, and
the scores of attention, which is not causal: 4 × layers × hidden size × tokens² (Devlin et al., BERT, NAACL 2019;
Dosovitskiy et al., ViT, ICLR 2021: an image is (size ÷ patch)² tokens). Amounts USD, memory GiB, vectors GB (10⁹).
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.core.errors import InvalidInput
from broker.core.values.accelerators import Accelerator
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.kinds import Precision
from broker.economics.memory import usable_gib
from broker.economics.throughput import inference_flops, peak_tflops
from broker.economics.units import GB, GIB, TERA, parameter_count, positive, whole


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
class EmbeddingJob:
    """``items`` of ``tokens`` each, embedded into ``dimensions`` values of ``bytes_per_value``. Raises InvalidInput."""

    items: float
    tokens: int
    parameters: float
    dimensions: int
    bytes_per_value: float = 4.0

    def __post_init__(self) -> None:
        positive("items", self.items, most=1e15)
        whole("tokens per item", self.tokens, most=10**6)
        parameter_count(self.parameters)
        whole("dimensions", self.dimensions, most=10**6)
        positive("bytes per value", self.bytes_per_value, most=8)

    @property
    def vectors_gb(self) -> float:
        """The vectors without an index, GB."""
        return self.items * self.dimensions * self.bytes_per_value / GB


@dataclass(frozen=True, slots=True)
class EmbeddingSpeed:
    """On one card: items per second, the batch that fits, and the memory of weights and that batch."""

    items_per_second: float
    gpu_hours: float
    batch: int
    memory_gib: float


def encoder_of(parameters: float) -> tuple[Encoder, str]:
    """The published encoder of the nearest size, scaled to this one, and its origin in words."""
    size = parameter_count(parameters)
    near = min(ENCODERS, key=lambda one: abs(one.parameters - size) / max(one.parameters, size))
    scale = (size / near.parameters) ** (1 / 3)
    layers, hidden = max(1, round(near.layers * scale)), max(1, round(near.hidden * scale))
    return Encoder(near.name, size, layers, hidden), f"layers and hidden size as in {near.name}, scaled to the size"


def patches(image_size: int, patch_size: int) -> int:
    """Tokens of a square image: (size ÷ patch)², and one for the class."""
    whole("image size", image_size, most=10**5)
    if whole("patch size", patch_size, most=10**4) > image_size:
        raise InvalidInput(f"patch size: expected at most the image's {image_size}, got {patch_size}")
    return (image_size // patch_size) ** 2 + 1


def embedding_speed(
    job: EmbeddingJob, card: Accelerator, precision: Precision = Precision.FP16, rules: Assumptions = DEFAULTS
) -> EmbeddingSpeed | None:
    """The speed of one card; None where it does not hold the model with one item, or its peak is unknown. The achieved
    share of the peak is the one that finished runs of inference with a model of this size measured on the card, else
    `Assumptions.prefill_efficiency`."""
    peak = peak_tflops(card, precision)
    if peak is None:
        return None
    encoder, _ = encoder_of(job.parameters)
    weights = job.parameters * precision.bytes
    item = 16 * job.tokens * encoder.hidden * 2.0  # inputs, attention and the widened layer of one item, 16 bits
    room = usable_gib(card.memory_gib, rules.memory_headroom) * GIB - weights
    batch = min(int(room // item), rules.serving_most_sequences)
    if batch < 1:
        return None
    flops = inference_flops(job.parameters, job.tokens) + 4 * encoder.layers * encoder.hidden * float(job.tokens) ** 2
    speed = peak * TERA * rules.prompt_share_on(card.name, job.parameters)[0] / flops
    return EmbeddingSpeed(speed, job.items / speed / 3600, batch, (weights + batch * item) / GIB)


def index_gb(job: EmbeddingJob, links: int = 32) -> float:
    """An HNSW index in memory, GB: the vectors, and 2 × ``links`` neighbours of 4 bytes each (Malkov and Yashunin
    2018)."""
    return job.vectors_gb + job.items * 2 * links * 4 / GB
