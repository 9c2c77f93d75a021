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
    """The capacity that the job pays for. ``BOTH``: it works on-demand while a spot machine boots to take over."""

    IDLE = "idle"
    SPOT = "spot"
    ON_DEMAND = "on_demand"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Handover:
    """A move from on-demand at work to a spot machine that boots beside it for ``boot``, both paid. Then on-demand ends
    and spot restores for ``restore``. In the last ``upload`` of the boot, on-demand does not work but writes a
    checkpoint. In seconds."""

    boot: float
    restore: float
    upload: float = 0.0

    def stopped(self, left: float, seconds: float) -> float:
        """How many of the next ``seconds`` do no work, with ``left`` seconds of the boot to go."""
        return max(min(left + self.restore, seconds) - max(left - self.upload, 0.0), 0.0)


@dataclass(frozen=True, slots=True)
class StrategyTask:
    """The job as a strategy sees it: ``work`` on the reference machine, ``deadline`` after its start, ``changeover``
    for every start or move, and ``tick``, how long a decision binds. All in seconds. ``handover``: how on-demand may
    hand over to spot without a stop; None if it may not."""

    work: float
    deadline: float
    changeover: float
    tick: float
    handover: Handover | None = None


@dataclass(frozen=True, slots=True)
class Situation:
    """All that is known at the start of a tick.

    ``spot``: price by pool with capacity now; other pools have none. A job whose machine was lost is idle.
    ``changeover_left``: seconds until the current machine makes progress; in `Mode.BOTH`, where ``pool`` is the spot
    machine's, until that has booted. If it is lost there, the job is on-demand at work.
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
    """The action until the next tick. ``pool``: of spot and both only. ``why``: for display and decision logs."""

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
# - a working machine may always be kept: its slack was checked when it was taken;
# - a handover to spot needs R ≥ C + restore + upload + d: spot may be lost as soon as it has taken over.


def may_start_spot(task: StrategyTask, now: Situation) -> bool:
    """Whether the deadline holds even if a start on spot fails."""
    return slack(task, now) >= 2 * task.changeover - EPSILON


def may_wait(task: StrategyTask, now: Situation) -> bool:
    """Whether the deadline holds after a tick without a machine."""
    spare = slack(task, now)
    return spare >= 2 * task.changeover - EPSILON and spare - task.tick >= task.changeover - EPSILON


def may_hand_over(task: StrategyTask, now: Situation) -> bool:
    """Whether a spot machine may boot, or go on booting, beside the on-demand machine at work."""
    if (handover := task.handover) is None:
        return False
    if now.mode is Mode.BOTH:
        upload = min(handover.upload, now.changeover_left)
    elif now.mode is Mode.ON_DEMAND and now.changeover_left <= 0 and now.work_left > handover.boot + task.tick:
        upload = handover.upload
    else:
        return False
    return slack(task, now) >= task.changeover + handover.restore + upload - EPSILON


def keep_deadline(task: StrategyTask, now: Situation, decision: StrategyDecision) -> StrategyDecision:
    """The strategy's ``decision`` if it is safe and possible, else the nearest safe decision. Never raises."""
    if decision.mode is Mode.ON_DEMAND:
        return decision
    if decision.mode is Mode.BOTH:
        is_same = now.mode is not Mode.BOTH or decision.pool == now.pool
        if is_same and decision.pool in now.spot and may_hand_over(task, now):
            return decision
        if now.mode is not Mode.SPOT:
            return StrategyDecision(Mode.ON_DEMAND, why="safety net: no time to hand over")
    elif decision.mode is Mode.SPOT and decision.pool in now.spot:
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
    two changeovers, then take spot as soon as it appears; with a handover it need not be ahead. A working spot machine
    is never left.
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
        if now.mode is Mode.BOTH:
            return StrategyDecision(Mode.BOTH, now.pool, why="spot boots to take over")
        if now.mode is Mode.ON_DEMAND:
            if now.spot and progress >= now.elapsed * pace - EPSILON and may_hand_over(task, now):
                return StrategyDecision(Mode.BOTH, cheapest(now.spot), why="spot is there to take over")
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
