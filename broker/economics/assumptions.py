"""The assumptions of advice: one table of names, defaults, units, ranges and sources.

A policy file replaces defaults (`assumptions:`); `--assume NAME=VALUE` of `gpubroker advise` sets any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import cache, partial
from math import inf, isfinite
from typing import Annotated, Any, get_origin, get_type_hints

from broker.core.errors import InvalidInput, UnknownName
from broker.core.values.units import parse_count, parse_duration
from broker.economics.figures import count_text, usd_text
from broker.economics.kinds import AdaptedLayers, Method, Precision, Recomputation

SAME_SIZE = 0.02
"""Two numbers of parameters count as the same model's if they differ by at most this share."""


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The values that an assumption may have: numbers from ``least`` (or ``above`` it) to ``most``, in ``whole`` ones,
    one or as many as ``count`` separated by commas; or ``choices``; or yes and no (``switch``); or any ``text``."""

    least: float = 0.0
    most: float = inf
    above: bool = False
    whole: bool = False
    count: int = 1
    choices: type[StrEnum] | None = None
    switch: bool = False
    text: bool = False

    def __str__(self) -> str:
        if self.choices:
            return ", ".join(self.choices)
        if self.switch:
            return "yes, no"
        if self.text:
            return "a name"
        low = f"above {_limit(self.least)}" if self.above else _limit(self.least)
        high = _limit(self.most) if self.most < inf else ""
        bounds = f"{low}, up to {high}" if high and self.above else f"{low} to {high}" if high else low
        text = f"{bounds}{' or more' if not high and not self.above else ''}"
        return f"{f'{self.count} numbers, ' if self.count > 1 else ''}{'whole, ' if self.whole else ''}{text}"

    def read(self, given: object) -> Any:
        """The value of a YAML scalar or list, or of text such as ``7B``, ``$1,200``, ``70%``, ``8,15``. Raises
        `ValueError` if it is none of these values."""
        if self.choices:
            return self.choices(str(given).lower())
        if self.switch:
            return {"yes": True, "true": True, "no": False, "false": False}.get(str(given).lower()) or _parse_no(given)
        if self.text:
            return str(given)
        if self.count == 1:
            return self._number(given)
        parts = given.split(",") if isinstance(given, str) else given
        if not isinstance(parts, list | tuple) or len(parts) != self.count:
            raise ValueError
        return tuple(map(self._number, parts))

    def _number(self, raw: object) -> float:
        value = number_of(raw)
        whole = value == int(value)
        if not self.least <= value <= self.most or (self.above and value == self.least) or (self.whole and not whole):
            raise ValueError
        return int(value) if self.whole else value


def _limit(value: float) -> str:
    return f"{value:,g}" if value < 1e5 else count_text(value)


def _parse_no(raw: object) -> bool:
    if str(raw).lower() not in ("no", "false"):
        raise ValueError
    return False


def number_of(raw: object) -> float:
    """``7B``, ``7e9``, ``$12,000``, ``70%``, ``8w`` (in hours) or a number. Raises `ValueError`."""
    if isinstance(raw, str):
        text = raw.strip().removesuffix("USD").strip().removeprefix("$").replace(",", "")
        suffix = text[-1:]
        if suffix == "%":
            return float(text[:-1]) / 100
        if suffix and suffix in "hdw":
            return parse_duration(text) / timedelta(hours=1)
        raw = parse_count(text) if suffix and suffix.upper() in "KMBT" else float(text)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not isfinite(raw):
        raise ValueError
    return raw


def named_numbers(text: str, option: str, form: str, *sizes: int) -> tuple[str, list[float]]:
    """A name and as many numbers as one of the ``sizes``, from text of the ``form`` ``NAME:NUMBER:…``. Raises
    InvalidInput."""
    name, *parts = text.split(":")
    try:
        if len(parts) not in sizes:
            raise ValueError
        return name, [number_of(part) for part in parts]
    except ValueError as error:
        raise InvalidInput(f"expected {form}; got {text[:60]!r}", where=option) from error


@dataclass(frozen=True, slots=True)
class Assumption:
    """A row of the table: what the assumption is about (``subject``), its unit, the values that it may have, and its
    ``source``, which also says what holds where it has no value."""

    subject: str
    unit: str
    range: ValueRange
    source: str


_ANY = ValueRange()
_POSITIVE = ValueRange(above=True)
_SHARE = ValueRange(0, 1)
_PART = ValueRange(0, 1, above=True)
_USD = ValueRange(0, 1e12)
_PRICE = ValueRange(0, 1e12, above=True)
_WHOLE = ValueRange(1, 1e7, whole=True)
_FROM_0 = ValueRange(0, 1e7, whole=True)
_FACTOR = ValueRange(1, 1000)
_TOKENS = ValueRange(0, 1e8)
_COUNT = ValueRange(1e3, 1e14)
_SWITCH = ValueRange(switch=True)
_MULTIPLES = ValueRange(above=True, count=2)
_BY_SIZE = "by the size of the model"

_model = partial(Assumption, "model")
_memory = partial(Assumption, "memory")
_layout = partial(Assumption, "layout")
_speed = partial(Assumption, "speed")
_use = partial(Assumption, "use")
_owning = partial(Assumption, "owning")
_renting = partial(Assumption, "renting")
_run = partial(Assumption, "run")
_tokens = partial(Assumption, "tokens")
_images = partial(Assumption, "images")
_embedding = partial(Assumption, "embedding")
_serving = partial(Assumption, "serving")
_savings = partial(Assumption, "savings")
_energy = partial(Assumption, "energy")
_deployment = partial(Assumption, "deployment")


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The table, and the values in force. A share is from 0 to 1; a year is 8,760 hours."""

    active_parameters: Annotated[
        float | None, _model("parameters", _COUNT, "used for one token; all, or by config.json")
    ] = None
    layers: Annotated[int | None, _model("", ValueRange(1, 10_000, whole=True), _BY_SIZE)] = None
    hidden_size: Annotated[int | None, _model("", ValueRange(1, 1e6, whole=True), _BY_SIZE)] = None
    heads: Annotated[int | None, _model("", ValueRange(1, 1e4, whole=True), _BY_SIZE)] = None
    kv_heads: Annotated[int | None, _model("", ValueRange(1, 1e4, whole=True), _BY_SIZE)] = None
    head_dim: Annotated[int | None, _model("", ValueRange(1, 1e5, whole=True), _BY_SIZE)] = None
    precision: Annotated[
        Precision | None, _model("", ValueRange(choices=Precision), "weights: bf16; qlora int4; speed fp16")
    ] = None
    kv_precision: Annotated[Precision, _model("", ValueRange(choices=Precision), "the KV cache")] = Precision.FP16
    batch: Annotated[
        int | None, _model("sequences", _WHOLE, "at once on a GPU: 1; serving: as many as fit in memory")
    ] = None
    context: Annotated[
        int | None, _model("tokens", ValueRange(0, 1e8, whole=True), "of a sequence: not counted; deploy 4096")
    ] = None
    assumed_context: Annotated[
        int, _model("tokens", ValueRange(1, 1e8, whole=True), "in training if only a batch is given")
    ] = 2048
    tokens: Annotated[
        float | None, _model("tokens", ValueRange(1, 1e18), "of the training; deploy: the usual number")
    ] = None
    pretraining_tokens_per_parameter: Annotated[float, _model("tokens", _POSITIVE, "Hoffmann et al. 2022")] = 20
    fine_tuning_tokens: Annotated[float, _model("tokens", _POSITIVE, "an ordinary fine-tune")] = 50e6

    # Mixed-precision AdamW: FP32 gradients, and in the optimizer an FP32 master copy and two moments
    gradient_bytes: Annotated[float, _memory("bytes/parameter", ValueRange(0, 64), "FP32; 16-bit frameworks 2")] = 4
    adamw_bytes: Annotated[
        float, _memory("bytes/parameter", ValueRange(0, 64), "master copy and two moments in FP32")
    ] = 12
    adamw_fp32_bytes: Annotated[
        float, _memory("bytes/parameter", ValueRange(0, 64), "FP32 weights need no master copy")
    ] = 8
    sgd_bytes: Annotated[float, _memory("bytes/parameter", ValueRange(0, 64), "one moment in FP32")] = 4
    activations_per_weight: Annotated[
        float, _memory("bytes/byte", ValueRange(0, 1000), "only where no context is given")
    ] = 2
    adapter_fraction: Annotated[float, _memory("share of parameters", _PART, "assumed; depends on the rank")] = 0.01
    adapter_input_bytes: Annotated[
        float, _memory("bytes/value", ValueRange(0, 64), "PEFT casts to FP32; 5 with dropout")
    ] = 4
    adapted: Annotated[
        AdaptedLayers, _memory("", ValueRange(choices=AdaptedLayers), "linear layers with an adapter")
    ] = AdaptedLayers.ALL
    logit_bytes: Annotated[float, _memory("bytes/logit", ValueRange(0, 64), "eager PyTorch; a fused loss 2")] = 14
    runtime_gib: Annotated[float, _memory("GiB", ValueRange(0, 100), "driver context and workspaces, in training")] = (
        1.0
    )
    unquantized_bytes: Annotated[
        float, _memory("bytes/parameter", ValueRange(0, 64), "QLoRA's embeddings, FP32 in PEFT")
    ] = 4
    quantized_block_bytes: Annotated[
        float, _memory("bytes/parameter", ValueRange(0, 64), "NF4, double quantization")
    ] = 0.016
    recomputation: Annotated[
        Recomputation | None,
        _memory("", ValueRange(choices=Recomputation), "activations: selective; full for qlora and deploy"),
    ] = None
    gradients_freed: Annotated[bool, _memory("", _SWITCH, "one GPU, no accumulation: before the next forward pass")] = (
        False
    )
    memory_headroom: Annotated[float, _memory("share", ValueRange(0, 0.9), "kept free for the allocator")] = 0.10
    reference_card_usable_gib: Annotated[
        float, _memory("GiB", _POSITIVE, "of an 80 GB card, the unit of quoted bounds")
    ] = 75

    gpus: Annotated[
        int | None, _layout("GPUs", _WHOLE, "size, serve, deploy: as few as hold it; run, hardware 1; cluster 8")
    ] = None
    zero: Annotated[
        int | None, _layout("stage", ValueRange(0, 3, whole=True), "the smallest layout that holds it; 3 is FSDP")
    ] = None
    tensor_degree: Annotated[int | None, _layout("GPUs", _WHOLE, "the smallest layout that holds it")] = None
    pipeline_degree: Annotated[int | None, _layout("GPUs", _WHOLE, "the smallest layout that holds it")] = None
    offload: Annotated[bool, _layout("", _SWITCH, "states in the host's memory; needs zero=3")] = False
    nvlink: Annotated[bool | None, _layout("", _SWITCH, "as in the offers")] = None
    gpus_per_node: Annotated[int, _layout("GPUs", ValueRange(1, 1024, whole=True), "of the machines of all clouds")] = 8
    consumer_cards_per_machine: Annotated[int, _layout("GPUs", _WHOLE, "over which FSDP spreads a QLoRA")] = 4
    consumer_heat_loss: Annotated[float, _layout("share of speed", _SHARE, "15-25 % in a dense rack")] = 0.20
    pcie_allreduce_slowdown: Annotated[float, _layout("times", _FACTOR, "10-20 times slower than NVLink")] = 15

    gpu_hours: Annotated[float | None, _speed("hours", _POSITIVE, "work of one GPU: from model and tokens")] = None
    deadline_hours: Annotated[float | None, _speed("hours", _POSITIVE, "none")] = None
    mfu: Annotated[float, _speed("share of peak", _PART, "good runs 0.35-0.45; your finished runs come first")] = 0.40
    decode_efficiency: Annotated[float, _speed("share of peak", _PART, "0.6-0.85 of the bandwidth is common")] = 0.7
    weights_gb: Annotated[
        float | None, _speed("GB", _POSITIVE, "measured size of the weights: parameters × precision")
    ] = None
    serial_share: Annotated[float, _speed("share of a step", _SHARE, "does not divide among GPUs; measure yours")] = (
        0.0005
    )
    pair_cost: Annotated[float, _speed("share of a step", _SHARE, "communication per pair of GPUs; measure yours")] = (
        2e-7
    )
    least_marginal_efficiency: Annotated[float, _speed("GPUs", _SHARE, "one more GPU is worth that many")] = 0.5
    fixed_usd_per_hour: Annotated[float, _speed("USD/h", _USD, "storage, head node, people: at any size")] = 0
    image_mfu_attention: Annotated[float, _speed("share of peak", _PART, "networks on images, our measurements")] = 0.23
    image_mfu_convolution: Annotated[float, _speed("share of peak", _PART, "likewise")] = 0.12
    image_launch_s: Annotated[float, _speed("s/tensor", _ANY, "launch of a pass, SDXL with 2 images")] = 35e-6

    years: Annotated[float, _use("years", ValueRange(0, 50, above=True), "time of need, and life of a machine")] = 3
    hours_per_day: Annotated[
        float | None, _use("hours", ValueRange(0, 24, above=True), "24 × utilization; deploy 24")
    ] = None
    utilization: Annotated[float, _use("share of hours", _PART, "hours in use of all hours")] = 0.7
    peak_to_baseline: Annotated[float, _use("times", _FACTOR, "peak over steady demand")] = 1.0
    burst_hours: Annotated[
        float, _use("hours/day", ValueRange(0, 24, above=True), "with demand above its steady part")
    ] = 8
    discount_rate: Annotated[float, _use("per year", _SHARE, "of present values")] = 0
    rent_below_hours_per_day: Annotated[float, _use("hours", ValueRange(0, 24), "often quoted")] = 4
    buy_above_hours_per_day: Annotated[float, _use("hours", ValueRange(0, 24), "often quoted")] = 6
    buy_above_utilization: Annotated[float, _use("share of hours", _SHARE, "often quoted")] = 0.40
    bursty_above_peak_to_baseline: Annotated[float, _use("times", _FACTOR, "from then on a hybrid")] = 1.5
    buy_for_months: Annotated[float, _use("months", _ANY, "often quoted")] = 18

    purchase_usd: Annotated[
        float | None, _owning("USD", _PRICE, "of a machine: street prices of its GPUs, with the server")
    ] = None
    server_per_card_price: Annotated[float, _owning("times", _FACTOR, "price of a server over its cards'")] = 1.4
    server_watts_per_card_watt: Annotated[float, _owning("times", _FACTOR, "a DGX H100: 1.8")] = 1.6
    watts: Annotated[
        float | None, _owning("W", ValueRange(0, 1e8), "of the machine or cluster in use: by its GPUs' boards")
    ] = None
    kwh_usd: Annotated[float, _owning("USD/kWh", ValueRange(0, 100), "assumed")] = 0.12
    pue: Annotated[float, _owning("times", ValueRange(1, 5), "industry's average (Uptime Institute 2023)")] = 1.58
    staff_usd_per_gpu_hour: Annotated[float, _owning("USD/GPU-hour", _USD, "all hours; 2-7 is common")] = 0
    facility_usd: Annotated[float, _owning("USD", _USD, "power distribution, cooling, racks, network: once")] = 0
    resale_share: Annotated[float, _owning("share of price", _SHARE, "at the end")] = 0.15
    lead_time_weeks: Annotated[
        float, _owning("weeks", ValueRange(0, 520), "delivery in a tight market; rented meanwhile")
    ] = 20
    obsolete_after_years: Annotated[float | None, _owning("years", _ANY, "not within the time")] = None
    new_generation_speedup: Annotated[float, _owning("times", _FACTOR, "of the card that makes one obsolete")] = 3

    rent_usd_per_hour: Annotated[float | None, _renting("USD/h", _PRICE, "of a machine on demand: the market's")] = None
    reserved_usd_per_hour: Annotated[float | None, _renting("USD/h", _PRICE, "of a reserved machine: the market's")] = (
        None
    )
    spot_usd_per_hour: Annotated[float | None, _renting("USD/h", _PRICE, "of a machine on spot: the market's")] = None
    gpus_per_machine: Annotated[
        int | None, _renting("GPUs", ValueRange(1, 1024, whole=True), "all GPUs, up to gpus_per_node")
    ] = None
    term_years: Annotated[
        float, _renting("years", ValueRange(0, 10, above=True), "of a reservation, where its price states none")
    ] = 1
    price_decline: Annotated[float, _renting("per year", ValueRange(0, 0.99), "of rents")] = 0
    spot_overhead: Annotated[
        float,
        _renting("share of hours", ValueRange(0, 10), "lost to rework and waiting; measured runs take precedence"),
    ] = 0.10
    hours_lost_per_interruption: Annotated[
        float, _renting("hours", _ANY, "half a checkpoint interval, and a new machine")
    ] = 0.5
    start_up_hours: Annotated[float, _renting("hours", _ANY, "paid before the first step, as in plans")] = 5 / 60

    failed_share: Annotated[float, _run("share of GPU-hours", ValueRange(0, 0.95), "failed or repeated")] = 0
    experiments: Annotated[float, _run("runs", _ANY, "before the run, in multiples of it")] = 0
    preprocessing_share: Annotated[float, _run("share of training", _SHARE, "10-30 % is common")] = 0.20
    storage_gb: Annotated[float, _run("GB", _ANY, "checkpoints and artifacts")] = 0
    storage_usd_per_gb_month: Annotated[float, _run("USD/GB-month", _ANY, "object storage")] = 0.023
    storage_months: Annotated[float, _run("months", _ANY, "checkpoints and artifacts")] = 1
    quality: Annotated[float | None, _run("points", _ANY, "reached, for the cost of a point")] = None
    baseline_quality: Annotated[float, _run("points", _ANY, "before the run")] = 0

    api_usd: Annotated[float | None, _tokens("USD/million tokens", _PRICE, "an API to compare with")] = None
    tokens_per_prediction: Annotated[float | None, _tokens("tokens", _POSITIVE, "for the cost of one prediction")] = (
        None
    )

    image_size: Annotated[int | None, _images("pixels", ValueRange(1, 1e5, whole=True), "of a side: as published")] = (
        None
    )
    checkpointing: Annotated[bool, _images("", _SWITCH, "activations are recomputed in the backward pass")] = False
    items: Annotated[float | None, _images("items", ValueRange(0, 1e15, above=True), "images or documents in all")] = (
        None
    )

    tokens_per_item: Annotated[
        int | None, _embedding("tokens", ValueRange(1, 1e6, whole=True), "of a document; or image_size")
    ] = None
    patch_size: Annotated[
        int, _embedding("pixels", ValueRange(1, 1e4, whole=True), "of a side of an image's patch")
    ] = 14
    dimensions: Annotated[int, _embedding("values", ValueRange(1, 1e6, whole=True), "of a vector")] = 1024
    value_bytes: Annotated[
        float, _embedding("bytes", ValueRange(0, 8, above=True), "of a value: 4, 2, or 1 if quantized")
    ] = 4

    requests_per_minute: Annotated[float | None, _serving("1/min", _POSITIVE, "at the peak")] = None
    tokens_per_request: Annotated[float, _serving("tokens", _POSITIVE, "generated")] = 200
    prompt_tokens: Annotated[float, _serving("tokens", _TOKENS, "of a request, besides those generated")] = 500
    prefix_cache: Annotated[float, _serving("share of prompts", _SHARE, "found in a prefix cache")] = 0
    p95_s: Annotated[float | None, _serving("s", _POSITIVE, "95th percentile of the latency: not limited")] = None
    serving_headroom: Annotated[float, _serving("share", ValueRange(0, 10), "spare capacity")] = 0.20
    replica_tokens_per_second: Annotated[
        float | None, _serving("tokens/s", _POSITIVE, "measured: estimated per GPU")
    ] = None
    gpus_per_replica: Annotated[int, _serving("GPUs", _WHOLE, "with a measured speed")] = 1
    least_replicas: Annotated[int, _serving("replicas", _WHOLE, "for availability")] = 1
    spare_machines: Annotated[int, _serving("machines", ValueRange(0, 1000, whole=True), "for failures; 1 is N+1")] = 0
    idle_share: Annotated[float | None, _serving("share of hours", _SHARE, "without requests: no scale to zero")] = None
    cold_starts_per_day: Annotated[float, _serving("1/day", ValueRange(0, 86_400), "of scale to zero")] = 10
    cold_start_s: Annotated[float, _serving("s", _POSITIVE, "30-120 s to load a model")] = 60
    warm_replicas: Annotated[int, _serving("replicas", _FROM_0, "never scaled down")] = 0
    serving_most_sequences: Annotated[int, _serving("sequences", _WHOLE, "that an engine schedules at once")] = 256
    prefill_chunk_tokens: Annotated[int, _serving("tokens", _WHOLE, "of prompts read in one step")] = 8192
    prefill_efficiency: Annotated[float, _serving("share of peak", _PART, "encoders, and a step's batch")] = 0.5
    # Our own measurements on an H100 (tests/gpu/measure.py): large matrices 0.73-0.78 of the peak in BF16 and 0.61-0.78
    # in FP8, attention 0.5-0.68 from 4,096 tokens on, the KV cache at 0.74-0.9 of the bandwidth, 16 kernels of a layer
    matrix_efficiency: Annotated[float, _serving("share of peak", _PART, "measured on an H100: 0.61-0.78")] = 0.7
    attention_efficiency: Annotated[float, _serving("share of peak", _PART, "measured on an H100: 0.5-0.68")] = 0.5
    cache_efficiency: Annotated[float, _serving("share of bandwidth", _PART, "measured on an H100: 0.74-0.9")] = 0.8
    layer_step_s: Annotated[float, _serving("s", _ANY, "per layer and step: starts and ends of kernels")] = 5e-5
    eager_layer_s: Annotated[float, _serving("s", _ANY, "per layer and pass, operations launched one by one")] = 3.5e-4
    serving_step_s: Annotated[float, _serving("s", _ANY, "per step: scheduling and sampling")] = 0.0005
    serving_pace: Annotated[
        float, _serving("times", _POSITIVE, "measured speed of your replicas over the estimate")
    ] = 1.0
    pcie_gb_s: Annotated[float, _serving("GB/s", _POSITIVE, "one way, 16 lanes of generation 4 as achieved")] = 25
    link_latency_s: Annotated[float, _serving("s", _ANY, "per all-reduce over NVLink")] = 1e-5
    pcie_latency_s: Annotated[float, _serving("s", _ANY, "per all-reduce over PCIe")] = 3e-5

    gpu_utilization: Annotated[float | None, _savings("share", _PART, "of hours in use: 0.5; hardware: the target")] = (
        None
    )
    training_utilization: Annotated[float, _savings("share", _PART, "the target")] = 0.70
    inference_utilization: Annotated[float, _savings("share", _PART, "the target")] = 0.50
    steady_share: Annotated[float, _savings("share of demand", _SHARE, "steady for a year or more")] = 0
    spare_hours_share: Annotated[float, _savings("share of hours", _SHARE, "paid without work")] = 0
    idle_hours_below: Annotated[float, _savings("share of hours", _SHARE, "the target for paid hours without work")] = (
        0.05
    )
    small_model: Annotated[float, _savings("parameters", _ANY, "up to which quantization brings little")] = 3e9
    pool_below_utilization: Annotated[float, _savings("share", _SHARE, "pool small jobs")] = 0.50
    load_data_below_utilization: Annotated[float, _savings("share", _SHARE, "GPUs wait for data")] = 0.70
    reserve_above_steady_share: Annotated[float, _savings("share of demand", _SHARE, "worth a reservation")] = 0.30
    scale_above_spare_hours: Annotated[float, _savings("share of hours", _SHARE, "worth scaling to zero")] = 0.05

    location: Annotated[str, _energy("", ValueRange(text=True), "provider/region, or a country such as DE")] = "world"
    gpu_watts: Annotated[
        float | None, _energy("W", ValueRange(0, 1e5, above=True), "measured average: by utilization and board")
    ] = None
    idle_watts: Annotated[
        float | None, _energy("W", ValueRange(0, 1e5), "of an idle GPU: a share of its board's power")
    ] = None
    idle_power_share: Annotated[
        float, _energy("share of board power", _SHARE, "assumed; a measured H100 draws 10 %")
    ] = 0.15
    grid_of_days: Annotated[tuple[float, float], _energy("times", _MULTIPLES, "grid.toml; of a year's average")] = (
        0.5,
        2.0,
    )
    grid_of_months: Annotated[tuple[float, float], _energy("times", _MULTIPLES, "grid.toml; of a year's average")] = (
        0.8,
        1.25,
    )
    grid_days_below_hours: Annotated[float, _energy("hours", _ANY, "shorter runs see days, longer ones months")] = 730
    clean_grid_g_per_kwh: Annotated[float, _energy("g CO2e/kWh", _POSITIVE, "the scorecard's target")] = 100
    model_parameters: Annotated[float | None, _energy("parameters", _COUNT, "for the scorecard: not scored")] = None
    smallest_parameters: Annotated[float | None, _energy("parameters", _COUNT, "that suffice: the model's")] = None
    units_of_work: Annotated[float, _energy("units", _POSITIVE, "such as runs or 1,000 requests")] = 1

    method: Annotated[Method | None, _deployment("", ValueRange(choices=Method), "the cheapest suitable one")] = None
    deadline_margin: Annotated[float, _deployment("share of time", ValueRange(0, 0.9), "safety margin")] = 0.10
    spot_most_machines: Annotated[
        int, _deployment("machines", _FROM_0, "a gang is interrupted as often as all together")
    ] = 1
    on_demand_most_machines: Annotated[
        int, _deployment("machines", _FROM_0, "usually available without a reservation")
    ] = 4
    checkpoint_share: Annotated[float, _deployment("share of time", _PART, "for writing checkpoints, at most")] = 0.05
    checkpoint_bytes_per_s: Annotated[float, _deployment("bytes/s", _POSITIVE, "write rate, as in plans")] = 500e6
    max_cost_margin: Annotated[float, _deployment("share of cost", _ANY, "of a job's limit over its expected cost")] = (
        0.25
    )
    least_maturity: Annotated[
        int, _deployment("of 5", ValueRange(0, 5, whole=True), "software that needs no porting work")
    ] = 4

    # By finished runs: accelerator, model FLOPS utilization, number of runs
    measured_mfu: tuple[tuple[str, float, int], ...] = ()
    measured_models: tuple[tuple[str, float, bool, float, int], ...] = ()  # with the size, and whether it was trained
    # Of inference: accelerator, the model's size, tokens/s of a GPU, the share of them that was generated, runs
    measured_served: tuple[tuple[str, float, float, float | None, int], ...] = ()
    measured_interruptions: tuple[tuple[str, float, int], ...] = ()  # likewise, of 1,000 hours of a spot GPU
    measured_price: tuple[tuple[str, float, int], ...] = ()  # likewise, USD of a GPU-hour as it was charged
    stated: frozenset[str] = frozenset()  # names that the user set for this answer: they come before measured runs

    def mfu_on(self, accelerator: str, parameters: float | None = None) -> tuple[float, int]:
        """The MFU to expect there, and the number of finished runs that measured it; 0: assumed. Runs that trained a
        model of this size come before those of others."""
        if "mfu" in self.stated:
            return self.mfu, 0
        if match := self._of_size(accelerator, parameters, trained=True):
            return match
        for name, mfu, runs in self.measured_mfu:
            if name == accelerator:
                return mfu, runs
        return self.mfu, 0

    def prompt_share_on(self, accelerator: str, parameters: float) -> tuple[float, int]:
        """The share of the peak to expect of inference that reads only, and the number of finished runs of a model of
        this size that measured it; 0: assumed."""
        return self._of_size(accelerator, parameters, trained=False) or (self.prefill_efficiency, 0)

    def served_on(self, accelerator: str, parameters: float) -> tuple[float, float | None, int] | None:
        """Of finished runs of inference with a model of this size there: tokens/s of a GPU, read and generated ones
        together; the share that was generated, None if no run said; the number of runs. None without any."""
        for name, size, speed, generated, runs in self.measured_served:
            if name == accelerator and abs(size / parameters - 1) <= SAME_SIZE:
                return speed, generated, runs
        return None

    def _of_size(self, accelerator: str, parameters: float | None, *, trained: bool) -> tuple[float, int] | None:
        for name, size, trains, share, runs in self.measured_models:
            if name == accelerator and trains is trained and parameters and abs(size / parameters - 1) <= SAME_SIZE:
                return share, runs
        return None

    def _origin(self, name: str, measured: str) -> str:
        return measured or ("as stated" if name in self.stated else "assumed")

    def mfu_text(self, accelerator: str, parameters: float | None = None) -> str:
        """``MFU of 31 %, measured by 12 runs on H100``."""
        mfu, runs = self.mfu_on(accelerator, parameters)
        qualifier = " of a model of this size" if self._of_size(accelerator, parameters, trained=True) else ""
        measured = f"measured by {runs} run{'s' * (runs > 1)}{qualifier} on {accelerator}" if runs else ""
        return f"MFU of {mfu:.0%}, {self._origin('mfu', measured)}"

    def spot_overhead_on(self, accelerator: str, gpus: int = 1) -> tuple[float, int]:
        """The share of hours that is redone or waited for on that many spot GPUs at once, and the number of finished
        runs that measured their interruptions; 0: assumed."""
        for name, per_1000_hours, runs in self.measured_interruptions:
            if name == accelerator and "spot_overhead" not in self.stated:
                return per_1000_hours / 1000 * gpus * self.hours_lost_per_interruption, runs
        return self.spot_overhead, 0

    def spot_text(self, accelerator: str, gpus: int = 1) -> str:
        """``spot: 3 % of hours redone or waited for, by the interruptions of 12 runs on H100``."""
        share, runs = self.spot_overhead_on(accelerator, gpus)
        measured = f"by the interruptions of {runs} run{'s' * (runs > 1)} on {accelerator}" if runs else ""
        return f"spot: {share:.1%} of hours redone or waited for, {self._origin('spot_overhead', measured)}"

    def price_text(self, accelerator: str) -> str:
        """``12 finished runs on H100 were charged $2.31 a GPU-hour``; empty where none was."""
        for name, usd, runs in self.measured_price:
            if name == accelerator:
                subject = f"{runs} finished runs on {name} were" if runs > 1 else f"a finished run on {name} was"
                return f"{subject} charged {usd_text(usd)} a GPU-hour"
        return ""


DEFAULTS = Assumptions()


@cache
def table() -> Mapping[str, Assumption]:
    """The rows by name."""
    hints = get_type_hints(Assumptions, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}


def override(values: Mapping[str, object], where: str = "", base: Assumptions = DEFAULTS) -> Assumptions:
    """``base`` with some replaced by name, such as ``{"memory_headroom": 0.15}``. Raises UnknownName, with the nearest
    names, and InvalidInput for a value that is out of range."""
    rows, overrides = table(), {}
    for name, value in values.items():
        if name not in rows:
            raise UnknownName("assumption", name, rows, where=where)
        try:
            overrides[name] = rows[name].range.read(value)
        except (ValueError, OverflowError) as error:
            raise InvalidInput(f"{name}: expected {rows[name].range}; got {str(value)[:40]!r}", where=where) from error
    return replace(base, **overrides)


def non_defaults(assumptions: Assumptions) -> dict[str, Any]:
    """Values that differ from the defaults, by name."""
    values = {name: getattr(assumptions, name) for name in table()}
    return {name: value for name, value in values.items() if value != getattr(DEFAULTS, name)}
