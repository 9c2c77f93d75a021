"""Rules of thumb: the field's defaults as one value that is passed in, and the verdict on a rule for given inputs.

A policy file may replace any of them. Every assumed figure that this package uses is here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from broker.core.errors import InvalidInput, UnknownName
from broker.economics.estimates import about

SAME_SIZE = 0.02
"""Two numbers of parameters count as the same model's if they differ by at most this share."""


@dataclass(frozen=True, slots=True)
class RulesOfThumb:
    """Defaults. Fractions are 0 to 1, amounts USD, bytes per parameter unless stated otherwise."""

    # Memory (mixed-precision AdamW: gradients in FP32; FP32 master copy and two moments in the optimizer)
    gradient_bytes: float = 4
    adamw_bytes: float = 12
    adamw_fp32_bytes: float = 8  # weights that are FP32 already need no master copy
    sgd_bytes: float = 4
    activations_per_weight: float = 2  # activation bytes per byte of weights, when the architecture is not given
    adapter_fraction: float = 0.01
    adapter_input_bytes: float = 4  # bytes per value of an adapted layer's input: FP32 in PEFT; 5 with dropout
    logit_bytes: float = 14  # bytes per logit in training (eager): 16 bits, FP32 copy, log-softmax, gradient; fused 2
    runtime_gib: float = 1.0  # on each GPU in training: context of the driver, workspaces of libraries
    unquantised_bytes: float = 4  # QLoRA's embeddings and output layer: PEFT keeps them in FP32
    quantised_block_bytes: float = 0.016  # block constants per 4-bit parameter: NF4 with double quantisation
    assumed_context: int = 2048  # tokens per sequence in training if only a batch is given
    consumer_cards_per_machine: int = 4  # cards over which FSDP spreads a QLoRA
    memory_headroom: float = 0.10
    reference_card_usable_gib: float = 75  # usable memory of an "80 GB" card, the unit of quoted lower bounds
    # Work
    mfu: float = 0.40
    decode_efficiency: float = 0.7
    image_mfu_attention: float = 0.23  # of networks on images, eager PyTorch, from half of our own measurements
    image_mfu_convolution: float = 0.12
    image_launch_s: float = 35e-6  # launch time of a pass per tensor: SDXL, 2 images, 59 ms in inference
    # Parallelism
    gpus_per_node: int = 8
    consumer_heat_loss: float = 0.20  # 15-25 % of a consumer card's speed in a dense rack
    pcie_allreduce_slowdown: float = 15  # 10-20 times slower than NVLink
    serial_share: float = 0.0005  # serial share of a training step without a measurement
    pair_cost: float = 2e-7  # share of a step per pair of GPUs
    least_marginal_efficiency: float = 0.5  # below it, one more GPU gives less than half of a GPU
    # Rent or buy
    rent_below_hours_per_day: float = 4
    buy_above_hours_per_day: float = 6
    buy_above_utilisation: float = 0.40
    bursty_above_peak_to_baseline: float = 1.5
    buy_for_months: float = 18
    quoted_cluster_usd_per_gpu_hour: tuple[float, float] = (8, 15)
    # Quoted utilisation at which owning beats an API
    quoted_api_break_even: tuple[tuple[str, float], ...] = (("a 7B model", 0.50), ("a 13B model", 0.10))
    quoted_within: float = 1 / 3  # a quoted figure holds if the computed one differs by at most this share
    new_generation_speedup: float = 3  # speed of the card that makes one obsolete, as a multiple
    # Defaults of owning
    life_years: float = 3
    kwh_usd: float = 0.12
    pue: float = 1.58  # industry's average (Uptime Institute 2023)
    # Cost of a run
    preprocessing_share: float = 0.20  # 10-30 % of training
    # Serving
    serving_headroom: float = 0.20
    cold_start_s: float = 60  # 30-120 s
    serving_most_sequences: int = 256  # sequences that an engine schedules at once
    prefill_chunk_tokens: int = 8192  # tokens of prompts read in one step
    prefill_efficiency: float = 0.5  # achieved share of peak compute, of encoders and of a step's batch
    # Our own measurements on an H100 (tests/gpu/measure.py): large matrices 0.73-0.78 of the peak in BF16 and 0.61-0.78
    # in FP8, attention 0.5-0.68 from 4,096 tokens on, the KV cache at 0.74-0.9 of the bandwidth, 16 kernels of a layer
    matrix_efficiency: float = 0.7
    attention_efficiency: float = 0.5
    cache_efficiency: float = 0.8
    layer_step_s: float = 5e-5  # seconds per layer and step: starts and ends of kernels
    eager_layer_s: float = 3.5e-4  # seconds per layer and pass if operations are launched one by one
    serving_step_s: float = 0.0005  # seconds per step for scheduling and sampling
    serving_pace: float = 1.0  # measured speed of the user's replicas over the estimate
    pcie_gb_s: float = 25  # one way, 16 lanes of generation 4 as achieved
    link_latency_s: float = 1e-5  # seconds per all-reduce
    pcie_latency_s: float = 3e-5
    # Savings
    inference_savings_together: tuple[float, float] = (0.30, 0.40)
    small_model: float = 3e9  # parameters up to which quantisation brings little
    pool_below_utilisation: float = 0.50
    load_data_below_utilisation: float = 0.70
    reserve_above_steady_share: float = 0.30
    scale_above_spare_hours: float = 0.05
    quoted_fleet_claim: tuple[float, float, float] = (0.93, 0.20, 0.60)  # GPUs saved, at utilisation from, to
    # Energy
    # A grid's intensity in days and weeks, and in months, over that of its year: see `ranges` of grid.toml
    grid_of_days: tuple[float, float] = (0.5, 2.0)
    grid_of_months: tuple[float, float] = (0.8, 1.25)
    grid_days_below_hours: float = 730
    clean_grid_g_per_kwh: float = 100  # the scorecard's target
    grades: tuple[tuple[str, float], ...] = (("A", 0.85), ("B", 0.70), ("C", 0.50), ("D", 0.30))  # else E
    idle_power_share: float = 0.15  # share of the board power, an assumption; a measured H100 draws 10 %
    # The whole path
    pretraining_tokens_per_parameter: float = 20  # Hoffmann et al. 2022
    fine_tuning_tokens: float = 50e6
    assumed_prompt_tokens: float = 500  # tokens per request to a service if none are given
    deadline_margin: float = 0.10  # share of the time reserved for problems
    spot_most_machines: int = 1  # a gang is interrupted as often as its machines together
    on_demand_most_machines: int = 4  # machines usually available without a reservation
    spot_overhead: float = 0.10  # share of hours repeated or spent waiting
    start_up_hours: float = 5 / 60  # paid before the first step on rented machines, as in plans
    hours_lost_per_interruption: float = 0.5  # half the time between checkpoints, and until another machine works
    checkpoint_share: float = 0.05  # maximum share of the time for writing checkpoints
    checkpoint_bytes_per_s: float = 500e6  # write rate of checkpoints, as in plans
    max_cost_margin: float = 0.25  # margin of a job's maximum over its expected cost
    least_maturity: int = 4  # maturity of a card's software that needs no porting work
    server_per_card_price: float = 1.4  # price of a server with its cards, as a multiple of the cards' price
    server_watts_per_card_watt: float = 1.6  # power of a server over its cards' board power (DGX H100: 1.8)
    resale_share: float = 0.15  # resale value at the end of life, as a share of the price
    lead_time_weeks: float = 20  # delivery time in a tight market
    # Targets
    training_utilisation: float = 0.70
    inference_utilisation: float = 0.50
    idle_hours_below: float = 0.05  # share of the paid hours
    # Measured by finished runs, not set by files: accelerator, model FLOPS utilisation, number of runs
    measured_mfu: tuple[tuple[str, float, int], ...] = ()
    measured_models: tuple[tuple[str, float, bool, float, int], ...] = ()  # with the size, and whether it was trained
    # Of inference: accelerator, the model's size, tokens/s of a GPU, the share of them that was generated, runs
    measured_served: tuple[tuple[str, float, float, float | None, int], ...] = ()
    measured_interruptions: tuple[tuple[str, float, int], ...] = ()  # likewise, of 1,000 hours of a spot GPU
    measured_price: tuple[tuple[str, float, int], ...] = ()  # likewise, USD of a GPU-hour as it was charged

    def mfu_on(self, accelerator: str, parameters: float | None = None) -> tuple[float, int]:
        """The MFU to expect there, and the number of finished runs that measured it; 0: assumed. Runs that trained a
        model of this size come before those of others."""
        if same := self._of_size(accelerator, parameters, trained=True):
            return same
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

    def mfu_text(self, accelerator: str, parameters: float | None = None) -> str:
        """``MFU of 31 %, measured by 12 runs on H100``."""
        mfu, runs = self.mfu_on(accelerator, parameters)
        of = " of a model of this size" if self._of_size(accelerator, parameters, trained=True) else ""
        return f"MFU of {mfu:.0%}, " + (
            f"measured by {runs} run{'s' * (runs > 1)}{of} on {accelerator}" if runs else "assumed"
        )

    def spot_overhead_on(self, accelerator: str, gpus: int = 1) -> tuple[float, int]:
        """The share of hours that is redone or waited for on that many spot GPUs at once, and the number of finished
        runs that measured their interruptions; 0: assumed."""
        for name, per_1000_hours, runs in self.measured_interruptions:
            if name == accelerator:
                return per_1000_hours / 1000 * gpus * self.hours_lost_per_interruption, runs
        return self.spot_overhead, 0

    def spot_text(self, accelerator: str, gpus: int = 1) -> str:
        """``spot: 3 % of hours redone or waited for, by the interruptions of 12 runs on H100``."""
        share, runs = self.spot_overhead_on(accelerator, gpus)
        where = f"by the interruptions of {runs} run{'s' * (runs > 1)} on {accelerator}" if runs else "assumed"
        return f"spot: {share:.1%} of hours redone or waited for, {where}"

    def price_text(self, accelerator: str) -> str:
        """``12 finished runs on H100 were charged $2.31 a GPU-hour``; empty where none was."""
        for name, usd, runs in self.measured_price:
            if name == accelerator:
                plural = f"{runs} finished runs on {accelerator} were"
                return (
                    f"{plural if runs > 1 else f'a finished run on {accelerator} was'} charged {about(usd)} a GPU-hour"
                )
        return ""


