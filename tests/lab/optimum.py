"""The omniscient optimum: the minimum cost of a job with the whole window known, a bound for every strategy.

A backward dynamic programme over (tick, machine, slack). Slack, time left minus work left, replaces the work:
productive time leaves it unchanged, and only waiting and booting use it up, so that the slack of every reachable state
lies on the lattice of tick and changeover below its starting value. An optimal course never gives up a booting machine:
waiting for as long uses the same slack and costs nothing. So a start is one step, of all the ticks that the changeover
touches, and the programme needs no state for machines that boot; its time grows with the number of ticks, not with how
many of them a changeover takes. The programme is exact when tick, work, deadline and changeover are whole seconds;
fractions are rounded in the job's favour, which keeps it a lower bound.
"""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from broker.placement.strategy.situation import EPSILON, StrategyTask
from tests.lab.replay import HOUR, ReplayMarket

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
    never = np.full(points, math.inf)
    idle = np.where(slack >= 0, 0.0, math.inf)

    window = slice(start, start + ticks)
    machines = [_Machine(pool.available[window], pool.price[window], gap, boot, idle) for pool in market.pools]
    machines.append(_Machine((True,) * ticks, (market.on_demand_price,) * ticks, gap, boot, idle))
    for tick in range(ticks - 1, -1, -1):
        left = deadline - tick * gap
        remaining = np.maximum(left - slack, 0)  # work left at each point
        best = _spend(idle, gap // unit) if left >= gap else never
        kept = [machine.keep(tick, left, remaining) for machine in machines]
        for machine, keep in zip(machines, kept, strict=True):
            if keep is not None:
                best = np.minimum(best, machine.begin(tick, left, remaining, boot // unit) if boot else keep)
        idle = np.where(remaining == 0, 0.0, best)
        for machine, keep in zip(machines, kept, strict=True):
            machine.working.appendleft(idle if keep is None else np.minimum(keep, idle))
    return float(idle[-1])


class _Machine:
    """A pool, or on-demand, traversed from the last tick to the first. ``working``: the values of a machine that has
    booted, at the next tick and at those after it, as far as a start reaches. ``ended``: those at the deadline."""

    def __init__(self, available: Sequence[bool], price: Sequence[float], gap: int, boot: int, ended: Floats) -> None:
        self.available, self.price, self.gap, self.boot = available, price, gap, boot
        self.reach = -(-boot // gap)  # ticks that a boot touches
        kept = max(self.reach, 1)
        self.working = deque([ended] * kept, kept)
        self.lasts = 0

    def keep(self, tick: int, left: int, remaining: NDArray[np.int64]) -> Floats | None:
        """The cost from this tick on with a machine that has booted; None without capacity."""
        self.lasts = self.lasts + 1 if self.available[tick] else 0
        if not self.lasts:
            return None
        rate, length = self.price[tick] / HOUR, min(self.gap, left)
        going_on = rate * length + self.working[0] if length == self.gap else math.inf
        return np.where(remaining <= length, rate * remaining, going_on)

    def begin(self, tick: int, left: int, remaining: NDArray[np.int64], spent: int) -> Floats:
        """The cost from a start at this tick on, for a changeover of ``spent`` steps of slack."""
        if self.lasts < self.reach:
            return np.full(len(remaining), math.inf)
        *before, last = (price / HOUR for price in self.price[tick : tick + self.reach])
        paid, most = self.gap * sum(before), min(self.reach * self.gap, left)
        in_last = self.boot + remaining - (self.reach - 1) * self.gap
        whole = most == self.reach * self.gap
        going_on = paid + last * self.gap + _spend(self.working[-1], spent) if whole else math.inf
        return np.where(self.boot + remaining <= most, paid + last * in_last, going_on)


def _spend(value: Floats, steps: int) -> Floats:
    """The value after ``steps`` lattice steps of slack are used; infinite if there is less slack."""
    if steps == 0:
        return value
    spent = np.full(len(value), math.inf)
    if steps < len(value):
        spent[steps:] = value[:-steps]
    return spent
