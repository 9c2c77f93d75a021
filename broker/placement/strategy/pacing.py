"""Uniform Progress, the strategy without a model: the published baseline ("Can't Be Late", NSDI 2024) in the stronger
variant of its authors' code. It needs no history, so the planned strategy falls back to it. With several pools it takes
the cheapest available.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.placement.strategy.safety import keep_deadline
from broker.placement.strategy.situation import EPSILON, Mode, Situation, StrategyDecision, StrategyTask, cheapest


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
