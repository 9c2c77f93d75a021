"""Advice as results. Amounts are decimal strings in USD with up to nine decimals, because the economics compute
fractions of a cent; figures that are infinite or not known are null. ``assumptions``: what was not given or
measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Annotated, Any, Self

from pydantic import PlainSerializer, WithJsonSchema

from broker.app.advise.deploy.situation import Deployment
from broker.app.advise.goal import Goal
from broker.app.advise.history import PastUse
from broker.app.advise.sizing import PricedFit
from broker.app.results.values import Facts, Figure, Moment, Result
from broker.core.market.offers import CapacityType
from broker.economics.buy_or_rent import BuyOrRentVerdict
from broker.economics.energy import GridIntensity, Scorecard
from broker.economics.hardware import BoundBy, RadarRow
from broker.economics.memory import Method, ParallelLayout, Precision
from broker.economics.model import ModelShape
from broker.economics.parallelism import Strategy
from broker.economics.rules import RuleCheck
from broker.economics.savings import SavingAdvice
from broker.economics.scaling import ScalingModel
from broker.economics.throughput import Bound, TrainingTime


def usd(amount: float) -> str | None:
    """``0.162580901`` → ``"0.162580901"``, 94188 → ``"94188.00"``; None for what is not finite."""
    if not isfinite(amount):
        return None
    whole, _, decimals = f"{amount:.9f}".partition(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


Usd = Annotated[
    float,
    PlainSerializer(usd, when_used="json"),
    WithJsonSchema({"type": ["string", "null"], "description": "USD"}, mode="serialization"),
]


class Advice(Result):
    """The base of advice."""

    assumptions: list[str]


class QuotedMachine(Result):
    """A price, in force at ``as_of``. ``usd_per_hour``: of all ``machines``."""

    accelerator: str
    gpus: int
    capacity_type: CapacityType
    usd_per_hour: Usd
    usd_per_gpu_hour: Usd
    machine: str
    machines: int
    where: str
    instance_type: str
    interconnect: str | None
    source: str
    as_of: Moment | None
    reference: bool
    stale: bool


class BuyOrRentCase(Result):
    """The inputs of the comparison."""

    purchase_usd: Usd
    rent_usd_per_hour: Usd
    years: Figure
    utilisation: Figure
    watts: Figure
    kwh_usd: Usd
    pue: Figure
    resale_usd: Usd
    staff_usd_per_hour: Usd
    facility_usd: Usd
    discount_rate: Figure
    price_decline: Figure
    lead_time_weeks: Figure
    obsolete_after_years: Figure | None
    new_generation_speedup: Figure
    peak_to_baseline: Figure
    take_or_pay: bool


class BuyOrRentSensitivity(Result):
    """The comparison at another yearly decline of rents."""

    price_decline: Figure
    own_npv_usd: Usd
    rent_npv_usd: Usd
    break_even_utilisation: Figure | None
    verdict: BuyOrRentVerdict


class BuyOrRentAdvice(Advice):
    """Totals and present values of both ways (costs positive), and their break-even points. ``usage``: recorded use,
    only with --from-history."""

    own_total_usd: Usd
    rent_total_usd: Usd
    own_npv_usd: Usd
    rent_npv_usd: Usd
    waiting_usd: Usd
    hours: Figure
    break_even_utilisation: Figure | None
    break_even_hours_per_day: Figure | None
    break_even_rent_usd_per_hour: Usd
    payback_months: Figure | None
    verdict: BuyOrRentVerdict
    why: str
    rules_of_thumb: list[RuleCheck]
    sensitivity: list[BuyOrRentSensitivity]
    inputs: BuyOrRentCase
    running_usd_per_month: Usd
    rent_usd_per_month: Usd
    opinions: list[RuleCheck]
    usage: PastUse | None


class WayCostResult(Result):
    """One capacity type: the sum of what is paid, its present value, and that per GPU-hour in use."""

    way: CapacityType
    total_usd: Usd
    npv_usd: Usd
    npv_usd_per_used_gpu_hour: Usd


class FlipPointResult(Result):
    """An input, its value, and the nearest value at which another capacity type is cheapest, all else equal."""

    name: str
    value: Figure
    flips_at: Figure
    then: CapacityType


class CapacityAdvice(Advice):
    """Capacity types for the same use, cheapest first. ``flips``: inputs that alone change the answer, the smallest
    change first; ``steady``: inputs that do not within a tenth to ten times their value."""

    gpu: str | None
    provider: str | None
    machines: int
    gpus_per_machine: int
    used_gpu_hours: Figure
    ways: list[WayCostResult]
    flips: list[FlipPointResult]
    steady: list[str]


class ClusterCostAdvice(Advice):
    """The cost of a GPU-hour of ownership in parts, and per hour in use."""

    hardware_usd_per_gpu_hour: Usd
    facility_usd_per_gpu_hour: Usd
    energy_usd_per_gpu_hour: Usd
    staff_usd_per_gpu_hour: Usd
    usd_per_gpu_hour: Usd
    usd_per_used_gpu_hour: Usd
    rules_of_thumb: list[RuleCheck]


class DeploymentStep(Result):
    """A step: the rule that was applied, its figures by name, the decision."""

    step: str
    rule: str
    numbers: Facts
    decision: str


class DeployAdvice(Advice):
    """A deployment. ``usd``: of the run, or of a month of serving; ``job_file`` and ``policy_file``: YAML."""

    goal: Goal
    verdict: str
    summary: str
    accelerator: str
    gpus: int
    usd: Usd
    fits_budget: bool
    meets_deadline: bool
    steps: list[DeploymentStep]
    warnings: list[str]
    job_file: str
    policy_file: str

    @classmethod
    def of_deployment(cls, found: Deployment) -> Self:
        steps = [
            DeploymentStep(step=one.step, rule=one.rule, numbers=_numbers(one.numbers), decision=one.decision)
            for one in found.steps
        ]
        return cls.from_parts(found, steps=steps)


_USD = re.compile(r"(^|_)usd(_|$)")


def _numbers(figures: Mapping[str, object]) -> dict[str, object]:
    """The figures of a step, which are of many kinds; their names say which are USD."""
    return {name: _figure(value) if _USD.search(name) else value for name, value in figures.items()}


def _figure(value: object) -> object:
    return usd(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class CleanerLocation(Result):
    """A cleaner location, and the emissions of the same energy there."""

    location: str
    kg_co2e: Figure
    grams_per_kwh: Figure


class EcoAdvice(Advice):
    """Energy and carbon. ``watts``: average power of a GPU."""

    gpu: str
    gpus: int
    hours: Figure
    utilisation: Figure
    location: str
    watts: Figure
    kwh: Figure
    kg_co2e: Figure
    pue: Figure
    intensity: GridIntensity
    scorecard: Scorecard
    cleaner: list[CleanerLocation]


class RankedHardware(Result):
    """The performance of an accelerator per 1000 USD in the limiting resource."""

    accelerator: str
    usd: Usd
    per_kusd: Figure
    linked: bool


class HardwareTrial(Result):
    """A measured candidate."""

    name: str
    usd_per_unit: Usd
    times_cheapest: Figure


class HardwareAdvice(Advice):
    """Hardware compared. ``per``: what the prices are; ``unpriced``: accelerators without a known price."""

    bound_by: BoundBy
    per: str
    ranking: list[RankedHardware]
    radar: list[RadarRow]
    trials: list[HardwareTrial]
    unpriced: list[str]


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
    per_gpu_gib: Figure
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
    needs_gib: Figure
    supply: MatchingSupply
    constraint: Facts


class RunCostAdvice(Advice):
    """The total cost of a model in parts."""

    compute_usd: Usd
    failed_usd: Usd
    experiments_usd: Usd
    preprocessing_usd: Usd
    storage_usd: Usd
    total_usd: Usd
    usd_per_quality_point: Usd | None


class SavingStep(Result):
    """A step. ``remaining_low`` and ``remaining_high``: the share of the present cost that remains after it."""

    order: int
    name: str
    applies: bool
    why: str
    saving_low: Figure
    saving_high: Figure
    remaining_low: Figure
    remaining_high: Figure
    condition: str
    measure: str
    remaining_low_usd: Usd | None
    remaining_high_usd: Usd | None


class SavingsAdvice(Advice):
    """Savings in order. ``fewer_gpus_share``: GPUs saved at the target utilisation."""

    steps: list[SavingStep]
    fewer_gpus_share: Figure
    target_utilisation: Figure
    rules_of_thumb: list[RuleCheck]

    @classmethod
    def of_steps(cls, advice: Iterable[SavingAdvice], monthly_usd: float | None, **more: Any) -> Self:
        steps = [
            SavingStep.from_parts(
                one,
                remaining_low_usd=None if monthly_usd is None else monthly_usd * one.remaining_low,
                remaining_high_usd=None if monthly_usd is None else monthly_usd * one.remaining_high,
            )
            for one in advice
        ]
        return cls(steps=steps, **more)


class ScaledCluster(Result):
    """One size of the cluster. ``marginal``: what one more GPU adds, in GPUs."""

    gpus: int
    speedup: Figure
    utilisation: Figure
    marginal: Figure
    hours: Figure
    cost_usd: Usd
    meets_deadline: bool


class ScaleAdvice(Advice):
    """Time and cost by cluster size. ``efficient_gpus``: the cheapest size that meets the deadline, null if none does;
    ``residual``: typical error of a fitted speed-up."""

    gpu: str
    gpu_hours: Figure
    usd_per_gpu_hour: Usd
    deadline_hours: Figure | None
    peak_gpus: Figure | None
    model: ScalingModel
    points: list[ScaledCluster]
    efficient_gpus: int | None
    diminishing_gpus: int
    fastest_gpus: int
    residual: Figure | None


class ServingChoice(Result):
    """Serving on one accelerator."""

    accelerator: str
    precision: Precision
    gpus_per_replica: int
    tokens_per_second_per_replica: Figure
    batch: int
    time_to_first_token_s: Figure
    time_per_token_s: Figure
    prefill_share: Figure
    replicas: int
    gpus: int
    machines: int | None
    gpus_per_machine: int | None
    p95_s: Figure | None
    first_token_p95_s: Figure | None
    simulated_p95_s: Figure | None
    meets_latency: bool | None
    monthly_usd_owned: Usd | None
    monthly_usd_reserved: Usd | None
    monthly_usd_on_demand: Usd | None
    monthly_usd_one_more: Usd | None


class ScaleToZeroResult(Result):
    """The cost of replicas that are kept warm, and of replicas that stop when idle."""

    warm_usd_per_month: Usd
    scaled_usd_per_month: Usd
    saving_usd_per_month: Usd
    delayed_share: Figure
    cold_start_s: Figure


class RoutingResult(Result):
    """The tier of each type of task, and the cost compared with the largest model alone."""

    routes: list[tuple[str, str]]
    shares: list[tuple[str, Figure]]
    cost_usd: Usd
    largest_only_usd: Usd
    saving: Figure
    unserved: list[str]


class ServeAdvice(Advice):
    """Replicas and GPUs for given traffic. ``meets_latency``: null where it was not checked."""

    demand_tokens_per_second: Figure
    required_tokens_per_second: Figure
    replicas: int
    gpus: int
    tokens_per_second_per_request: Figure | None
    p95_s: Figure | None
    meets_latency: bool | None
    monthly_usd: Usd | None
    gpus_per_replica: int
    tokens_per_second_per_replica: Figure
    options: list[ServingChoice]
    scale_to_zero: ScaleToZeroResult | None
    routing: RoutingResult | None


class SizedAccelerator(Result):
    """An accelerator that holds the model, with its smallest layout and present prices."""

    accelerator: str
    count: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    zero: int
    per_gpu_gib: Figure
    usable_gib: Figure
    lower_bound: int
    assumes: str
    caveats: list[str]
    usd_per_hour: Usd | None
    spot_usd_per_hour: Usd | None
    on_demand: QuotedMachine | None
    spot: QuotedMachine | None

    @classmethod
    def of(cls, row: PricedFit) -> Self:
        fit = {name: getattr(row.fit, name) for name in cls.model_fields if hasattr(row.fit, name)}
        return cls(
            **fit,
            usd_per_hour=row.on_demand and row.on_demand.usd_per_hour,
            spot_usd_per_hour=row.spot and row.spot.usd_per_hour,
            on_demand=row.on_demand,
            spot=row.spot,
        )


class SizeAdvice(Advice):
    """The GPU memory of a model in GiB, and the accelerators that hold it."""

    parameters: Figure
    method: Method
    precision: Precision
    weights_gib: Figure
    gradients_gib: Figure
    optimizer_gib: Figure
    activations_gib: Figure
    loss_gib: Figure
    working_gib: Figure
    runtime_gib: Figure
    kv_cache_gib: Figure
    prefill_gib: Figure
    total_gib: Figure
    per_gpu_gib: Figure
    lower_bound_80gb_cards: int
    layout: ParallelLayout
    shape: ModelShape | None
    fits: list[SizedAccelerator]


class ThroughputAdvice(Advice):
    """The speed of a GPU. ``bound``: what limits it; speeds are null where the model does not fit."""

    gpu: str
    gpus: int
    parameters: Figure
    precision: Precision
    batch: int
    tokens_per_second: Figure | None
    latency_per_token_ms: Figure | None
    bound: Bound | None
    fits: bool
    ridge_point: Figure | None
    training: TrainingTime | None
    measured_mfu: Figure | None


class UnitCostAdvice(Advice):
    """The cost of a million tokens in parts."""

    hardware_usd_per_million_tokens: Usd
    power_usd_per_million_tokens: Usd
    rent_usd_per_million_tokens: Usd
    usd_per_million_tokens: Usd
    million_tokens_per_year: Figure
    usd_per_hour: Usd
    usd_per_prediction: Usd | None
    break_even_utilisation: Figure | None
    rules_of_thumb: list[RuleCheck]


KINDS: Mapping[str, type[Advice]] = {
    "buy-or-rent": BuyOrRentAdvice,
    "capacity": CapacityAdvice,
    "cluster-cost": ClusterCostAdvice,
    "deploy": DeployAdvice,
    "eco": EcoAdvice,
    "hardware": HardwareAdvice,
    "parallelism": ParallelismAdvice,
    "run-cost": RunCostAdvice,
    "savings": SavingsAdvice,
    "scale": ScaleAdvice,
    "serve": ServeAdvice,
    "size": SizeAdvice,
    "throughput": ThroughputAdvice,
    "unit-cost": UnitCostAdvice,
}
"""What each `gpubroker advise KIND` answers with."""
