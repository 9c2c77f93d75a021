"""Reports of spending as results. Amounts are USD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Self

from broker.app.documents import Figure, Moment, Result
from broker.core.values import figures
from broker.core.values.money import Money
from broker.economics.reserve.capacity_findings import CapacityFinding
from broker.ledger.finops.accuracy import MeasuredSpeed, PredictionError
from broker.ledger.finops.advice import AdviceAnswer, AdviceKind, MonthAdvice
from broker.ledger.finops.anomalies import IncidentAnswer
from broker.ledger.finops.change import Change, Part
from broker.ledger.finops.showback import Correction, SharingRules, Statement, total
from broker.ledger.finops.tokens import ModelCost
from broker.ledger.finops.units import Targets, UnitMetrics, UseShares


class SpendGroup(Result):
    """The spend of one group: money in USD by kind, machine and GPU time in hours. ``values``: what the group is in
    each dimension, in their order; ``group``: the same in one text. ``bought``: the part of the spend on owned and
    reserved machines; ``rented``: on on-demand and spot ones.

    Machine time, GPU time and attempts are those of the period; an attempt counts once its machines exist. ``held``:
    the present holds of jobs of the group, waiting ones included, whatever pays for their present machines, and of
    purchases; a job counts in the group of its latest attempt. Zero in reports that end before now, because holds are
    for the future.
    """

    group: str
    values: tuple[str, ...]
    cash: Money
    amortised: Money
    sandbox: Money
    held: Money
    bought: Money
    rented: Money
    gpu_hours: Figure
    machine_hours: Figure
    attempts: int
    jobs: int

    def with_values(self, values: tuple[str, ...]) -> Self:
        """The same spend, of a group with these values."""
        return self.model_copy(update={"values": values, "group": ", ".join(values)})

    def __add__(self, other: SpendGroup) -> Self:
        names = type(self).model_fields.keys() - {"group", "values"}
        return self.model_copy(update={name: getattr(self, name) + getattr(other, name) for name in names})


class SpendTotal(Result):
    """The sums over all groups (USD). ``bought_in_advance``: paid in the period for capacity that is used later, and in
    no group; null in the report of single teams."""

    cash: Money
    amortised: Money
    sandbox: Money
    held: Money
    bought: Money
    rented: Money
    bought_in_advance: Money | None


class SpendReport(Result):
    """Spend by one or several dimensions (separated by commas), the most expensive group first; times null where the
    period is open. ``timezone``: in which months begin."""

    by: str
    since: Moment | None
    until: Moment | None
    timezone: str
    sandbox_only: bool
    rows: list[SpendGroup]
    total: SpendTotal


class TeamCostResult(Result):
    """What a team's own use cost, in cash, of what was paid before and in depreciation of owned machines (which no hold
    or bill has), its share of idle and shared cost (negative where it gives its own away), and all of it (USD).
    ``on_own``: the part of its own use on owned and reserved machines, ``rented``: on on-demand and spot ones."""

    team: str
    cash: Money
    amortised: Money
    depreciation: Money
    idle: Money
    shared: Money
    on_own: Money
    rented: Money
    total: Money


class ShowbackReport(Result):
    """The cost of each team's use in a month, most expensive first, as known now. ``over``: whether the month has
    ended; ``held``: set aside now by team, of a month that runs; ``bought_in_advance``: charged to nobody
    (USD).
    """

    month: str
    timezone: str
    since: Moment
    until: Moment
    over: bool
    rules: SharingRules
    rows: list[TeamCostResult]
    total: TeamCostResult
    held: dict[str, Money]
    bought_in_advance: Money


class ChargebackStatement(Result):
    """The statement of a month, as it was frozen. ``corrections`` of months frozen before are billed with it, and part
    of ``charged``; ``corrected_since`` are those of this month, billed with statements frozen later (USD)."""

    month: str
    timezone: str
    frozen_at: Moment
    frozen_by: str
    rules: SharingRules
    rows: list[TeamCostResult]
    total: TeamCostResult
    corrections: list[Correction]
    charged: Money
    bought_in_advance: Money
    corrected_since: list[Correction]

    @classmethod
    def of(cls, statement: Statement, corrected_since: Sequence[Correction]) -> Self:
        return cls.from_parts(
            statement, total=total(statement.rows), charged=statement.total, corrected_since=corrected_since
        )


class FrozenMonth(Result):
    """A month whose statement is frozen, and what it charges (USD)."""

    month: str
    timezone: str
    frozen_at: Moment
    frozen_by: str
    charged: Money

    @classmethod
    def of(cls, statement: Statement) -> Self:
        return cls.from_parts(statement, charged=statement.total)


class ChargebackList(Result):
    """All statements, newest month first."""

    statements: list[FrozenMonth]


class ReviewedMonth(Result):
    """One month, or the days of it that are compared (UTC). Money in USD: ``spent`` is the cost of use, cash and
    amortized; ``cash`` the amount payable, including capacity
    ``bought_in_advance``. Hours are of GPUs; ``price``: USD
    per GPU-hour, null without any. ``eligible_hours``: rented for training that could run on spot, of which
    ``eligible_spot_hours`` did. ``on_own``: use of owned and reserved capacity, ``rented``: of all other.
    ``use``: by the agents' samples."""

    since: Moment
    until: Moment
    spent: Money
    cash: Money
    bought_in_advance: Money
    amortised: Money
    gpu_hours: Figure
    gpu_spent: Money
    price: Money | None
    eligible_hours: Figure
    eligible_spot_hours: Figure
    wasted: Money
    untagged: Money
    on_own: Money
    rented: Money
    use: UseShares


