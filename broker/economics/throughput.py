"""Throughput: tokens per second, training time, and the limit.

Sources: Kaplan et al. 2020 and Hoffmann et al. 2022 for 6·N·D and 2·N·D; Williams, Waterman and Patterson 2009
(roofline); Chowdhery et al. 2022 (PaLM) for model FLOPS utilization.
"""

from dataclasses import dataclass
from enum import StrEnum

from broker.core.errors import InvalidInput
from broker.core.market.accelerators import Accelerator
from broker.economics.assumptions import DEFAULTS, Assumptions
from broker.economics.families import shape_for
from broker.economics.figures import Estimate, Figure, Hours, Milliseconds, Share
from broker.economics.kinds import Precision
from broker.economics.memory import Subject, usable_gib
from broker.economics.model import ModelShape
from broker.economics.units import GB, GIB, TERA, fraction, not_negative, parameter_count, positive, whole


class Bound(StrEnum):
    """The limit of the speed."""

    MEMORY = "memory"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True)
class DecodeThroughput:
    """Speed of token generation. Speeds are None when the model does not fit (``fits`` False)."""

    tokens_per_second: Estimate | None
    latency_per_token_ms: Milliseconds | None
    bound: Bound | None
    fits: bool
    ridge_point: Figure | None
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingTime:
    """A training run: total ``flops``, ``hours`` on all GPUs together, ``gpu_hours``, at this ``mfu``."""

    flops: Figure
    hours: Hours
    gpu_hours: Hours
    mfu: Share
    tokens_per_second: Estimate

    @property
    def title(self) -> str:
        return f"Training: {self.hours:,.1f} h ({self.hours / 24:,.1f} days)"


def peak_tflops(accelerator: Accelerator, precision: Precision) -> float | None:
    """Peak dense TFLOPS (TOPS) at which the card computes with weights of that precision; None when not known.

    Weights of 4 bits are computed in 16 bits; FP8 and INT8 too, on cards without units for them. FP32 is not in the
    table (mixed-precision training does not use it): None.
    """
    if precision is Precision.FP32:
        return None
    if precision is Precision.FP8:
        return accelerator.tflops_fp8 or accelerator.tflops_16bit
    if precision is Precision.INT8:
        return accelerator.tops_int8 or accelerator.tflops_16bit
    return accelerator.tflops_16bit


def ridge_point(peak_tflops: float, bandwidth_gb_s: float) -> float:
    """FLOP per byte above which a card is bound by compute and below which by memory bandwidth (roofline)."""
    return positive("peak", peak_tflops, "TFLOPS") * TERA / (positive("bandwidth", bandwidth_gb_s, "GB/s") * GB)


def decode_tokens_per_second(
    model_bytes: float, bandwidth_gb_s: float, *, batch: int = 1, efficiency: float, cache_bytes: float = 0
) -> float:
    """Generation limited by memory bandwidth, tokens/s over all ``batch`` sequences.

    Each step reads the weights once and each sequence's KV cache (``cache_bytes`` of one sequence): batch ×
    bandwidth × efficiency ÷ bytes read. ``efficiency``: achieved share of the bandwidth (0.6-0.85 is common).
    """
    positive("model size", model_bytes, "bytes")
    not_negative("KV cache", cache_bytes, "bytes")
    speed = positive("bandwidth", bandwidth_gb_s, "GB/s") * GB * fraction("efficiency", efficiency)
    return whole("batch", batch) * speed / (model_bytes + batch * cache_bytes)


