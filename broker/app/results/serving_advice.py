"""Advice on serving a model."""

from __future__ import annotations

from broker.app.results.advice_values import Advice, Estimate, EstimatedUsd, Usd
from broker.app.results.values import Figure, Result
from broker.economics.kinds import Precision


class ServingChoice(Result):
    """Serving on one accelerator. ``measured_runs``: finished runs of a model of this size that measured the speed, at
    ``pace`` times the estimate; 0: estimated."""

    accelerator: str
    precision: Precision
    gpus_per_replica: int
    tokens_per_second_per_replica: Estimate
    batch: int
    time_to_first_token_s: Estimate
    time_per_token_s: Estimate
    prefill_share: Estimate
    replicas: int
    gpus: int
    machines: int | None
    gpus_per_machine: int | None
    p95_s: Estimate | None
    first_token_p95_s: Estimate | None
    simulated_p95_s: Estimate | None
    meets_latency: bool | None
    monthly_usd_owned: EstimatedUsd | None
    monthly_usd_reserved: EstimatedUsd | None
    monthly_usd_on_demand: EstimatedUsd | None
    monthly_usd_one_more: EstimatedUsd | None
    measured_runs: int
    pace: Estimate


class ScaleToZeroResult(Result):
    """The cost of replicas that are kept warm, and of replicas that stop when idle."""

    warm_usd_per_month: Usd
    scaled_usd_per_month: Usd
    saving_usd_per_month: Usd
    delayed_share: Figure
    cold_start_s: Figure


class RoutingResult(Result):
    """The tier of each type of task, the ``quality`` of each tier, and the cost compared with the largest model
    alone."""

    quality: list[tuple[str, Figure]]
    routes: list[tuple[str, str]]
    shares: list[tuple[str, Figure]]
    cost_usd: Usd
    largest_only_usd: Usd
    saving: Figure
    unserved: list[str]


class ServeAdvice(Advice):
    """Replicas and GPUs for given traffic, with ``headroom`` as a share. ``meets_latency``: null where it was not
    checked against ``wanted_p95_s``."""

    headroom: Figure
    wanted_p95_s: Figure | None
    demand_tokens_per_second: Figure
    required_tokens_per_second: Figure
    replicas: int
    gpus: int
    tokens_per_second_per_request: Figure | None
    p95_s: Estimate | None
    meets_latency: bool | None
    monthly_usd: EstimatedUsd | None
    gpus_per_replica: int
    tokens_per_second_per_replica: Estimate
    options: list[ServingChoice]
    scale_to_zero: ScaleToZeroResult | None
    routing: RoutingResult | None
