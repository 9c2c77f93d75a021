# ruff: noqa: RUF009 - the calls return dataclass fields
"""The assumptions of advice: one table of names, defaults, units, ranges and sources.

A policy file replaces defaults (`assumptions:`); `--assume NAME=VALUE` of `gpubroker advise` sets any of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from enum import StrEnum
from functools import cache, partial
from math import inf, isfinite
from typing import Any

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

    @property
    def expected(self) -> str:
        """For errors: such as "a number above 0, up to 1"."""
        if self.choices or self.switch or self.text or self.count > 1:
            return str(self)
        bounds = str(self).removeprefix("whole, ")
        return f"a {'whole ' if self.whole else ''}number{'' if self.above else ','} {bounds}"

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


def _row(subject: str, default: object, unit: str, range: ValueRange, source: str) -> Any:
    return field(default=default, metadata={"row": Assumption(subject, unit, range, source)})


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

_model = partial(_row, "model")
_memory = partial(_row, "memory")
_layout = partial(_row, "layout")
_speed = partial(_row, "speed")
_use = partial(_row, "use")
_owning = partial(_row, "owning")
_renting = partial(_row, "renting")
_run = partial(_row, "run")
_tokens = partial(_row, "tokens")
_images = partial(_row, "images")
_embedding = partial(_row, "embedding")
_serving = partial(_row, "serving")
_savings = partial(_row, "savings")
_energy = partial(_row, "energy")
_deployment = partial(_row, "deployment")


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The table, and the values in force. A share is from 0 to 1; a year is 8,760 hours."""

    active_parameters: float | None = _model(None, "parameters", _COUNT, "used for one token; all, or by config.json")
    layers: int | None = _model(None, "", ValueRange(1, 10_000, whole=True), _BY_SIZE)
    hidden_size: int | None = _model(None, "", ValueRange(1, 1e6, whole=True), _BY_SIZE)
    heads: int | None = _model(None, "", ValueRange(1, 1e4, whole=True), _BY_SIZE)
    kv_heads: int | None = _model(None, "", ValueRange(1, 1e4, whole=True), _BY_SIZE)
    head_dim: int | None = _model(None, "", ValueRange(1, 1e5, whole=True), _BY_SIZE)
    precision: Precision | None = _model(
        None, "", ValueRange(choices=Precision), "weights: bf16; qlora int4; speed fp16"
    )
    kv_precision: Precision = _model(Precision.FP16, "", ValueRange(choices=Precision), "the KV cache")
    batch: int | None = _model(None, "sequences", _WHOLE, "at once on a GPU: 1; serving: as many as fit in memory")
    context: int | None = _model(
        None, "tokens", ValueRange(0, 1e8, whole=True), "of a sequence: not counted; deploy 4096"
    )
    assumed_context: int = _model(
        2048, "tokens", ValueRange(1, 1e8, whole=True), "in training if only a batch is given"
    )
    tokens: float | None = _model(None, "tokens", ValueRange(1, 1e18), "of the training; deploy: the usual number")
    pretraining_tokens_per_parameter: float = _model(20, "tokens", _POSITIVE, "Hoffmann et al. 2022")
    fine_tuning_tokens: float = _model(50e6, "tokens", _POSITIVE, "an ordinary fine-tune")

    # Mixed-precision AdamW: FP32 gradients, and in the optimizer an FP32 master copy and two moments
    gradient_bytes: float = _memory(4, "bytes/parameter", ValueRange(0, 64), "FP32; 16-bit frameworks 2")
    adamw_bytes: float = _memory(12, "bytes/parameter", ValueRange(0, 64), "master copy and two moments in FP32")
    adamw_fp32_bytes: float = _memory(8, "bytes/parameter", ValueRange(0, 64), "FP32 weights need no master copy")
    sgd_bytes: float = _memory(4, "bytes/parameter", ValueRange(0, 64), "one moment in FP32")
    activations_per_weight: float = _memory(2, "bytes/byte", ValueRange(0, 1000), "only where no context is given")
    adapter_fraction: float = _memory(0.01, "share of parameters", _PART, "assumed; depends on the rank")
    adapter_input_bytes: float = _memory(4, "bytes/value", ValueRange(0, 64), "PEFT casts to FP32; 5 with dropout")
    adapted: AdaptedLayers = _memory(
        AdaptedLayers.ALL, "", ValueRange(choices=AdaptedLayers), "linear layers with an adapter"
    )
    logit_bytes: float = _memory(14, "bytes/logit", ValueRange(0, 64), "eager PyTorch; a fused loss 2")
    runtime_gib: float = _memory(1.0, "GiB", ValueRange(0, 100), "driver context and workspaces, in training")
    unquantized_bytes: float = _memory(4, "bytes/parameter", ValueRange(0, 64), "QLoRA's embeddings, FP32 in PEFT")
    quantized_block_bytes: float = _memory(0.016, "bytes/parameter", ValueRange(0, 64), "NF4, double quantization")
    recomputation: Recomputation | None = _memory(
        None, "", ValueRange(choices=Recomputation), "activations: selective; full for qlora and deploy"
    )
    gradients_freed: bool = _memory(False, "", _SWITCH, "one GPU, no accumulation: before the next forward pass")
    memory_headroom: float = _memory(0.10, "share", ValueRange(0, 0.9), "kept free for the allocator")
    reference_card_usable_gib: float = _memory(75, "GiB", _POSITIVE, "of an 80 GB card, the unit of quoted bounds")

    gpus: int | None = _layout(
        None, "GPUs", _WHOLE, "size, serve, deploy: as few as hold it; run, hardware 1; cluster 8"
    )
    zero: int | None = _layout(
        None, "stage", ValueRange(0, 3, whole=True), "the smallest layout that holds it; 3 is FSDP"
    )
    tensor_degree: int | None = _layout(None, "GPUs", _WHOLE, "the smallest layout that holds it")
    pipeline_degree: int | None = _layout(None, "GPUs", _WHOLE, "the smallest layout that holds it")
    offload: bool = _layout(False, "", _SWITCH, "states in the host's memory; needs zero=3")
    nvlink: bool | None = _layout(None, "", _SWITCH, "as in the offers")
    gpus_per_node: int = _layout(8, "GPUs", ValueRange(1, 1024, whole=True), "of the machines of all clouds")
    consumer_cards_per_machine: int = _layout(4, "GPUs", _WHOLE, "over which FSDP spreads a QLoRA")
    consumer_heat_loss: float = _layout(0.20, "share of speed", _SHARE, "15-25 % in a dense rack")
    pcie_allreduce_slowdown: float = _layout(15, "times", _FACTOR, "10-20 times slower than NVLink")

    gpu_hours: float | None = _speed(None, "hours", _POSITIVE, "work of one GPU: from model and tokens")
    deadline_hours: float | None = _speed(None, "hours", _POSITIVE, "none")
    mfu: float = _speed(0.40, "share of peak", _PART, "good runs 0.35-0.45; your finished runs come first")
    decode_efficiency: float = _speed(0.7, "share of peak", _PART, "0.6-0.85 of the bandwidth is common")
    weights_gb: float | None = _speed(None, "GB", _POSITIVE, "measured size of the weights: parameters × precision")
    serial_share: float = _speed(0.0005, "share of a step", _SHARE, "does not divide among GPUs; measure yours")
    pair_cost: float = _speed(2e-7, "share of a step", _SHARE, "communication per pair of GPUs; measure yours")
    least_marginal_efficiency: float = _speed(0.5, "GPUs", _SHARE, "one more GPU is worth that many")
    fixed_usd_per_hour: float = _speed(0, "USD/h", _USD, "storage, head node, people: at any size")
    image_mfu_attention: float = _speed(0.23, "share of peak", _PART, "networks on images, our measurements")
    image_mfu_convolution: float = _speed(0.12, "share of peak", _PART, "likewise")
    image_launch_s: float = _speed(35e-6, "s/tensor", _ANY, "launch of a pass, SDXL with 2 images")

    years: float = _use(3, "years", ValueRange(0, 50, above=True), "time of need, and life of a machine")
    hours_per_day: float | None = _use(None, "hours", ValueRange(0, 24, above=True), "24 × utilization; deploy 24")
    utilization: float = _use(0.7, "share of hours", _PART, "hours in use of all hours")
    peak_to_baseline: float = _use(1.0, "times", _FACTOR, "peak over steady demand")
    burst_hours: float = _use(8, "hours/day", ValueRange(0, 24, above=True), "with demand above its steady part")
    discount_rate: float = _use(0, "per year", _SHARE, "of present values")
    rent_below_hours_per_day: float = _use(4, "hours", ValueRange(0, 24), "often quoted")
    buy_above_hours_per_day: float = _use(6, "hours", ValueRange(0, 24), "often quoted")
    buy_above_utilization: float = _use(0.40, "share of hours", _SHARE, "often quoted")
    bursty_above_peak_to_baseline: float = _use(1.5, "times", _FACTOR, "from then on a hybrid")
    buy_for_months: float = _use(18, "months", _ANY, "often quoted")

    purchase_usd: float | None = _owning(
        None, "USD", _PRICE, "of a machine: street prices of its GPUs, with the server"
    )
    server_per_card_price: float = _owning(1.4, "times", _FACTOR, "price of a server over its cards'")
    server_watts_per_card_watt: float = _owning(1.6, "times", _FACTOR, "a DGX H100: 1.8")
    watts: float | None = _owning(
        None, "W", ValueRange(0, 1e8), "of the machine or cluster in use: GPUs' boards; cluster 1,275 a GPU"
    )
    kwh_usd: float = _owning(0.12, "USD/kWh", ValueRange(0, 100), "assumed")
    pue: float = _owning(1.58, "times", ValueRange(1, 5), "industry's average (Uptime Institute 2023)")
    staff_usd_per_gpu_hour: float | None = _owning(
        None, "USD/GPU-hour", _USD, "all hours; 2-7 is common: cluster, buy-or-rent --gpu 4.5, else 0"
    )
    facility_usd: float | None = _owning(
        None,
        "USD",
        _USD,
        "power distribution, cooling, racks, network, once: cluster, buy-or-rent --gpu 10,937.50 a GPU, else 0",
    )
    resale_share: float = _owning(0.15, "share of price", _SHARE, "at the end")
    lead_time_weeks: float = _owning(20, "weeks", ValueRange(0, 520), "delivery in a tight market; rented meanwhile")
    obsolete_after_years: float | None = _owning(None, "years", _ANY, "not within the time")
    new_generation_speedup: float = _owning(3, "times", _FACTOR, "of the card that makes one obsolete")

    rent_usd_per_hour: float | None = _renting(None, "USD/h", _PRICE, "of a machine on demand: the market's")
    reserved_usd_per_hour: float | None = _renting(None, "USD/h", _PRICE, "of a reserved machine: the market's")
    spot_usd_per_hour: float | None = _renting(None, "USD/h", _PRICE, "of a machine on spot: the market's")
    gpus_per_machine: int | None = _renting(
        None, "GPUs", ValueRange(1, 1024, whole=True), "all GPUs, up to gpus_per_node"
    )
    term_years: float = _renting(
        1, "years", ValueRange(0, 10, above=True), "of a reservation, where its price states none"
    )
    price_decline: float = _renting(0, "per year", ValueRange(0, 0.99), "of rents")
    spot_overhead: float = _renting(
        0.10, "share of hours", ValueRange(0, 10), "lost to rework and waiting; measured runs take precedence"
    )
    hours_lost_per_interruption: float = _renting(0.5, "hours", _ANY, "half a checkpoint interval, and a new machine")
    start_up_hours: float = _renting(5 / 60, "hours", _ANY, "paid before the first step, as in plans")

    failed_share: float = _run(0, "share of GPU-hours", ValueRange(0, 0.95), "failed or repeated")
    experiments: float = _run(0, "runs", _ANY, "before the run, in multiples of it")
    preprocessing_share: float = _run(0.20, "share of training", _SHARE, "10-30 % is common")
    storage_gb: float = _run(0, "GB", _ANY, "checkpoints and artifacts")
    storage_usd_per_gb_month: float = _run(0.023, "USD/GB-month", _ANY, "object storage")
    storage_months: float = _run(1, "months", _ANY, "checkpoints and artifacts")
    quality: float | None = _run(None, "points", _ANY, "reached, for the cost of a point")
    baseline_quality: float = _run(0, "points", _ANY, "before the run")

    api_usd: float | None = _tokens(None, "USD/million tokens", _PRICE, "an API to compare with")
    tokens_per_prediction: float | None = _tokens(None, "tokens", _POSITIVE, "for the cost of one prediction")

    image_size: int | None = _images(None, "pixels", ValueRange(1, 1e5, whole=True), "of a side: as published")
    checkpointing: bool = _images(False, "", _SWITCH, "activations are recomputed in the backward pass")
    items: float | None = _images(None, "items", ValueRange(0, 1e15, above=True), "images or documents in all")

    tokens_per_item: int | None = _embedding(
        None, "tokens", ValueRange(1, 1e6, whole=True), "of a document; or image_size"
    )
    patch_size: int = _embedding(14, "pixels", ValueRange(1, 1e4, whole=True), "of a side of an image's patch")
    dimensions: int = _embedding(1024, "values", ValueRange(1, 1e6, whole=True), "of a vector")
    value_bytes: float = _embedding(4, "bytes", ValueRange(0, 8, above=True), "of a value: 4, 2, or 1 if quantized")

    requests_per_minute: float | None = _serving(None, "1/min", _POSITIVE, "at the peak")
    tokens_per_request: float = _serving(200, "tokens", _POSITIVE, "generated")
    prompt_tokens: float = _serving(500, "tokens", _TOKENS, "of a request, besides those generated")
    prefix_cache: float = _serving(0, "share of prompts", _SHARE, "found in a prefix cache")
    p95_s: float | None = _serving(None, "s", _POSITIVE, "95th percentile of the latency: not limited")
    serving_headroom: float = _serving(0.20, "share", ValueRange(0, 10), "spare capacity")
    replica_tokens_per_second: float | None = _serving(None, "tokens/s", _POSITIVE, "measured: estimated per GPU")
    gpus_per_replica: int = _serving(1, "GPUs", _WHOLE, "with a measured speed")
    least_replicas: int = _serving(1, "replicas", _WHOLE, "for availability")
    spare_machines: int = _serving(0, "machines", ValueRange(0, 1000, whole=True), "for failures; 1 is N+1")
    idle_share: float | None = _serving(None, "share of hours", _SHARE, "without requests: no scale to zero")
    cold_starts_per_day: float = _serving(10, "1/day", ValueRange(0, 86_400), "of scale to zero")
    cold_start_s: float = _serving(60, "s", _POSITIVE, "30-120 s to load a model")
    warm_replicas: int = _serving(0, "replicas", _FROM_0, "never scaled down")
    serving_most_sequences: int = _serving(256, "sequences", _WHOLE, "that an engine schedules at once")
    prefill_chunk_tokens: int = _serving(8192, "tokens", _WHOLE, "of prompts read in one step")
    prefill_efficiency: float = _serving(0.5, "share of peak", _PART, "encoders, and a step's batch")
    # Our own measurements on an H100 (tests/gpu/measure.py): large matrices 0.73-0.78 of the peak in BF16 and 0.61-0.78
    # in FP8, attention 0.5-0.68 from 4,096 tokens on, the KV cache at 0.74-0.9 of the bandwidth, 16 kernels of a layer
    matrix_efficiency: float = _serving(0.7, "share of peak", _PART, "measured on an H100: 0.61-0.78")
    attention_efficiency: float = _serving(0.5, "share of peak", _PART, "measured on an H100: 0.5-0.68")
    cache_efficiency: float = _serving(0.8, "share of bandwidth", _PART, "measured on an H100: 0.74-0.9")
    layer_step_s: float = _serving(5e-5, "s", _ANY, "per layer and step: starts and ends of kernels")
    eager_layer_s: float = _serving(3.5e-4, "s", _ANY, "per layer and pass, operations launched one by one")
    serving_step_s: float = _serving(0.0005, "s", _ANY, "per step: scheduling and sampling")
    serving_pace: float = _serving(1.0, "times", _POSITIVE, "measured speed of your replicas over the estimate")
    cpu_below_parameters: float = _serving(1e9, "parameters", _ANY, "a CPU machine is a candidate below that")
    cpu_gb_s: float = _serving(2.9, "GB/s per vCPU", _POSITIVE, "llama.cpp on an EPYC 9554: 2.0 reached by each of 128")
    cpu_tflops: float = _serving(0.03, "TFLOPS per vCPU", _POSITIVE, "OpenBLAS on an EPYC: 0.02 reached in FP32")
    pcie_gb_s: float = _serving(25, "GB/s", _POSITIVE, "one way, 16 lanes of generation 4 as achieved")
    link_latency_s: float = _serving(1e-5, "s", _ANY, "per all-reduce over NVLink")
    pcie_latency_s: float = _serving(3e-5, "s", _ANY, "per all-reduce over PCIe")

    gpu_utilization: float | None = _savings(None, "share", _PART, "of hours in use: 0.5; hardware: the target")
    training_utilization: float = _savings(0.70, "share", _PART, "the target")
    inference_utilization: float = _savings(0.50, "share", _PART, "the target")
    average_utilization: float = _savings(0.60, "share", _PART, "the target for all work")
    steady_share: float = _savings(0, "share of demand", _SHARE, "steady for a year or more")
    spare_hours_share: float = _savings(0, "share of hours", _SHARE, "paid without work")
    idle_hours_below: float = _savings(0.05, "share of hours", _SHARE, "the target for paid hours without work")
    spot_share: float = _savings(0.70, "share of hours", _PART, "the target for training that could run on spot")
    small_model: float = _savings(3e9, "parameters", _ANY, "up to which quantization brings little")
    pool_below_utilization: float = _savings(0.50, "share", _SHARE, "pool small jobs")
    load_data_below_utilization: float = _savings(0.70, "share", _SHARE, "GPUs wait for data")
    reserve_above_steady_share: float = _savings(0.30, "share of demand", _SHARE, "worth a reservation")
    scale_above_spare_hours: float = _savings(0.05, "share of hours", _SHARE, "worth scaling to zero")

    location: str = _energy("world", "", ValueRange(text=True), "provider/region, or a country such as DE")
    gpu_watts: float | None = _energy(
        None, "W", ValueRange(0, 1e5, above=True), "measured average: by utilization and board"
    )
    idle_watts: float | None = _energy(None, "W", ValueRange(0, 1e5), "of an idle GPU: a share of its board's power")
    idle_power_share: float = _energy(0.15, "share of board power", _SHARE, "assumed; a measured H100 draws 10 %")
    grid_of_days: tuple[float, float] = _energy(
        (
            0.5,
            2.0,
        ),
        "times",
        _MULTIPLES,
        "grid.toml; of a year's average",
    )
    grid_of_months: tuple[float, float] = _energy(
        (
            0.8,
            1.25,
        ),
        "times",
        _MULTIPLES,
        "grid.toml; of a year's average",
    )
    grid_days_below_hours: float = _energy(730, "hours", _ANY, "shorter runs see days, longer ones months")
    clean_grid_g_per_kwh: float = _energy(100, "g CO2e/kWh", _POSITIVE, "the scorecard's target")
    model_parameters: float | None = _energy(None, "parameters", _COUNT, "for the scorecard: not scored")
    smallest_parameters: float | None = _energy(None, "parameters", _COUNT, "that suffice: the model's")
    units_of_work: float = _energy(1, "units", _POSITIVE, "such as runs or 1,000 requests")

    method: Method | None = _deployment(None, "", ValueRange(choices=Method), "the cheapest suitable one")
    deadline_margin: float = _deployment(0.10, "share of time", ValueRange(0, 0.9), "safety margin")
    spot_most_machines: int = _deployment(1, "machines", _FROM_0, "a gang is interrupted as often as all together")
    on_demand_most_machines: int = _deployment(4, "machines", _FROM_0, "usually available without a reservation")
    checkpoint_share: float = _deployment(0.05, "share of time", _PART, "for writing checkpoints, at most")
    checkpoint_bytes_per_s: float = _deployment(500e6, "bytes/s", _POSITIVE, "write rate, as in plans")
    max_cost_margin: float = _deployment(0.25, "share of cost", _ANY, "of a job's limit over its expected cost")
    least_maturity: int = _deployment(4, "of 5", ValueRange(0, 5, whole=True), "software that needs no porting work")

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
    return {row.name: row.metadata["row"] for row in fields(Assumptions) if row.metadata}


def override(values: Mapping[str, object], where: str = "", base: Assumptions = DEFAULTS) -> Assumptions:
    """``base`` with some replaced by name, such as ``{"memory_headroom": 0.15}``. Raises UnknownName, with the nearest
    names, and InvalidInput for a value that is out of range; ``where`` it is written is by default its name."""
    rows, overrides = table(), {}
    for name, value in values.items():
        if name not in rows:
            raise UnknownName("assumption", name, rows, where=where)
        try:
            overrides[name] = rows[name].range.read(value)
        except (ValueError, OverflowError) as error:
            message = f"expected {rows[name].range.expected}; got {str(value)[:40]!r}"
            raise InvalidInput(message, where=where or name) from error
    return replace(base, **overrides)


def non_defaults(assumptions: Assumptions) -> dict[str, Any]:
    """Values that differ from the defaults, by name."""
    values = {name: getattr(assumptions, name) for name in table()}
    return {name: value for name, value in values.items() if value != getattr(DEFAULTS, name)}
