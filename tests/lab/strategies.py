"""The strategies of the lab by name, each a function from history to a session: the broker's own, Uniform Progress, and
published and simple ones for comparison.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from broker.placement.strategy.planned_session import LearnedFamily, PreparedPlan, learn, prepare, start
from broker.placement.strategy.regimes import Regimes
from broker.placement.strategy.situation import (
    EPSILON,
    Mode,
    Situation,
    StrategyDecision,
    StrategySession,
    StrategyTask,
    UniformProgress,
    keep_deadline,
    slack,
    take_spot,
)
from tests.lab.replay import ReplayMarket

SLICES = 10


@dataclass(frozen=True, slots=True)
class OnDemandOnly:
    """On-demand from the first second."""

    task: StrategyTask

    def decide(self, now: Situation) -> StrategyDecision:
        return StrategyDecision(Mode.ON_DEMAND, why="always")


@dataclass(frozen=True, slots=True)
class Greedy:
    """Spot if available, else wait, within the safety net."""

    task: StrategyTask

    def decide(self, now: Situation) -> StrategyDecision:
        otherwise = (
            StrategyDecision(Mode.ON_DEMAND, why="too late to wait")
            if now.mode is Mode.ON_DEMAND
            else StrategyDecision(Mode.IDLE, why="wait for spot")
        )
        return keep_deadline(self.task, now, take_spot(now) or otherwise)


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


@dataclass(frozen=True, slots=True)
class Levi:
    """The best rule of the "can't be late" leaderboard (ADRS), submitted by LEVI; re-implemented.

    Spot whenever it is there. Without it, on-demand is kept once started, and started when less slack is left than a
    changeover, two ticks and a tenth of the work left.
    """

    task: StrategyTask

    def decide(self, now: Situation) -> StrategyDecision:
        return keep_deadline(self.task, now, self._wish(now))

    def _wish(self, now: Situation) -> StrategyDecision:
        task, spare = self.task, slack(self.task, now) - self.task.changeover
        if spare <= task.tick + EPSILON and now.mode is not Mode.SPOT:
            return StrategyDecision(Mode.ON_DEMAND, why="point of no return")
        waits = now.mode is not Mode.ON_DEMAND and spare > 2 * task.tick + 0.1 * now.work_left
        otherwise = StrategyDecision(Mode.IDLE if waits else Mode.ON_DEMAND, why="slack left" if waits else "tight")
        return take_spot(now) or otherwise


@dataclass(frozen=True, slots=True)
class Gepa:
    """The rule that GEPA submitted to the same leaderboard; re-implemented.

    On-demand at the point of no return, even from a working spot machine; else spot whenever it is there. Without it,
    on-demand is kept once started, and started when the slack beyond a changeover is under a fifth of the work left.
    """

    task: StrategyTask

    def decide(self, now: Situation) -> StrategyDecision:
        return keep_deadline(self.task, now, self._wish(now))

    def _wish(self, now: Situation) -> StrategyDecision:
        spare = slack(self.task, now) - self.task.changeover
        if spare <= 0.05:
            return StrategyDecision(Mode.ON_DEMAND, why="point of no return")
        waits = now.mode is not Mode.ON_DEMAND and spare >= 0.2 * now.work_left
        otherwise = StrategyDecision(Mode.IDLE if waits else Mode.ON_DEMAND, why="slack left" if waits else "tight")
        return take_spot(now) or otherwise


@dataclass
class Preparation:
    """History up to ``start``, or none, and the model fitted to it, shared by the windows that begin there."""

    markets: Sequence[ReplayMarket]
    start: int
    history: bool = True
    prior: Regimes | None = None
    _learned: dict[str, LearnedFamily] = field(default_factory=dict)
    _prepared: dict[tuple[str, StrategyTask], PreparedPlan] = field(default_factory=dict)

    def session(self, market: ReplayMarket, task: StrategyTask, longest: StrategyTask) -> StrategySession:
        together = len(market.pools) > 1
        family = market.name if together else market.family
        names = [pool.name for pool in market.pools]
        if family not in self._learned:
            pools = market.pools if together else [pool for other in self.markets for pool in other.pools]
            family_pools = [*pools, *market.kin]
            past = slice(0, self.start if self.history else 0)
            history = {pool.name: pool.available[past] for pool in family_pools}
            price = {pool.name: pool.price[past] or pool.price[self.start : self.start + 1] for pool in family_pools}
            several = names if together else ()
            self._learned[family] = learn(history, price, market.gap_seconds, market=several, prior=self.prior)
        key = (market.name, longest)
        if key not in self._prepared:
            self._prepared = {key: prepare(self._learned[family], names, longest, market.on_demand_price)}
        return start(self._prepared[key], task)


Build = Callable[[Preparation, ReplayMarket, StrategyTask, StrategyTask], StrategySession]
"""Preparation, market, task, and the same task with the latest deadline of the run, so that tasks share a plan."""

POLICIES: dict[str, Build] = {
    "gpubroker": lambda preparation, market, task, longest: preparation.session(market, task, longest),
    "uniform-progress": lambda preparation, market, task, longest: UniformProgress(task),
    "greedy": lambda preparation, market, task, longest: Greedy(task),
    "on-demand": lambda preparation, market, task, longest: OnDemandOnly(task),
    "eager-next-region": lambda preparation, market, task, longest: EagerNextRegion(task),
    "time-sliced": lambda preparation, market, task, longest: TimeSliced(task),
    "levi": lambda preparation, market, task, longest: Levi(task),
    "gepa": lambda preparation, market, task, longest: Gepa(task),
}
