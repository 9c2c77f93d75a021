"""Unit metrics of a period: the cost of a successful run, a busy GPU-hour, a million tokens, and a better result (the
difference in cost over the difference in a reported metric). Pure. A metric without a denominator is None: unknown."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction

from broker.core.events.agent_events import ResourceUse
from broker.core.job.jobs import Workload
from broker.core.market.accelerators import card_share, lookup
from broker.core.market.offers import BOUGHT, CapacityType
from broker.core.values.money import Money
from broker.economics.figures import Figure
from broker.ledger.finops.change import NOBODY, Month, owner_of, total
from broker.ledger.finops.idle import IdleCapacity
from broker.ledger.finops.tokens import ModelCost

HOUR = 3_600_000  # milliseconds
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class MeasuredAttempt:
    """The accelerators of an attempt in a time: ``time`` in milliseconds of accelerators, ``price`` (USD an hour of one
    of them, None: unknown), ``use`` of the first machine. ``job``: the name of its job; ``gpus``: how many it had.
    ``may_use_spot``: no guardrail forbids it; ``checkpoint_gap``: the mean time between its checkpoints, None with
    fewer than three. ``begin``: in that time, milliseconds since 1970."""

    job_id: str
    attempt: int
    time: int
    price: Money | None
    team: str | None = None
    project: str | None = None
    job: str = ""
    user: str = ""
    workload: str = ""
    accelerator: str = ""
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    may_use_spot: bool = False
    checkpoint_gap: timedelta | None = None
    gpus: int = 1
    begin: int = 0
    use: ResourceUse = field(default_factory=dict)

    @property
    def owner(self) -> str:
        """The team and its project: ``nlp / llm``."""
        return owner_of(self.team, self.project)

    @property
    def spent(self) -> Money | None:
        return None if self.price is None else self.price.share(self.time, HOUR)


@dataclass(frozen=True, slots=True)
class Targets:
    """Shares: accelerator use in training, in inference and on average at least, idle hours at most, spot among the
    training hours that could run on it at least."""

    training: float
    inference: float
    average: float
    idle: float
    spot: float

    def of(self, workload: str) -> float:
        """The least use of accelerators in such work."""
        return self.inference if workload == Workload.INFERENCE else self.training


@dataclass(frozen=True, slots=True)
class UseShares:
    """What samples measured, as shares of the hours with samples (null: none): use in training, in inference and in
    all work, idle hours (below 5 % of use), waiting for data, the processors' use, and the fullest memory of
    accelerators at its peak as a share of the card's, on average over the hours."""

    training: Figure | None = None
    inference: Figure | None = None
    every: Figure | None = None
    idle: Figure | None = None
    waiting: Figure | None = None
    cpu: Figure | None = None
    gpu_memory: Figure | None = None


def mean_use(attempts: Iterable[MeasuredAttempt], name: str) -> float:
    """The mean of a figure in percent, as a share, over the time of the attempts that measured it; 0 without any."""
    return _mean_use(attempts, name) or 0.0


def _mean_use(attempts: Iterable[MeasuredAttempt], name: str) -> float | None:
    measured = [attempt for attempt in attempts if name in attempt.use]
    time = sum(attempt.time for attempt in measured)
    return sum(attempt.use[name].mean * attempt.time for attempt in measured) / time / 100 if time else None


def use_shares(attempts: Sequence[MeasuredAttempt]) -> UseShares:
    """The shares over all these attempts."""

    def of(workload: Workload) -> float | None:
        return _mean_use((attempt for attempt in attempts if attempt.workload == workload), "gpu")

    in_memory = [
        (attempt.use["gpu_memory"].peak / lookup(attempt.accelerator).memory_gib, attempt.time)
        for attempt in attempts
        if "gpu_memory" in attempt.use
    ]
    memory_time = sum(time for _, time in in_memory)
    waits = [_mean_use(attempts, name) for name in ("gpu_waits_cpu", "gpu_waits_disk")]
    return UseShares(
        training=of(Workload.TRAINING),
        inference=of(Workload.INFERENCE),
        every=_mean_use(attempts, "gpu"),
        idle=_mean_use(attempts, "gpu_idle"),
        waiting=sum(filter(None, waits)) if any(share is not None for share in waits) else None,
        cpu=_mean_use(attempts, "cpu"),
        gpu_memory=sum(share * time for share, time in in_memory) / memory_time if memory_time else None,
    )


USE_BY: Mapping[str, Callable[[MeasuredAttempt], str]] = {
    "team": lambda attempt: attempt.team or NOBODY,
    "project": lambda attempt: attempt.owner,
    "job": lambda attempt: f"{attempt.owner}: {attempt.job}",
    "accelerator": lambda attempt: attempt.accelerator,
    "capacity_type": lambda attempt: attempt.capacity_type.value,
}
"""The dimensions by which use is grouped."""


@dataclass(frozen=True, slots=True)
class GroupUse:
    """The use of accelerators of a group: hours, those with samples, and their shares."""

    group: str
    gpu_hours: Figure
    measured_hours: Figure
    use: UseShares


