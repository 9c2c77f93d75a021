"""Published and simple strategies for comparison, besides those of `placement.strategy.pacing`."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.placement.strategy.pacing import UniformProgress
from broker.placement.strategy.safety import keep_deadline
from broker.placement.strategy.situation import EPSILON, Mode, Situation, StrategyDecision, StrategyTask

SLICES = 10


@dataclass(slots=True)
class EagerNextRegion:
    """SkyPilot's EAGER_NEXT_REGION with the pacing of Uniform Progress.

    After a loss it tries the next pool with capacity at once, in a cyclic order that starts with the cheapest; the lost
    pool comes last. Uniform Progress decides when to use spot at all.
    """

    task: StrategyTask
    order: list[str] = field(default_factory=list)
    last: str | None = None

    def decide(self, now: Situation) -> StrategyDecision:
        for pool in sorted(now.spot, key=lambda pool: (now.spot[pool], pool)):
            if pool not in self.order:
                self.order.append(pool)
        wish = UniformProgress(self.task).decide(now)
        if wish.mode is not Mode.SPOT or (now.mode is Mode.SPOT and now.pool in now.spot):
            return wish
        at = self.order.index(self.last) + 1 if self.last in self.order else 0
        self.last = next(pool for pool in self.order[at:] + self.order[:at] if pool in now.spot)
        return StrategyDecision(Mode.SPOT, self.last, why="next region")


@dataclass(frozen=True, slots=True)
class TimeSliced:
    """Greedy within each of ten equal slices of time; each slice must finish its share of the work by its end."""

    task: StrategyTask

    def decide(self, now: Situation) -> StrategyDecision:
        return keep_deadline(self.task, now, self._wish(now))

    def _wish(self, now: Situation) -> StrategyDecision:
        task = self.task
        length = task.deadline / SLICES
        slice_ends = (int((now.elapsed + EPSILON) / length) + 1) * length
        owed = task.work * slice_ends / task.deadline - (task.work - now.work_left)
        time = slice_ends - now.elapsed
        if now.mode is Mode.SPOT and now.pool in now.spot:
            return StrategyDecision(Mode.SPOT, now.pool, why="keep spot")
        roomy = owed <= EPSILON or (time >= owed + 2 * task.changeover and time - task.tick >= owed + task.changeover)
        spot = min(now.spot, key=lambda pool: (now.spot[pool], pool), default=None)
        if spot is not None and (owed <= EPSILON or time >= owed + 2 * task.changeover):
            return StrategyDecision(Mode.SPOT, spot, why="spot is there")
        if now.mode is Mode.ON_DEMAND and owed > EPSILON:
            return StrategyDecision(Mode.ON_DEMAND, why="finish the slice")
        return (
            StrategyDecision(Mode.IDLE, why="wait")
            if roomy
            else StrategyDecision(Mode.ON_DEMAND, why="the slice is at risk")
        )