def use_figures(use: UseShares, targets: Targets | None) -> Iterator[tuple[str, str]]:
    """The figures that samples measured, as names and texts, with their targets."""

    def text(value: float | None, target: float | None = None, *, at_most: bool = False) -> str:
        if value is None:
            return "unknown"
        goal = "" if target is None else f", {target_text(value, target, at_most=at_most)}"
        return f"{100 * value:.0f} %{goal}"

    for place, value, target in (
        ("in training", use.training, targets.training if targets else None),
        ("in inference", use.inference, targets.inference if targets else None),
        ("in all work", use.every, targets.average if targets else None),
    ):
        yield f"GPU use {place}", text(value, target)
    yield "idle share", text(use.idle, targets.idle if targets else None, at_most=True)
    yield "GPUs wait for data", text(use.waiting)
    yield "GPU memory at the peak", text(use.gpu_memory)
    yield "CPU use", text(use.cpu)


def served_text(model: ModelCost) -> str:
    """The tokens of a model, their cost, its idle part, and the prices of a million."""
    idle = f", {100 * model.idle_cost.micros / model.cost.micros:.0f} % of it idle" if model.cost else ""
    prices = {
        "a million": model.per_million,
        "a million in, busy and not cached": model.per_million_input,
        "a million out, busy": model.per_million_output,
    }
    tokens = f"{model.input:,} tokens in ({model.cached:,} cached), {model.output:,} out"
    texts = [
        f"{figures.money(price, 2 if price >= Money.usd(1) else 4)} {name}"
        for name, price in prices.items()
        if price is not None
    ]
    weights = ["in and out by tokens, as the server measures no seconds"] if model.by_weights else []
    return "; ".join([f"{tokens}, {figures.money(model.cost)}{idle}", *texts, *weights])


def spot_text(metrics: UnitMetrics) -> str:
    """The share on spot of the training that could run there, with its target."""
    if not metrics.eligible_hours:
        return "unknown"
    share, hours = metrics.eligible_spot_hours / metrics.eligible_hours, f"{metrics.eligible_hours:,.1f}"
    goal = f", {target_text(share, metrics.targets.spot)}" if metrics.targets else ""
    return f"{100 * share:.0f} % of {hours} rented GPU-hours that could{goal}"


def target_text(value: float, target: float, *, at_most: bool = False) -> str:
    """``target: over 70 %, missed``"""
    met = value < target if at_most else value > target
    return f"target: {'below' if at_most else 'over'} {100 * target:.0f} %{'' if met else ', missed'}"


class ReviewedTeam(Result):
    """The cost of a team's use before and in the month (USD)."""

    team: str
    before: Money
    spent: Money


class ReviewedBudget(Result):
    """A monthly budget in force now, and the spend under it in the month (USD)."""

    name: str
    limit: Money
    spent: Money


class FollowedAdviceResult(Result):
    """Advice on the month before: what it could have saved ``then``, and could ``now`` (USD). ``job_then``,
    ``job_now``: of jobs of a name, the cost of one of them (metered; null: none ran)."""

    id: str
    kind: AdviceKind
    about: str
    answer: AdviceAnswer | None
    then: Money
    now: Money
    job_then: Money | None
    job_now: Money | None


class ReviewReport(Result):
    """A month or quarter (``kind``) against the one before. ``over``: whether it has ended; otherwise as many days of
    both are compared. ``change`` (USD) is the sum of ``parts``, by their names, and that of ``causes`` and
    ``other_causes``."""

    month: str
    kind: str
    timezone: str
    over: bool
    before: ReviewedMonth
    after: ReviewedMonth
    change: Money
    parts: dict[Part, Money]
    causes: list[Change]
    other_causes: Money
    teams: list[ReviewedTeam]
    budgets: list[ReviewedBudget]
    advice: list[MonthAdvice]
    followed: list[FollowedAdviceResult]
    capacity: list[CapacityFinding]
    targets: Targets


class ForecastsReport(Result):
    """Predictions of the first plans of successful ``runs`` against what happened, by kind; amounts USD, times hours.
    Of more than 2,000 runs those count that ended last. ``unpredicted``: runs of unknown work, whose time and cost no
    plan could predict. ``measured``: what the runs measured, by accelerator, without runs on several kinds; null: not
    reported."""

    since: Moment
    until: Moment
    timezone: str
    team: str | None
    runs: int
    unpredicted: int
    unpredicted_share: Figure | None
    errors: list[PredictionError]
    measured: list[MeasuredSpeed]


class IncidentCauseResult(Result):
    """A job, and its spend above its average of the four weeks before (USD)."""

    job: str
    user: str
    excess: Money


class SpendingIncidentResult(Result):
    """Days (UTC, both included) on which a team spent more than its recent pattern predicts. ``excess``: above the
    usual level; ``spent``: in all (USD), ``on_own`` the part of it on owned and reserved machines, ``rented`` on
    on-demand and spot ones. ``running``: the last day is today. ``answer``: null if nobody has said anything."""

    team: str
    first: date
    last: date
    spent: Money
    on_own: Money
    rented: Money
    excess: Money
    running: bool
    causes: list[IncidentCauseResult]
    answer: IncidentAnswer | None


class IncidentList(Result):
    """Incidents of the last 30 days, newest first."""

    incidents: list[SpendingIncidentResult]


class FocusExportResult(Result):
    """A written export. ``closed``: whether a repeated export gives the same file, which is so from ``closes``
    on; ``corrections``: rows about earlier months; the sums are of all rows."""

    file: str
    version: str
    month: str
    timezone: str
    closed: bool
    closes: Moment
    rows: int
    corrections: int
    billed_cost: Money
    effective_cost: Money