DEFAULTS = RulesOfThumb()
MEASURED = ("measured_mfu", "measured_models", "measured_served", "measured_interruptions", "measured_price")


def replaced(values: Mapping[str, object], where: str = "", base: RulesOfThumb = DEFAULTS) -> RulesOfThumb:
    """``base`` with some replaced by name, such as ``{memory_headroom: 0.15, rent_below_hours_per_day: 5}``; a pair
    is a list of two. Raises UnknownName, and InvalidInput for a value that is no number of 0 or more."""
    known = {field.name: field.default for field in fields(RulesOfThumb) if field.name not in MEASURED}
    changed: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise UnknownName("rule of thumb", name, known, where=where)
        default = known[name]
        if isinstance(default, tuple):
            pair = value if isinstance(value, list) else []
            numeric = all(isinstance(item, int | float) for item in default)
            if not numeric or len(pair) != len(default) or not all(_is_number(item) for item in pair):
                raise InvalidInput(f"{name}: expected a list such as {list(default)}, got {value!r}", where=where)
            changed[name] = tuple(pair)
        elif not _is_number(value) or (isinstance(default, int) and not isinstance(value, int)):
            kind = "a whole number" if isinstance(default, int) else "a number"
            raise InvalidInput(f"{name}: expected {kind} of 0 or more such as {default:g}, got {value!r}", where=where)
        else:
            changed[name] = value
    return replace(base, **changed)


def changed(rules: RulesOfThumb) -> dict[str, Any]:
    """Values that differ from the defaults, by name."""
    told = {field.name: getattr(rules, field.name) for field in fields(RulesOfThumb) if field.name not in MEASURED}
    return {name: value for name, value in told.items() if value != getattr(DEFAULTS, name)}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """A quoted rule compared with the arithmetic: the ``rule``, what the numbers ``says``, and whether it ``holds`` for
    these inputs.
    """

    rule: str
    says: str
    holds: bool
