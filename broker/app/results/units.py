"""Unit metrics as a result."""

from __future__ import annotations

from broker.app.results.values import Figure, Moment, Result
from broker.core.values.money import Money


class ScoredRunResult(Result):
    """A successful run, its cost in all (USD), and the metric that it reported last."""

    job_id: str
    cost: Money
    value: Figure


class QualityCostResult(Result):
    """The cheapest and the dearest run of a team's project. ``per_point``: USD for a difference of 1 of the metric;
    null where both have the same."""

    owner: str
    cheapest: ScoredRunResult
    dearest: ScoredRunResult
    per_point: Money | None


class UnitMetrics(Result):
    """The cost of a unit of work in a period (UTC), of all teams or one. Hours are of GPUs, money is USD; null:
    unknown, for want of a denominator. ``bought``: use of owned and reserved capacity, ``rented``: of on-demand and
    spot. ``measured_hours``: those of attempts with utilisation samples, of which ``busy_hours`` and ``idle_hours``
    (below 5 %) are parts. ``quality``: of the metric that was asked for. ``unread``: attempts whose samples could not
    be reached."""

    since: Moment
    until: Moment
    team: str | None
    spent: Money
    gpu_hours: Figure
    gpu_spent: Money
    bought: Money
    rented: Money
    spot_hours: Figure
    spot_spent: Money
    wasted: Money
    tagged: Figure | None
    runs: int
    per_run: Money | None
    per_gpu_hour: Money | None
    measured_hours: Figure
    busy_hours: Figure
    idle_hours: Figure
    idle_cost: Money
    per_busy_hour: Money | None
    capacity_use: Figure | None
    coverage: Figure | None
    tokens: Figure
    per_million_tokens: Money | None
    unread: int
    quality: list[QualityCostResult]
