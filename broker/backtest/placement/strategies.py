"""The strategies of the backtest by name, each a function from history to a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.backtest.placement.baselines import EagerNextRegion, TimeSliced
from broker.backtest.placement.market import ReplayMarket
from broker.placement.strategy.pacing import Greedy, OnDemandOnly, UniformProgress
from broker.placement.strategy.situation import StrategySession, StrategyTask

if TYPE_CHECKING:  # these need NumPy
    from broker.placement.strategy.prepare import Learned, Prepared


@dataclass
class Preparation:
    """History up to ``start`` and the model fitted to it, shared by the windows that begin there."""

    markets: Sequence[ReplayMarket]
    start: int
    _learned: dict[str, Learned] = field(default_factory=dict)
    _prepared: dict[tuple[str, StrategyTask], Prepared] = field(default_factory=dict)

    def session(self, market: ReplayMarket, task: StrategyTask, longest: StrategyTask) -> StrategySession:
        from broker.placement.strategy.prepare import learn, prepare, start

        together = len(market.pools) > 1
        family = market.name if together else market.family
        names = [pool.name for pool in market.pools]
        if family not in self._learned:
            pools = market.pools if together else [pool for other in self.markets for pool in other.pools]
            family_pools = [*pools, *market.kin]
            history = {pool.name: pool.available[: self.start] for pool in family_pools}
            price = {pool.name: pool.price[: self.start] for pool in family_pools}
            self._learned[family] = learn(history, price, market.gap_seconds, market=names if together else ())
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
}
