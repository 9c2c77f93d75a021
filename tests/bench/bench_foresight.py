"""What not knowing the future costs: the strategy in worlds drawn from the model that it believes in, over the optimum,
beside a strategy that is told the hidden regime at every tick, and beside the recorded world.

Being told can only help, so in the drawn worlds no strategy without foresight is on average below the one that is told.
What the real one costs above that is the price of its own approximations; what it costs more on the record than in the
drawn worlds is the price of a record unlike its own history.

Run with GPUBROKER_TEST_DATA naming a folder with ``spot/<family>/…``: python -m tests.bench.bench_foresight
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random

import numpy as np

from broker.placement.strategy.belief import believe
from broker.placement.strategy.pacing import UniformProgress
from broker.placement.strategy.planned import PlannedSession
from broker.placement.strategy.prepare import DAY, Learned, learn, prepare, start
from broker.placement.strategy.situation import Situation, StrategyDecision, StrategyTask
from tests.bench.bench_histories import recorded
from tests.lab.optimum import optimum
from tests.lab.replay import HOUR, PoolRecord, ReplayMarket, replay

WORK, DEADLINES, CHANGEOVERS = 48 * HOUR, (52 * HOUR, 60 * HOUR, 70 * HOUR), (0.2 * HOUR, 0.5 * HOUR)
STARTS, WORLDS = 4, 5

Regimes = Sequence[int]


class InformedStrategy:
    """The planned strategy, told which regime its pool is in."""

    def __init__(self, course: PlannedSession, regimes: Regimes) -> None:
        self._course, self._regimes = course, iter(regimes)

    def decide(self, now: Situation) -> StrategyDecision:
        course = self._course
        course.see(now.spot)
        certain = np.zeros_like(course.belief.regimes)
        certain[0, next(self._regimes)] = 1.0
        course.belief = replace(course.belief, regimes=certain, doubt=np.zeros(1))
        return course.decide(now)


def drawn(learned: Learned, pool: str, ticks: int, dice: np.random.Generator) -> tuple[list[bool], Regimes]:
    """What the model holds possible for the pool after its history, and the regime at each tick."""
    model, row = learned.model, list(learned.history).index(pool)
    belief = believe(model, [row], [learned.history[pool]])
    weights = model.weights[row] / model.weights[row].sum()
    hazard, redraw = model.hazard_for(learned.gap), model.redraw_for(learned.gap)
    up, age = int(belief.up[0]), float(belief.age[0])
    regime = int(dice.choice(len(weights), p=belief.regimes[0] / belief.regimes[0].sum()))
    bits, regimes = list[bool](), list[int]()
    for ends, changes in dice.random((ticks, 2)):
        band = np.searchsorted(model.edges_seconds, age + 0.5, side="right") - 1
        if ends < hazard[regime, up, band]:
            up, age = 1 - up, 0.0
        else:
            age += learned.gap
        if changes < redraw[regime]:
            regime = int(dice.choice(len(weights), p=weights))
        bits.append(bool(up))
        regimes.append(regime)
    return bits, regimes


Cell = tuple[float, float]
"""Changeover and deadline, seconds."""
Costs = list[tuple[float, ...]]
"""A row a window, USD: optimum, strategy, Uniform Progress and, in drawn worlds, the one that is told."""


def costs(
    learned: Learned, market: ReplayMarket, first: int, dice: np.random.Generator
) -> dict[Cell, tuple[Costs, Costs]]:
    """What the window came to on the record, and in the drawn worlds."""
    (pool,), gap = market.pools, market.gap_seconds
    usual = float(np.mean(pool.price[max(first - round(DAY / gap), 0) : first]))
    ticks = round(max(DEADLINES) / gap) + 1
    worlds = []
    for _ in range(WORLDS):
        bits, regimes = drawn(learned, pool.name, ticks, dice)
        same = PoolRecord(pool.name, tuple(bits), (usual,) * ticks, pool.on_demand_price)
        worlds.append((ReplayMarket(market.family, market.name, gap, (same,)), regimes))
    found: dict[Cell, tuple[Costs, Costs]] = {}
    for changeover in CHANGEOVERS:
        longest = StrategyTask(WORK, max(DEADLINES), changeover, gap)
        prepared = prepare(learned, [pool.name], longest, market.on_demand_price)
        for deadline in DEADLINES:
            task = replace(longest, deadline=deadline)
            record = (
                optimum(market, first, task),
                replay(market, first, task, start(prepared, task)).cost,
                replay(market, first, task, UniformProgress(task)).cost,
            )
            elsewhere: Costs = []
            for world, regimes in worlds:
                course = start(prepared, task)
                assert isinstance(course, PlannedSession)
                elsewhere.append(
                    (
                        optimum(world, 0, task),
                        replay(world, 0, task, start(prepared, task)).cost,
                        replay(world, 0, task, UniformProgress(task)).cost,
                        replay(world, 0, task, InformedStrategy(course, regimes)).cost,
                    )
                )
            found[changeover, deadline] = [record], elsewhere
    return found


def over_optimum(rows: Costs) -> str:
    """Mean cost over the mean optimum of each strategy, and the 95th percentile of the windows' own ratios."""
    table = np.array(rows)
    means = table[:, 1:].sum(0) / table[:, 0].sum()
    tails = np.quantile(table[:, 1:] / table[:, :1], 0.95, axis=0)
    names = ("strategy", "Uniform Progress", "told")
    return ", ".join(f"{n} {m:.3f} (p95 {t:.2f})" for n, m, t in zip(names, means, tails, strict=False))


def main() -> None:
    for family, markets in recorded():
        ticks, gap, dice = markets[0].ticks, markets[0].gap_seconds, np.random.default_rng(7)
        record: dict[Cell, Costs] = defaultdict(list)
        worlds: dict[Cell, Costs] = defaultdict(list)
        for first in Random(7).sample(range(ticks // 2, ticks - round(max(DEADLINES) / gap)), STARTS):
            history = {market.pools[0].name: market.pools[0].available[:first] for market in markets}
            price = {market.pools[0].name: market.pools[0].price[:first] for market in markets}
            learned = learn(history, price, gap)
            for market in markets:
                for cell, (here, elsewhere) in costs(learned, market, first, dice).items():
                    record[cell] += here
                    worlds[cell] += elsewhere
        for changeover, deadline in product(CHANGEOVERS, DEADLINES):
            which = f"changeover {changeover / HOUR:.1f} h  deadline {deadline / HOUR:.0f} h"
            print(f"{family:<17} {which}   on record {over_optimum(record[changeover, deadline])}", flush=True)
            print(f"{'':<17} {which}   in drawn worlds {over_optimum(worlds[changeover, deadline])}", flush=True)


if __name__ == "__main__":
    main()
