"""Simulations as results. Times in seconds, amounts as decimal strings in USD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Self

from pydantic import Field

from broker.app.billing.budgets import rules_of
from broker.app.results.values import Moment, Result
from broker.core.ports import PolicySet
from broker.core.values.money import Money
from broker.whatif.figures import GANGS, SimulationResult, TeamTally, WaitFigures, agreement, gang_of, jain
from broker.whatif.market import PoolInUse
from broker.whatif.over_time import OverTime
from broker.whatif.workload import DAY, HOUR


class SimulatedWaiting(Result):
    """From submission to the first machine, of the jobs that got one. ``waited_share``: of them that waited for a
    minute or longer."""

    mean_s: float
    p50_s: float
    p95_s: float
    longest_s: float
    waited_share: float = 0.0

    @classmethod
    def of(cls, found: WaitFigures) -> Self:
        return cls(
            mean_s=round(found.mean, 1), p50_s=found.p50, p95_s=found.p95, longest_s=found.longest,
            waited_share=round(found.waited, 4),
        )  # fmt: skip


class SimulatedTeam(Result):
    """Jobs of a team. ``refused``: submissions by reason; ``put_off``: jobs that the policies did not let start at
    first when their turn came; ``stopped``: by their limits; ``unfinished``: open when the simulation ended; ``late``:
    of those ``with_deadline``; ``slowdown``: the mean of (finish - submission) / work, bounded: work of less than ten
    seconds counts as ten, and no slowdown is less than 1. GPU-hours: ``asked`` by all submitted jobs, ``useful``: the
    part of it that was done, ``used`` by capacity type. ``cost`` by kind of money."""

    team: str
    submitted: int
    refused: dict[str, int]
    started: int
    put_off: dict[str, int]
    finished: int
    stopped: dict[str, int]
    unfinished: int
    with_deadline: int
    late: int
    interruptions: int
    waiting: SimulatedWaiting
    slowdown: float | None
    asked_gpu_hours: float
    useful_gpu_hours: float
    used_gpu_hours: dict[str, float]
    cost: dict[str, str]

    @classmethod
    def of(cls, team: str, tally: TeamTally) -> Self:
        return cls.from_parts(
            tally,
            team=team,
            refused=dict(tally.refused.most_common()),
            put_off=dict(tally.put_off.most_common()),
            stopped={str(end): number for end, number in tally.stopped.most_common()},
            waiting=SimulatedWaiting.of(WaitFigures.of(tally.waits)),
            slowdown=round(tally.slowdowns / tally.finished, 3) if tally.finished else None,
            asked_gpu_hours=round(tally.asked_gpu_seconds / HOUR, 1),
            useful_gpu_hours=round(tally.useful_gpu_seconds / HOUR, 1),
            used_gpu_hours={
                str(kind): round(seconds / HOUR, 1) for kind, seconds in sorted(tally.used_gpu_seconds.items())
            },
            cost={str(kind): amount.as_json() for kind, amount in sorted(tally.spent.items())},
        )


class SimulatedGang(Result):
    """Waiting of jobs of one size, in GPUs. ``recorded``: what a trace says of them; null without one."""

    gpus: str
    started: int
    waiting: SimulatedWaiting
    recorded: SimulatedWaiting | None

    @classmethod
    def of(cls, size: str, waits: Sequence[int], recorded: Sequence[int]) -> Self:
        told = SimulatedWaiting.of(WaitFigures.of(recorded)) if recorded else None
        return cls(gpus=size, started=len(waits), waiting=SimulatedWaiting.of(WaitFigures.of(waits)), recorded=told)


class RecordedComparison(Result):
    """Waiting as a trace recorded it, beside the simulated one. ``teams``: by team; ``teams_agree``, ``gangs_agree``:
    Spearman's rank correlation of the mean waits, simulated and recorded, over teams and over sizes of jobs; null for
    fewer than two."""

    total: SimulatedWaiting
    teams: dict[str, SimulatedWaiting]
    teams_agree: float | None
    gangs_agree: float | None

    @classmethod
    def of(cls, found: SimulationResult, gangs: Sequence[SimulatedGang]) -> Self | None:
        recorded = found.workload.recorded
        if not recorded:
            return None
        by_team: dict[str, list[int]] = {}
        for one in recorded:
            by_team.setdefault(one.team, []).append(one.waited)
        then = {team: WaitFigures.of(waits) for team, waits in sorted(by_team.items())}
        both = [(WaitFigures.of(found.teams[team].waits).mean, then[team].mean) for team in then if team in found.teams]
        sizes = [(one.waiting.mean_s, one.recorded.mean_s) for one in gangs if one.recorded is not None and one.started]
        return cls(
            total=SimulatedWaiting.of(WaitFigures.of([one.waited for one in recorded])),
            teams={team: SimulatedWaiting.of(waits) for team, waits in then.items()},
            teams_agree=_agreement(both),
            gangs_agree=_agreement(sizes),
        )


def _agreement(pairs: Sequence[tuple[float, float]]) -> float | None:
    return _three(agreement([now for now, _ in pairs], [then for _, then in pairs]))


def _gangs(found: SimulationResult) -> list[SimulatedGang]:
    recorded: dict[str, list[int]] = {size: [] for size in GANGS}
    for one in found.workload.recorded:
        recorded[gang_of(one.gpus)].append(one.waited)
    return [SimulatedGang.of(size, found.gangs[size], recorded[size]) for size in GANGS]


class SimulatedPoolUse(Result):
    """What was used of a pool within the days in which jobs arrive. ``utilisation``: of its machines, null without a
    limit; ``gpu_utilisation``: of their GPUs, less where jobs leave some idle."""

    pool: str
    machines: int | None
    machine_hours: float
    gpu_hours: float
    utilisation: float | None
    gpu_utilisation: float | None

    @classmethod
    def of(cls, pool: PoolInUse, days: int) -> Self:
        there = (pool.machines or 0) * days * DAY
        gpus = there * max(pool.offer.count, 1)
        return cls(
            pool=pool.offer.pool,
            machines=pool.machines,
            machine_hours=round(pool.used_seconds / HOUR, 1),
            gpu_hours=round(pool.used_gpu_seconds / HOUR, 1),
            utilisation=round(pool.used_seconds / there, 4) if there else None,
            gpu_utilisation=round(pool.used_gpu_seconds / gpus, 4) if gpus else None,
        )


class SimulatedBudgetPeriod(Result):
    """A budget in one period. ``share``: of the amount that was spent; null if the amount is not known. ``most_held``:
    the most that open jobs held of it when a job was judged: a waiting job holds what its dearest fallback may cost, so
    a budget may refuse jobs although little is spent."""

    budget: str
    period_start: Moment
    amount: str | None
    spent: str
    most_held: str
    share: float | None

    @classmethod
    def of(cls, budget: str, start: datetime, amount: Money | None, spent: Money, held: Money) -> Self:
        share = round(spent.micros / amount.micros, 4) if amount else None
        return cls(
            budget=budget, period_start=start, amount=amount.as_json() if amount else None, spent=spent.as_json(),
            most_held=held.as_json(), share=share,
        )  # fmt: skip


class SimulatedOverTime(Result):
    """Means of each ``step_s`` seconds from the start, in the days in which jobs arrive: accelerators in use by
    capacity type (nodes of CPU jobs count as one), jobs that wait, and spend in USD an hour by kind of money, with the
    cost of an attempt spread evenly over it."""

    step_s: int
    gpus_in_use: dict[str, list[float]]
    waiting: list[float]
    usd_per_hour: dict[str, list[float]]

    @classmethod
    def of(cls, found: OverTime) -> Self:
        return cls(
            step_s=found.step,
            gpus_in_use={str(kind): _rounded(one.means()) for kind, one in sorted(found.gpus.items())},
            waiting=_rounded(found.waiting_means()),
            usd_per_hour={
                str(kind): _rounded([each * HOUR / 1e6 for each in one.means()])
                for kind, one in sorted(found.spending.items())
            },
        )


class SimulationReport(Result):
    """A workload played on a virtual clock. ``policies``: the files; empty: those in force. ``digest``: SHA-256 over
    every event and movement: equal for the same workload, policies, seed and options. ``balanced``: whether the ledger
    balances, with nothing held for a job; ``faults``: what is wrong otherwise. ``fairness_of_service``: Jain's index
    over teams of useful by asked GPU-hours; ``fairness_of_slowdown``: the same of their slowdowns. ``decisions``: about
    classes of identical jobs; ``rounds``: of the queue; ``over_time``: null in reports of earlier versions; ``gangs``:
    waiting by the size of jobs; ``recorded``: of a trace that says how long its jobs waited."""

    simulated: bool = True
    workload: str
    start: Moment
    days: int
    seed: int
    jobs: int
    policies: list[str]
    capacity: dict[str, int]
    demand: dict[str, float]
    ended_after_s: int
    total: SimulatedTeam
    teams: list[SimulatedTeam]
    pools: list[SimulatedPoolUse]
    budgets: list[SimulatedBudgetPeriod]
    fairness_of_service: float | None
    fairness_of_slowdown: float | None
    movements: int
    decisions: int
    rounds: int
    balanced: bool
    faults: list[str]
    digest: str
    notes: list[str]
    over_time: SimulatedOverTime | None = None
    gangs: list[SimulatedGang] = Field(default_factory=list)
    recorded: RecordedComparison | None = None

    @classmethod
    def of(cls, found: SimulationResult, policy: PolicySet, files: list[str], capacity: Mapping[str, int]) -> Self:
        total, gangs = TeamTally(), _gangs(found)
        for tally in found.teams.values():
            total.add(tally)
        served = [one.useful_gpu_seconds / one.asked_gpu_seconds for one in found.teams.values()]
        slow = [one.slowdowns / one.finished for one in found.teams.values() if one.finished]
        amounts = {rule.spec.id: rule.config.amount for rule in rules_of(policy)}
        return cls.from_parts(
            found.workload,
            found.size,
            found,
            workload=found.workload.name,
            jobs=total.submitted,
            policies=files,
            capacity=dict(capacity),
            demand=dict(found.size.demand),
            ended_after_s=found.seconds,
            total=SimulatedTeam.of("", total),
            teams=[SimulatedTeam.of(name, tally) for name, tally in found.teams.items()],
            pools=[SimulatedPoolUse.of(pool, found.size.days) for pool in found.pools],
            budgets=_budgets(found, amounts),
            fairness_of_service=_three(jain(served)),
            fairness_of_slowdown=_three(jain(slow)),
            movements=found.ledger.movements,
            balanced=not found.faults,
            faults=found.faults[:20],
            gangs=gangs,
            recorded=RecordedComparison.of(found, gangs),
        )


def _budgets(found: SimulationResult, amounts: Mapping[str, Money]) -> list[SimulatedBudgetPeriod]:
    """Each budget in the periods in which money was spent or held; in its first period if there was none."""
    rows = []
    held_by = found.ledger.most_held_by_period()
    for name, spent in sorted(found.ledger.spent_by_period().items()):
        held = {start: amount for start, amount in held_by[name].items() if amount}
        for start in sorted({*spent, *held}) or [found.workload.start]:
            at = spent.get(start, Money.ZERO), held.get(start, Money.ZERO)
            rows.append(SimulatedBudgetPeriod.of(name, start, amounts.get(name), *at))
    return rows


def _rounded(values: Sequence[float]) -> list[float]:
    return [round(value, 2) for value in values]


def _three(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
