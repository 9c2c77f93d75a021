"""What a better model of the market could gain: the strategy as it is beside the same one with its model fitted on what
it cannot know, the end of the window included. And where the money goes that it costs more than the optimum.

A model fitted on the future gains twice: it knows the market better, and it knows some of what is about to happen. In
worlds drawn from the strategy's own model there is nothing to know better, so what it gains there is foresight alone;
only what it gains on the record beyond that could be had by learning.

Run with GPUBROKER_TEST_DATA naming a folder with ``spot/<family>/…``:
python -m tests.bench.bench_hindsight [CHANGEOVER-HOURS [STARTS [FAMILY[:GANG]…]]]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random

import numpy as np

from broker.placement.strategy.belief import Belief, outlook
from broker.placement.strategy.pacing import UniformProgress
from broker.placement.strategy.planned import PlannedSession
from broker.placement.strategy.prepare import DAY, Learned, learn, prepare, start
from broker.placement.strategy.regimes import Floats, Regimes, fit
from broker.placement.strategy.situation import StrategySession, StrategyTask
from tests.bench.bench_foresight import DEADLINES, WORK, drawn
from tests.bench.bench_histories import recorded
from tests.lab.optimum import optimum
from tests.lab.replay import HOUR, PoolRecord, ReplayMarket, replay

FAMILIES = (
    "aws-2022-10-26",
    "aws-2023-02-15",
    "gcp-h100-2025-10",
    "gcp-h100-2025-10:4",
    "gcp-h100-2025-10:16",
)
STARTS, SEED = 3, 7
REMEMBERED = 96 * HOUR
"""How far back a model fitted on the future looks for the regime that the pool is in."""
SLIGHTLY = 1e-5

Course = Callable[[StrategyTask], StrategySession]

Row = tuple[float, ...]
"""USD of a window on the record, then in a world drawn from the strategy's own model.

Record: the optimum, Uniform Progress, the strategy; the strategy with its model fitted on the family's record until the
window's end, on the pool's, and on the window alone; how much of what the strategy costs above the optimum it pays for
more hours on-demand, and for more changeovers. Drawn world: the optimum, the strategy, the pool's record, the window.
"""
RECORD = 8  # entries


def fitted_elsewhere(learned: Learned, model: Regimes, row: int, market: ReplayMarket, longest: StrategyTask) -> Course:
    """The strategy on the first pool of ``market`` with ``model``, whose row ``row`` is the pool. It sees history as
    always; only the model is another."""
    (pool,), gap = market.pools, market.gap_seconds
    known = Learned(gap, {pool.name: learned.history[pool.name]}, {pool.name: learned.price[pool.name]}, model)
    prepared = prepare(replace(known, model=_row(model, row)), [pool.name], longest, market.on_demand_price)
    view = outlook(model, [row], gap)
    past = learned.history[pool.name][-round(REMEMBERED / gap) :].astype(np.int64)
    nothing = np.zeros((1, 2))
    odds = view.weights / view.weights.sum(1, keepdims=True)
    belief = Belief(past[:1], np.zeros(1), odds, nothing, nothing, np.zeros(1))
    for bit in past[1:]:
        belief = view.follow(belief, np.array([bit]))
    belief = replace(belief, ended=nothing, seen=nothing, doubt=np.zeros(1))
    return lambda task: PlannedSession(task, (pool.name,), prepared.plan, view, belief)


def _row(model: Regimes, row: int) -> Regimes:
    """The model of one pool of the family."""
    return replace(model, weights=model.weights[row : row + 1], belief=model.belief[row : row + 1])


def told_the_end(
    learned: Learned, market: ReplayMarket, future: Sequence[bool], longest: StrategyTask
) -> tuple[Course, Course]:
    """The strategy with its model fitted on the pool's record and ``future``, and on ``future`` alone."""
    past, gap = learned.history[market.pools[0].name], learned.gap
    after = np.asarray(future, dtype=bool)
    both, alone = fit([np.concatenate([past, after])], gap), fit([after], gap)
    return (
        fitted_elsewhere(learned, both, 0, market, longest),
        fitted_elsewhere(learned, alone, 0, market, longest),
    )