def use_by(attempts: Iterable[MeasuredAttempt], dimension: str) -> tuple[GroupUse, ...]:
    """The use of each group in a dimension of `USE_BY`, most hours first."""
    groups: defaultdict[str, list[MeasuredAttempt]] = defaultdict(list)
    for attempt in attempts:
        groups[USE_BY[dimension](attempt)].append(attempt)
    rows = []
    for group, members in groups.items():
        sampled = [attempt for attempt in members if "gpu" in attempt.use]
        hours, measured_hours = (float(sum(map(_cards, some)) / HOUR) for some in (members, sampled))
        rows.append(GroupUse(group, hours, measured_hours, use_shares(sampled)))
    return tuple(sorted(rows, key=lambda row: (-row.gpu_hours, row.group)))


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


@dataclass(frozen=True, slots=True)
class MonthCosts:
    """Unit costs of a month (USD; null: unknown): of a successful run, a million tokens, a thousand predictions, and
    of quality in the metric that was asked for."""

    month: str
    spent: Money
    runs: int
    per_run: Money | None
    per_million_tokens: Money | None
    per_thousand_predictions: Money | None
    quality: tuple[QualityCost, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportedTokens:
    """The tokens and predictions that a job reported for the period, and its spending in it (USD)."""

    tokens: float
    spent: Money
    predictions: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitMetrics:
    """The cost of a unit of work in a period of ``timezone``, of all teams or one. Hours are of GPUs, money USD; null:
    unknown, for want of a denominator. ``bought``: use of owned and reserved capacity; ``rented``: of on-demand and
    spot. ``eligible_hours``: rented for training that could run on spot, of which ``eligible_spot_hours`` did.
    ``measured_hours``: those of attempts with samples of their utilization; ``busy_hours`` and ``idle_hours``
    (below 5 %) are parts of them, ``idle_cost`` at the prices of placement. ``capacity_use``: the used share of held
    capacity; ``coverage``: the share of all hours that ran on it. ``quality``: of the metric that was asked for;
    ``trend``: months, the oldest first; ``groups``: use by the dimension that was asked for. ``served``: models whose
    servers count tokens."""

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
    predictions: Figure = 0.0
    per_thousand_predictions: Money | None = None
    use: UseShares = UseShares()
    targets: Targets | None = None
    quality: tuple[QualityCost, ...] = ()
    trend: tuple[MonthCosts, ...] = ()
    groups: tuple[GroupUse, ...] = ()
    served: tuple[ModelCost, ...] = ()


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
    sampled = [record for record in measured if "gpu" in record.use and record.time > 0]
    measured_time, busy, idle, idle_cost = _utilization(sampled)
    holdings, reports = list(held), list(reported)
    held_time, idle_held_time = (
        sum(record.held_time for record in holdings),
        sum(record.idle_time for record in holdings),
    )
    tokens = sum(record.tokens for record in reports)
    per_hour = gpu_spent.share(HOUR, time) if time else None
    share = busy / measured_time if measured_time else Fraction(0)
    return UnitMetrics(
        since=since,
        until=until,
        spent=spent,
        gpu_hours=time / HOUR,
        gpu_spent=gpu_spent,
        bought=_sum(used.spent for _, used in bought),
        rented=spent - _sum(used.spent for _, used in bought),
        spot_hours=sum(used.time for used in spot) / HOUR,
        spot_spent=_sum(used.spent for used in spot),
        wasted=_sum(used.wasted for used in cells.values()),
        tagged=tagged.micros / spent.micros if spent else None,
        runs=runs,
        per_run=spent.share(1, runs) if runs else None,
        per_gpu_hour=per_hour,
        measured_hours=measured_time / HOUR,
        busy_hours=float(busy) / HOUR,
        idle_hours=float(idle) / HOUR,
        idle_cost=idle_cost,
        per_busy_hour=per_hour.share(share.denominator, share.numerator) if per_hour is not None and share else None,
        capacity_use=1 - idle_held_time / held_time if held_time else None,
        coverage=sum(used.time for cell, used in bought if cell.accelerator) / time if time else None,
        tokens=tokens,
        per_million_tokens=per_unit(reports, lambda record: record.tokens, _MILLION),
        predictions=sum(record.predictions for record in reports),
        per_thousand_predictions=per_unit(reports, lambda record: record.predictions, 1000),
        use=use_shares(sampled),
    )


def _utilization(attempts: Sequence[MeasuredAttempt]) -> tuple[int, Fraction, Fraction, Money]:
    """Measured, busy and idle milliseconds, and the cost of the idle ones (USD)."""
    busy = idle = Fraction(0)
    cost = Money.ZERO
    for attempt in attempts:
        share, idle_share = (Fraction(attempt.use[name].mean) / 100 for name in ("gpu", "gpu_idle"))
        idle_time = idle_share * attempt.time
        busy, idle = busy + share * _cards(attempt), idle + idle_share * _cards(attempt)
        if attempt.price is not None:
            cost += attempt.price.share(idle_time.numerator, idle_time.denominator * HOUR)
    return int(sum(map(_cards, attempts))), busy, idle, cost


def _cards(attempt: MeasuredAttempt) -> Fraction:
    """Its time in milliseconds of cards: a part counts as its share of the card's memory."""
    return attempt.time * card_share(attempt.accelerator)[1]


def per_unit(reports: Iterable[ReportedTokens], count: Callable[[ReportedTokens], float], units: int) -> Money | None:
    """The cost (USD) of so many units, over the jobs that reported any; None without one."""
    counted = [record for record in reports if count(record) > 0]
    total_count = sum(map(count, counted))
    return _sum(record.spent for record in counted).scaled(units / total_count) if counted else None


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
