"""The values a strategy works on. Seconds and USD per hour throughout; ``elapsed`` counts from the job's start.

A *tick* is the time between two decisions. A *changeover* is boot plus restore: billed, without progress. A *pool* is
one place where spot capacity of the right kind may be had (provider, zone, type).

Uniform Progress, the strategy without a model: the published baseline ("Can't Be Late", NSDI 2024) in the stronger
variant of its authors' code. It needs no history, so the planned strategy falls back to it. With several pools it takes
the cheapest available.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

EPSILON = 1e-6
"""Tolerance in seconds. The rounding errors of float sums over weeks are far smaller."""


class Mode(StrEnum):
    """The capacity that the job pays for."""

    IDLE = "idle"
    SPOT = "spot"
    ON_DEMAND = "on_demand"


@dataclass(frozen=True, slots=True)
class StrategyTask:
    """The job as a strategy sees it: ``work`` on the reference machine, ``deadline`` after its start, ``changeover``
    for every start or move, and ``tick``, how long a decision binds. All in seconds."""

    work: float
    deadline: float
    changeover: float
    tick: float


@dataclass(frozen=True, slots=True)
class Situation:
    """All that is known at the start of a tick.

    ``spot``: price by pool with capacity now; other pools have none. A job whose machine was lost is idle.
    ``changeover_left``: seconds until the current machine makes progress.
    """

    elapsed: float
    work_left: float
    mode: Mode
    pool: str | None
    changeover_left: float
    spot: Mapping[str, float]
    on_demand_price: float


@dataclass(frozen=True, slots=True)
class StrategyDecision:
    """The action until the next tick. ``pool`` is set for spot only. ``why``: for display and decision logs."""

    mode: Mode
    pool: str | None = None
    why: str = ""


class StrategySession(Protocol):
    """A strategy for one job, called once per tick, in order; it may keep state."""

    def decide(self, now: Situation) -> StrategyDecision: ...


def slack(task: StrategyTask, now: Situation) -> float:
    """Slack in seconds: time left minus work left, R − C."""
    return task.deadline - now.elapsed - now.work_left


def cheapest(spot: Mapping[str, float]) -> str | None:
    """The available pool with the lowest price; ties go to the first by name, so that logs can be compared."""
    return min(spot, key=lambda pool: (spot[pool], pool), default=None)


# The safety net: hard rules around every strategy, so that a wrong plan cannot miss a deadline.
#
# On-demand capacity is assumed to be always available. With C work left, R time left and changeover d:
#
# - a start on spot, or a move to it, needs R ≥ C + 2d: the boot may be wasted (d), then on-demand boots (d);
# - waiting one more tick needs R ≥ C + 2d now and R − tick ≥ C + d, so that on-demand still makes it afterwards;
# - otherwise an idle job goes on-demand, and stays there to the end because R − C never grows;
# - a working machine may always be kept: its slack was checked when it was taken.


def may_start_spot(task: StrategyTask, now: Situation) -> bool:
    """Whether the deadline holds even if a start on spot fails."""
    return slack(task, now) >= 2 * task.changeover - EPSILON


def may_wait(task: StrategyTask, now: Situation) -> bool:
    """Whether the deadline holds after a tick without a machine."""
    spare = slack(task, now)
    return spare >= 2 * task.changeover - EPSILON and spare - task.tick >= task.changeover - EPSILON


def keep_deadline(task: StrategyTask, now: Situation, decision: StrategyDecision) -> StrategyDecision:
    """The strategy's ``decision`` if it is safe and possible, else the nearest safe decision. Never raises."""
    if decision.mode is Mode.ON_DEMAND:
        return decision
    if decision.mode is Mode.SPOT and decision.pool in now.spot:
        if now.mode is Mode.SPOT and decision.pool == now.pool:
            return decision
        if may_start_spot(task, now):
            return decision
    elif may_wait(task, now):
        return decision if decision.mode is Mode.IDLE else StrategyDecision(Mode.IDLE, why="no such capacity")
    if now.mode is Mode.SPOT and now.pool in now.spot:
        return StrategyDecision(Mode.SPOT, now.pool, why="safety net: no time to move")
    spare, needed = slack(task, now) / 60, 2 * task.changeover / 60
    return StrategyDecision(
        Mode.ON_DEMAND, why=f"safety net: {spare:.0f} min to spare, a start on spot needs {needed:.0f}"
    )


@dataclass(frozen=True, slots=True)
class UniformProgress:
    """Keep progress on the line from (0, 0) to (deadline, work); spot whenever it is free to take.

    Idle: spot if available, else on-demand when behind the line, else wait. On-demand: stay until ahead of the line by
    two changeovers, then take spot as soon as it appears. A working spot machine is never left.
    """

    task: StrategyTask

    def decide(self, now: Situation) -> StrategyDecision:
        return keep_deadline(self.task, now, self._wish(now))

    def _wish(self, now: Situation) -> StrategyDecision:
        task = self.task
        pace = task.work / task.deadline
        progress = task.work - now.work_left
        if now.mode is Mode.SPOT and now.pool in now.spot:
            return StrategyDecision(Mode.SPOT, now.pool, why="never leave a working spot machine")
        if now.mode is Mode.ON_DEMAND:
            is_ahead = progress >= (now.elapsed + 2 * task.changeover) * pace - EPSILON
            return (take_spot(now) if is_ahead else None) or StrategyDecision(Mode.ON_DEMAND, why="catch up")
        if progress < now.elapsed * pace - EPSILON:
            return take_spot(now) or StrategyDecision(Mode.ON_DEMAND, why="behind the line")
        return take_spot(now) or StrategyDecision(Mode.IDLE, why="on the line")


def take_spot(now: Situation) -> StrategyDecision | None:
    """Spot: the machine we have, else the cheapest pool; None when there is none."""
    if now.mode is Mode.SPOT and now.pool in now.spot:
        return StrategyDecision(Mode.SPOT, now.pool, why="keep spot")
    pool = cheapest(now.spot)
    return StrategyDecision(Mode.SPOT, pool, why="spot is there") if pool is not None else None