def more_than_the_optimum(market: ReplayMarket, first: int, task: StrategyTask, course: Course) -> Row:
    """The optimum, then what the strategy pays above it for more hours on-demand and for more changeovers, USD. How
    long the optimum is on-demand follows from what it costs at a slightly higher on-demand price."""
    (pool,) = market.pools
    best = optimum(market, first, task)
    dearer = replace(pool, on_demand_price=pool.on_demand_price * (1 + SLIGHTLY))
    raised = optimum(replace(market, pools=(dearer,)), first, task)
    hours = (raised - best) / (SLIGHTLY * pool.on_demand_price)
    usual = float(np.mean(pool.price[first : first + round(task.deadline / market.gap_seconds)]))
    boots = hours + (best - hours * pool.on_demand_price) / usual - task.work / HOUR
    mine = replay(market, first, task, course(task))
    more = mine.on_demand_seconds / HOUR - hours
    more_boots = (mine.billed_seconds - task.work) / HOUR - boots
    return best, more * (pool.on_demand_price - usual), more_boots * usual


def costs(
    learned: Learned, markets: Sequence[ReplayMarket], first: int, changeover: float, dice: np.random.Generator
) -> dict[float, list[Row]]:
    """By deadline, a row for each pool."""
    gap = learned.gap
    ticks = round(max(DEADLINES) / gap) + 1
    longest = StrategyTask(WORK, max(DEADLINES), changeover, gap)
    family = fit([market.pools[0].available[: first + ticks] for market in markets], gap)
    found: dict[float, list[Row]] = defaultdict(list)
    for row, market in enumerate(markets):
        (pool,) = market.pools
        as_it_is: Course = partial(start, prepare(learned, [pool.name], longest, market.on_demand_price))
        all_pools = fitted_elsewhere(learned, family, row, market, longest)
        future = pool.available[first : first + ticks]
        on_record = (UniformProgress, as_it_is, all_pools, *told_the_end(learned, market, future, longest))
        bits, _ = drawn(learned, pool.name, ticks, dice)
        usual = float(np.mean(pool.price[max(first - round(DAY / gap), 0) : first]))
        same = PoolRecord(pool.name, tuple(bits), (usual,) * ticks, pool.on_demand_price)
        world = ReplayMarket(market.family, market.name, gap, (same,))
        in_world = (as_it_is, *told_the_end(learned, world, bits, longest))
        for deadline in DEADLINES:
            task = replace(longest, deadline=deadline)
            best, *more = more_than_the_optimum(market, first, task, as_it_is)
            record = (best, *(replay(market, first, task, course(task)).cost for course in on_record), *more)
            elsewhere = (replay(world, 0, task, course(task)).cost for course in in_world)
            found[deadline].append((*record, optimum(world, 0, task), *elsewhere))
    return found


def main() -> None:
    changeover = float(sys.argv[1]) * HOUR if len(sys.argv) > 1 else 0.2 * HOUR
    starts = int(sys.argv[2]) if len(sys.argv) > 2 else STARTS
    cells = []
    for family, markets in recorded(sys.argv[3:] or FAMILIES):
        ticks, gap, dice = markets[0].ticks, markets[0].gap_seconds, np.random.default_rng(SEED)
        rows: dict[float, list[Row]] = defaultdict(list)
        for first in sorted(Random(SEED).sample(range(ticks // 2, ticks - round(max(DEADLINES) / gap)), starts)):
            history = {market.pools[0].name: market.pools[0].available[:first] for market in markets}
            price = {market.pools[0].name: market.pools[0].price[:first] for market in markets}
            for deadline, found in costs(learn(history, price, gap), markets, first, changeover, dice).items():
                rows[deadline] += found
        for deadline in DEADLINES:
            record, world = np.split(np.array(rows[deadline]), [RECORD], axis=1)
            tails = np.quantile(record[:, 1:6] / record[:, :1], 0.95, axis=0)
            means = (part[:, 1:].sum(0) / part[:, 0].sum() for part in (record, world))
            cells.append(np.concatenate([*means, tails]))
            print(f"{family:<21} {deadline / HOUR:.0f} h  {_line(cells[-1])}", flush=True)
    if cells:
        print(f"{f'mean of {len(cells)} cells':<27} {_line(np.mean(cells, axis=0))}")


def _line(cell: Floats) -> str:
    peer, mine, family, pool, window, on_demand, boots, here, by_pool, by_window, *tails = cell
    return (
        f"Uniform Progress {peer:.3f}  strategy {mine:.3f} (more on-demand {on_demand:+.3f}, changeovers {boots:+.3f})"
        f"  fitted on the future: family {family - mine:+.3f}, pool {pool - mine:+.3f}, window {window - mine:+.3f}"
        f"  drawn worlds {here:.3f}: pool {by_pool - here:+.3f}, window {by_window - here:+.3f}"
        f"  p95 {' '.join(f'{tail:.2f}' for tail in tails)}"
    )


if __name__ == "__main__":
    main()
