"""The omniscient optimum: the minimum cost of a job with the whole window known, a bound for every strategy.

A backward dynamic programme over (tick, machine, changeover left, slack). Slack, time left minus work left, replaces
the work: productive time leaves it unchanged, and only waiting and booting use it up, so that the slack of every
reachable state lies on the lattice of tick and changeover below its starting value. The programme is exact when tick,
work, deadline and changeover are whole seconds; fractions are rounded in the job's favour, which keeps it a lower
bound.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from broker.backtest.placement.market import ReplayMarket
from broker.backtest.placement.replay import HOUR
from broker.placement.strategy.situation import EPSILON, StrategyTask

Floats = NDArray[np.float64]


def optimum(market: ReplayMarket, start: int, task: StrategyTask) -> float:
    """Least cost in USD of finishing ``task`` in time from tick ``start``; infinite if that is impossible."""
    gap, boot = round(market.gap_seconds), math.floor(task.changeover + EPSILON)
    deadline, work = math.ceil(task.deadline - EPSILON), math.floor(task.work + EPSILON)
    if deadline < work:
        return math.inf
    unit = math.gcd(gap, boot)
    ticks = -(-deadline // gap)
    # Point j has slack (points − 1 − j)·unit below the start's, plus what the lattice leaves over: j = 0 is the least.
    points = (deadline - work) // unit + 1
    slack = (deadline - work) - unit * np.arange(points - 1, -1, -1, dtype=np.int64)
    # Seconds of changeover left at the start of a tick: a fresh machine, then what ticks have used up.
    boots = [boot, *range(boot - gap, 0, -gap), 0] if boot else [0]
    machines = [(pool.available, pool.price) for pool in market.pools]
    machines.append(((True,) * market.ticks, (market.on_demand_price,) * market.ticks))

    never = np.full(points, math.inf)
    idle_next = np.where(slack >= 0, 0.0, math.inf)
    on_next = [[idle_next] * len(boots) for _ in machines]
    lost_next = idle_next
    for tick in range(ticks - 1, -1, -1):
        left = deadline - tick * gap
        length = min(gap, left)
        remaining = np.maximum(left - slack, 0)  # work left at each point
        waited = _spend(lost_next, length // unit, points) if length == gap else never
        running: list[list[Floats] | None] = []
        best_start: Floats = never
        for (available, price), after in zip(machines, on_next, strict=True):
            if not available[start + tick]:
                running.append(None)
                continue
            rate = price[start + tick] / HOUR
            values = []
            for i, boot_left in enumerate(boots):
                used_up = min(boot_left, length)
                going_on = rate * length + _spend(after[min(i + 1, len(boots) - 1)], used_up // unit, points)
                if length < gap:
                    going_on = never
                finishing = rate * (boot_left + remaining)
                values.append(np.where(boot_left + remaining <= length, finishing, going_on))
            running.append(values)
            best_start = np.minimum(best_start, values[0])
        idle = np.where(remaining == 0, 0.0, np.minimum(waited, best_start))
        on_next = [
            [idle] * len(boots) if values is None else [np.minimum(value, idle) for value in values]
            for values in running
        ]
        lost_next = idle
    return float(lost_next[-1])


def _spend(value: Floats, steps: int, points: int) -> Floats:
    """The value after ``steps`` lattice steps of slack are used; infinite if there is less slack."""
    if steps == 0:
        return value
    spent = np.full(points, math.inf)
    if steps < points:
        spent[steps:] = value[: points - steps]
    return spent
