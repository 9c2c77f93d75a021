"""Advice on models and clusters: memory, parallelism, speed, scaling."""

from __future__ import annotations

from typing import Self

from broker.app.advise.sizing import PricedFit
from broker.app.results.advice_values import Advice, Estimate, EstimatedUsd, Gib, QuotedMachine, Usd
from broker.app.results.values import Facts, Figure, Result
from broker.economics.kinds import Method, Precision
from broker.economics.memory import ParallelLayout
from broker.economics.model import ModelShape
from broker.economics.parallelism import Strategy
from broker.economics.scaling import ScalingModel
from broker.economics.throughput import Bound, TrainingTime


class SizedAccelerator(Result):
    """An accelerator that holds the model, with its smallest layout and present prices."""

    accelerator: str
    count: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    zero: int
    per_gpu_gib: Gib
    usable_gib: Figure
    lower_bound: int
    assumes: str
    caveats: list[str]
    usd_per_hour: Usd | None
    spot_usd_per_hour: Usd | None
    on_demand: QuotedMachine | None
    spot: QuotedMachine | None

    @property
    def cheapest(self) -> QuotedMachine | None:
        """The cheaper of the two prices."""
        return min((one for one in (self.on_demand, self.spot) if one), key=lambda one: one.usd_per_hour, default=None)

    @classmethod
    def of(cls, row: PricedFit) -> Self:
        fit = {name: getattr(row.fit, name) for name in cls.model_fields if hasattr(row.fit, name)}
        return cls.from_parts(
            row,
            **fit,
            usd_per_hour=row.on_demand and row.on_demand.usd_per_hour,
            spot_usd_per_hour=row.spot and row.spot.usd_per_hour,
        )


class SizeAdvice(Advice):
    """The GPU memory of a model in GiB, and the accelerators that hold it, in whole machines of ``gpus_per_machine``.
    ``layout_given``: whether only those that hold it in that layout are shown."""

    parameters: Figure
    method: Method
    precision: Precision
    weights_gib: Gib
    gradients_gib: Gib
    optimizer_gib: Gib
    activations_gib: Gib
    loss_gib: Gib
    working_gib: Gib
    runtime_gib: Gib
    kv_cache_gib: Gib
    prefill_gib: Gib
    total_gib: Gib
    per_gpu_gib: Gib
    lower_bound_80gb_cards: int
    layout_given: bool
    layout: ParallelLayout
    gpus_per_machine: int
    shape: ModelShape | None
    fits: list[SizedAccelerator]


class MatchingSupply(Result):
    """Offers of such machines, and the cheapest price."""

    offers: int
    linked: int
    unlinked: int
    unknown: int
    price: QuotedMachine | None
    says: str


class ParallelismAdvice(Advice):
    """A parallelism and its degrees. ``constraint``: the part of a job file that requests such machines."""

    strategy: Strategy
    accelerator: str
    gpus: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    zero: int
    per_gpu_gib: Gib
    usable_gib: Figure
    interconnect: str
    machine: str
    num_nodes: int
    memory: str
    throughput: str
    latency: str
    complexity: str
    why: str
    warnings: list[str]
    needs_gib: Gib
    supply: MatchingSupply
    constraint: Facts


class ThroughputAdvice(Advice):
    """The speed of a GPU. ``bound``: what limits it; speeds are null where the model does not fit."""

    gpu: str
    gpus: int
    parameters: Figure
    precision: Precision
    batch: int
    tokens_per_second: Estimate | None
    latency_per_token_ms: Estimate | None
    bound: Bound | None
    fits: bool
    ridge_point: Figure | None
    training_tokens: Figure | None
    training: TrainingTime | None
    measured_mfu: Estimate | None


class ScaledCluster(Result):
    """One size of the cluster. ``marginal``: the gain from one more GPU, in GPUs."""

    gpus: int
    speedup: Estimate
    utilisation: Estimate
    marginal: Estimate
    hours: Estimate
    cost_usd: EstimatedUsd
    meets_deadline: bool


class ScaleAdvice(Advice):
    """Time and cost by cluster size. ``efficient_gpus``: the cheapest size that meets the deadline, null if none does;
    ``residual``: typical error of a fitted speed-up."""

    gpu: str
    gpu_hours: Estimate
    usd_per_gpu_hour: Usd
    deadline_hours: Figure | None
    peak_gpus: Estimate | None
    model: ScalingModel
    points: list[ScaledCluster]
    efficient_gpus: int | None
    diminishing_gpus: int
    fastest_gpus: int
    residual: Estimate | None
