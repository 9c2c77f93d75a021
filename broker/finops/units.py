"""Unit metrics of a period: the cost of a successful run, a busy GPU-hour, a million tokens, and a better result (the
difference in cost over the difference in a reported metric). Pure. A metric without a denominator is None: unknown."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from broker.core.market.offers import BOUGHT, CapacityType
from broker.core.values.money import Money
from broker.economics.figures import Figure
from broker.finops.change import Month, total
from broker.finops.idle import IdleCapacity

IDLE_BELOW_PERCENT = 5.0
"""Percent of utilization below which an accelerator is idle."""

_HOUR = 3_600_000  # milliseconds
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class MeasuredAttempt:
    """The accelerators of an attempt in the time: ``time`` in milliseconds of accelerators, ``price`` (USD an hour of
    one of them, None: unknown), and the samples of their utilization in percent, of the busiest one."""

    time: int
    price: Money | None
    percents: Sequence[float]


@dataclass(frozen=True, slots=True)
class ReportedTokens:
    """The tokens that a job reported for the period, and its spending in it (USD)."""

    tokens: float
    spent: Money


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """A successful run, its total cost (USD), and its last report of the metric."""

    job_id: str
    cost: Money
    value: Figure


@dataclass(frozen=True, slots=True)
class QualityCost:
    """The cheapest and the most expensive run of an owner, a team's project. ``per_point``: USD per difference of 1 in
    the metric, in either direction; null if both have the same value."""

    owner: str
    cheapest: ScoredRun
    dearest: ScoredRun
    per_point: Money | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitMetrics:
    """The cost of a unit of work in a period of ``timezone``, of all teams or one. Hours are of GPUs, money USD; null:
    unknown, for want of a denominator. ``bought``: use of owned and reserved capacity; ``rented``: of on-demand and
    spot. ``eligible_hours``: rented for jobs that could run on spot, of which ``eligible_spot_hours`` did.
    ``measured_hours``: those of attempts with samples of their utilization; ``busy_hours`` and ``idle_hours``
    (below 5 %) are parts of them, ``idle_cost`` at the prices of placement. ``capacity_use``: the used share of held
    capacity; ``coverage``: the share of all hours that ran on it. ``quality``: of the metric that was asked for;
    ``unread``: attempts whose samples could not be reached."""

    since: datetime
    until: datetime
    timezone: str = "UTC"
    team: str | None = None
    spent: Money
    gpu_hours: Figure
    gpu_spent: Money
    bought: Money
    rented: Money
    spot_hours: Figure
    spot_spent: Money
    eligible_hours: Figure = 0.0
    eligible_spot_hours: Figure = 0.0
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
    unread: int = 0
    quality: tuple[QualityCost, ...] = ()


def unit_metrics(
    since: datetime,
    until: datetime,
    cells: Month,
    runs: int,
    measured: Iterable[MeasuredAttempt],
    held: Iterable[IdleCapacity],
    reported: Iterable[ReportedTokens],
) -> UnitMetrics:
    """The metrics of a time in which those cells were used and ``runs`` jobs succeeded."""
    on_gpus = [(cell, used) for cell, used in cells.items() if cell.accelerator is not None]
    time = sum(used.time for _, used in on_gpus)
    gpu_spent = _sum(used.spent for _, used in on_gpus)
    spot = [used for cell, used in on_gpus if cell.capacity_type == CapacityType.SPOT]
    bought = [(cell, used) for cell, used in cells.items() if cell.capacity_type in BOUGHT]
    spent, tagged = total(cells), _sum(used.spent for cell, used in cells.items() if cell.team is not None)
    sampled = [record for record in measured if record.percents and record.time > 0]
    measured_time, busy, idle, idle_cost = _utilization(sampled)
    holdings, reports = list(held), list(reported)
    held_time, idle_held_time = (
        sum(record.held_time for record in holdings),
        sum(record.idle_time for record in holdings),
    )
    tokens = sum(record.tokens for record in reports)
    per_hour = gpu_spent.share(_HOUR, time) if time else None
    share = busy / measured_time if measured_time else Fraction(0)
    return UnitMetrics(
        since=since,
        until=until,
        spent=spent,
        gpu_hours=time / _HOUR,
        gpu_spent=gpu_spent,
        bought=_sum(used.spent for _, used in bought),
        rented=spent - _sum(used.spent for _, used in bought),
        spot_hours=sum(used.time for used in spot) / _HOUR,
        spot_spent=_sum(used.spent for used in spot),
        wasted=_sum(used.wasted for used in cells.values()),
        tagged=tagged.micros / spent.micros if spent else None,
        runs=runs,
        per_run=spent.share(1, runs) if runs else None,
        per_gpu_hour=per_hour,
        measured_hours=measured_time / _HOUR,
        busy_hours=float(busy) / _HOUR,
        idle_hours=float(idle) / _HOUR,
        idle_cost=idle_cost,
        per_busy_hour=per_hour.share(share.denominator, share.numerator) if per_hour is not None and share else None,
        capacity_use=1 - idle_held_time / held_time if held_time else None,
        coverage=sum(used.time for cell, used in bought if cell.accelerator) / time if time else None,
        tokens=tokens,
        per_million_tokens=_sum(record.spent for record in reports).scaled(_MILLION / tokens) if tokens > 0 else None,
    )


def _utilization(attempts: Sequence[MeasuredAttempt]) -> tuple[int, Fraction, Fraction, Money]:
    """Measured, busy and idle milliseconds, and the cost of the idle ones (USD). Each sample stands for the same part
    of its attempt."""
    busy = idle = Fraction(0)
    cost = Money.ZERO
    for attempt in attempts:
        share = sum(map(Fraction, attempt.percents), Fraction(0)) / (100 * len(attempt.percents))
        idle_time = (
            Fraction(sum(percent < IDLE_BELOW_PERCENT for percent in attempt.percents), len(attempt.percents))
            * attempt.time
        )
        busy, idle = busy + share * attempt.time, idle + idle_time
        if attempt.price is not None:
            cost += attempt.price.share(idle_time.numerator, idle_time.denominator * _HOUR)
    return sum(attempt.time for attempt in attempts), busy, idle, cost


def _sum(amounts: Iterable[Money]) -> Money:
    return sum(amounts, Money.ZERO)


def quality_costs(runs: Iterable[tuple[str, ScoredRun]]) -> tuple[QualityCost, ...]:
    """By owner with at least two runs, in the order of their names. ``runs``: each with its owner."""
    owners: defaultdict[str, list[ScoredRun]] = defaultdict(list)
    for owner, run in runs:
        owners[owner].append(run)
    costs = []
    for owner, owner_runs in sorted(owners.items()):
        if len(owner_runs) < 2:
            continue
        by_cost = sorted(owner_runs, key=lambda run: (run.cost.micros, run.job_id))
        cheapest, dearest = by_cost[0], by_cost[-1]
        value_difference = abs(dearest.value - cheapest.value)
        per_point = (dearest.cost - cheapest.cost).scaled(1 / value_difference) if value_difference else None
        costs.append(QualityCost(owner, cheapest, dearest, per_point))
    return tuple(costs)
