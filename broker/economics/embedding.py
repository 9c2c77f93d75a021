"""Embedding a collection of documents or images once: GPU-hours, cost, and the size of the vectors.

An encoder reads each item whole and in large batches, so it is bound by compute: 2 FLOPs per parameter and token, and
the scores of attention, which is not causal: 4 × layers × hidden size × tokens² (Devlin et al., BERT, NAACL 2019;
Dosovitskiy et al., ViT, ICLR 2021: an image is (size ÷ patch)² tokens). Amounts USD, memory GiB, vectors GB (10⁹).
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.core.errors import InvalidInput
from broker.core.values.accelerators import Accelerator
from broker.economics.assumptions import Assumptions
from broker.economics.figures import Estimate, Gib, Hours
from broker.economics.kinds import Precision
from broker.economics.memory import usable_gib
from broker.economics.throughput import inference_flops, peak_tflops
from broker.economics.units import GB, GIB, TERA, parameter_count, whole


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
    room = usable_gib(card.memory_gib, assumptions.memory_headroom) * GIB - weights
    batch = min(int(room // item), assumptions.serving_most_sequences)
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
