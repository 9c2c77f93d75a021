"""What it would save to boot a spot machine beside a working on-demand machine, instead of stopping the job for it.

The measuring rules know one machine at a time, and so do the strategy and the broker: a move costs a changeover without
progress. Here the job works on-demand, both paid, while the spot machine boots; only the restore stops it. A move then
uses up the restore's slack alone, and is safe from the slack of a changeover and a restore on, for one more changeover
leads back to on-demand. The plan is today's, which does not count on such moves; one is made where the plan's expected
cost of working on spot is lower by more than the time paid twice. The optimum is that of one machine at a time.

Run with GPUBROKER_TEST_DATA naming a folder with ``spot/<family>/…``:
python -m tests.bench.bench_beside [CHANGEOVER-HOURS [STARTS [FAMILY[:GANG]…]]]
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace
from random import Random

import numpy as np

from broker.placement.strategy.planned import PlannedSession, _Ahead
from broker.placement.strategy.prepare import learn, prepare, start
from broker.placement.strategy.regimes import Floats
from broker.placement.strategy.situation import EPSILON, Mode, Situation, StrategyTask, slack
from tests.bench.bench_foresight import DEADLINES, WORK
from tests.bench.bench_hindsight import FAMILIES, SEED, STARTS
from tests.bench.bench_histories import recorded
from tests.lab.optimum import optimum
from tests.lab.replay import HOUR, ReplayMarket, replay

RESTORES = (0.0, 1 / 3, 2 / 3)
"""Parts of the changeover in which the checkpoint is restored."""


def worth_moving(course: PlannedSession, now: Situation, restore: float) -> bool:
    """Whether a job that works on-demand had better boot a spot machine beside it."""
    (price, *_) = now.spot.values()
    task = course.task
    if slack(task, now) < task.changeover + restore - EPSILON:
        return False
    ahead = _Ahead(task, course.plan, course.outlook, course.belief, now)
    twice = (task.changeover - restore) * now.on_demand_price / HOUR
    return ahead.use(Mode.SPOT, restore, price) + twice < ahead.use(Mode.ON_DEMAND, 0.0, now.on_demand_price)


def beside(market: ReplayMarket, first: int, task: StrategyTask, course: PlannedSession, restore: float) -> float:
    """USD of the window, by the rules of `replay`, except that spot may boot beside on-demand. Raises ValueError if the
    deadline is missed."""
    (name,), gap = course.pools, market.gap_seconds
    mode, changeover, booting, work, cost = Mode.IDLE, 0.0, 0.0, task.work, 0.0
    for tick in range(-(-int(task.deadline) // int(gap))):
        here, elapsed = market.spot[first + tick], tick * gap
        if name not in here:
            booting = 0.0
            mode = Mode.IDLE if mode is Mode.SPOT else mode
        now = Situation(
            elapsed, work, mode, name if mode is Mode.SPOT else None, changeover, here, market.on_demand_price
        )
        decision = course.decide(now)
        if booting:
            pass  # both go on
        elif decision.mode is not mode:
            starts = mode is Mode.ON_DEMAND and decision.mode is Mode.SPOT and not changeover
            if starts and worth_moving(course, now, restore):
                booting = task.changeover - restore
            else:
                mode, changeover = decision.mode, 0.0 if decision.mode is Mode.IDLE else task.changeover
        elif mode is Mode.ON_DEMAND and not changeover and here and worth_moving(course, now, restore):
            booting = task.changeover - restore
        if mode is Mode.IDLE:
            continue
        left = gap
        if booting:
            worked = min(booting, gap, work)
            cost += (market.on_demand_price + here[name]) * worked / HOUR
            work, left, booting = work - worked, gap - worked, booting - worked
            if not booting:
                mode, changeover = Mode.SPOT, restore
        used = min(left, changeover + work) if work > EPSILON else 0.0
        cost += (here[name] if mode is Mode.SPOT else market.on_demand_price) * used / HOUR
        work -= max(used - changeover, 0.0)
        changeover = max(changeover - left, 0.0)
        if work <= EPSILON:
            if elapsed + gap - left + used > task.deadline + EPSILON:
                break
            return cost
    raise ValueError(f"{market.name}, tick {first}: missed the deadline")


def main() -> None:
    changeover = float(sys.argv[1]) * HOUR if len(sys.argv) > 1 else 0.2 * HOUR
    starts = int(sys.argv[2]) if len(sys.argv) > 2 else STARTS
    cells = []
    for family, markets in recorded(sys.argv[3:] or FAMILIES):
        ticks, gap = markets[0].ticks, markets[0].gap_seconds
        rows: dict[float, list[list[float]]] = defaultdict(list)
        for first in sorted(Random(SEED).sample(range(ticks // 2, ticks - round(max(DEADLINES) / gap)), starts)):
            history = {market.pools[0].name: market.pools[0].available[:first] for market in markets}
            price = {market.pools[0].name: market.pools[0].price[:first] for market in markets}
            learned = learn(history, price, gap)
            for market in markets:
                longest = StrategyTask(WORK, max(DEADLINES), changeover, gap)
                prepared = prepare(learned, [market.pools[0].name], longest, market.on_demand_price)
                for deadline in DEADLINES:
                    task = replace(longest, deadline=deadline)
                    row = [optimum(market, first, task), replay(market, first, task, start(prepared, task)).cost]
                    for part in RESTORES:
                        course = start(prepared, task)
                        assert isinstance(course, PlannedSession)
                        row.append(beside(market, first, task, course, part * changeover))
                    rows[deadline].append(row)
        for deadline in DEADLINES:
            table = np.array(rows[deadline])
            tails = np.quantile(table[:, 1:] / table[:, :1], 0.95, axis=0)
            cells.append(np.concatenate([table[:, 1:].sum(0) / table[:, 0].sum(), tails]))
            print(f"{family:<21} {deadline / HOUR:.0f} h  {_line(cells[-1])}", flush=True)
    if cells:
        print(f"{f'mean of {len(cells)} cells':<27} {_line(np.mean(cells, axis=0))}")


def _line(cell: Floats) -> str:
    means, tails = np.split(cell, 2)
    names = ("one at a time", *(f"beside, {part:.0%} restore" for part in RESTORES))
    return "  ".join(f"{name} {m:.3f} (p95 {t:.2f})" for name, m, t in zip(names, means, tails, strict=True))


if __name__ == "__main__":
    main()