def decode(
    accelerator: Accelerator, model: Subject, gpus: int = 1, assumptions: Assumptions = DEFAULTS
) -> DecodeThroughput:
    """Tokens per second of a model on ``gpus`` cards that hold one copy of it together.

    The smaller of two limits, each at the efficiency of the assumptions: reading the weights, and the KV cache of each
    sequence, per step, and 2·parameters FLOPs per token. Several cards exchange activations in each layer (of the
    probable shape of that size, if none is known). The latency of one token is the time of one step, whatever the
    batch. Raises InvalidInput.
    """
    precision, efficiency = assumptions.precision or Precision.FP16, assumptions.decode_efficiency
    batch, context = assumptions.batch or 1, assumptions.context or 0
    size = model.parameters * precision.bytes if assumptions.weights_gb is None else assumptions.weights_gb * GB
    cache = model.shape.kv_bytes_per_token(2) * context if model.shape else 0.0
    notes = [f"achieves {efficiency:.0%} of the peak bandwidth and compute"]
    if context and model.shape is None:
        notes.append("the KV cache is not counted: assume layers, kv_heads and head_dim, or give a config.json")
    peak = peak_tflops(accelerator, precision)
    ridge = ridge_point(peak, accelerator.bandwidth_gb_s) if peak else None
    resident = (size + batch * cache) / GIB
    if resident > gpus * usable_gib(accelerator.memory_gib, assumptions.memory_headroom):
        return DecodeThroughput(None, None, None, fits=False, ridge_point=ridge, assumptions=tuple(notes[1:]))
    by_memory = decode_tokens_per_second(
        size, gpus * accelerator.bandwidth_gb_s, batch=batch, efficiency=efficiency, cache_bytes=cache
    )
    if peak is None:
        notes.append(f"peak compute in {precision} not known: only the memory limit counts")
        by_compute = float("inf")
    else:
        by_compute = gpus * peak * TERA * efficiency / inference_flops(model.active, 1)
    speed = min(by_memory, by_compute)
    if gpus > 1:
        shape = model.shape if model.shape and not model.kv_only else shape_for(model.active)[0]
        exchange_s = all_reduce_seconds(shape, accelerator, gpus, batch, assumptions)
        speed = batch / (batch / speed + exchange_s)
        link_name = "their link" if accelerator.link_gb_s else "PCIe"
        notes.append(f"tensor parallel: {1000 * exchange_s:.2g} ms of each step are exchange over {link_name}")
    return DecodeThroughput(
        tokens_per_second=speed,
        latency_per_token_ms=1000 * batch / speed,
        bound=Bound.MEMORY if by_memory <= by_compute else Bound.COMPUTE,
        fits=True,
        ridge_point=ridge,
        assumptions=tuple(notes),
    )


def training_flops(parameters: float, tokens: float) -> float:
    """FLOPs of training: 6 · parameters · tokens (2 forward, 4 backward)."""
    return 6 * parameter_count(parameters) * positive("tokens", tokens, most=1e18)


def inference_flops(parameters: float, tokens: float) -> float:
    """FLOPs of inference: 2 · parameters · tokens."""
    return 2 * parameter_count(parameters) * positive("tokens", tokens, most=1e18)


def training_precision(assumptions: Assumptions) -> Precision:
    """The precision in which a training computes: FP8 if the weights are FP8, else 16 bits."""
    return Precision.FP8 if assumptions.precision is Precision.FP8 else Precision.BF16


def training_time(
    accelerator: Accelerator, *, parameters: float, tokens: float, gpus: int, assumptions: Assumptions = DEFAULTS
) -> TrainingTime:
    """Training time: FLOPs ÷ (GPUs × peak × MFU).

    The model FLOPS utilization is the stated one, else as finished runs measured it, else as in good runs (0.35-0.45;
    GPT-4-scale runs report 0.32-0.36). ``parameters``: those active for one token. Raises InvalidInput if the peak is
    unknown.
    """
    precision = training_precision(assumptions)
    peak = peak_tflops(accelerator, precision)
    if peak is None:
        raise InvalidInput(
            f"{accelerator.name}: peak compute in {precision} is not known, so the training time cannot be computed"
        )
    mfu = assumptions.mfu_on(accelerator.name, parameters)[0]
    flops = training_flops(parameters, tokens)
    seconds = flops / (whole("gpus", gpus) * peak * TERA * mfu)
    return TrainingTime(
        flops=flops,
        hours=seconds / 3600,
        gpu_hours=gpus * seconds / 3600,
        mfu=mfu,
        tokens_per_second=tokens / seconds,
    )


def measured_mfu(tokens_per_second: float, parameters: float, gpus: int, peak_tflops: float) -> float:
    """Model FLOPS utilization of a running training: 6 · parameters · tokens/s ÷ (GPUs × peak). Above 1 is an error
    in the figures (sparse instead of dense peak, or parameters that are not active): InvalidInput."""
    peak = whole("gpus", gpus) * positive("peak", peak_tflops, "TFLOPS") * TERA
    mfu = training_flops(parameters, positive("tokens/s", tokens_per_second)) / peak
    if mfu > 1:
        raise InvalidInput(f"that would be {mfu:.0%} of the peak: check tokens/s, active parameters and the dense peak")
    return mfu


def all_reduce_seconds(
    shape: ModelShape, card: Accelerator, gpus: int, tokens: float, assumptions: Assumptions = DEFAULTS
) -> float:
    """Seconds of two all-reduces per layer, of ``tokens`` × hidden values of 16 bits, over ``gpus`` cards: a ring moves
    2·(n−1)/n of the bytes over the link, plus its latency. Cards without a link exchange over PCIe."""
    if gpus == 1:
        return 0.0
    one_way = card.link_gb_s / 2 if card.link_gb_s else assumptions.pcie_gb_s
    latency = assumptions.link_latency_s if card.link_gb_s else assumptions.pcie_latency_s
    moved = 2 * (gpus - 1) / gpus * tokens * shape.hidden * 2
    return 2 * shape.layers * (moved / (one_way * GB) + latency)
