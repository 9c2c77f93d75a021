"""The omniscient optimum: the minimum cost of a job with the whole window known, a bound for every strategy.

A backward dynamic programme over (tick, machine, slack). Slack, time left minus work left, replaces the work:
productive time leaves it unchanged, and only waiting and booting use it up, so that the slack of every reachable state
lies on the lattice of tick, changeover and handover below its starting value. An optimal course never gives up a
booting machine: waiting for as long, or working on, uses no more slack and costs less. So a start is one step, of all
the ticks that the changeover touches, and so is a handover; the programme needs no state for machines that boot, and
its time grows with the number of ticks, not with how many of them a changeover takes. The programme is exact when tick,
work, deadline, changeover and handover are whole seconds; fractions are rounded in the job's favour, which keeps it a
lower bound.
"""

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from broker.placement.strategy.situation import EPSILON, Handover, StrategyTask
from tests.lab.replay import HOUR, ReplayMarket

Floats = NDArray[np.float64]


def optimum(market: ReplayMarket, start: int, task: StrategyTask) -> float:
    """Least cost in USD of finishing ``task`` in time from tick ``start``; infinite if that is impossible."""
    gap, boot = round(market.gap_seconds), math.floor(task.changeover + EPSILON)
    deadline, work = math.ceil(task.deadline - EPSILON), math.floor(task.work + EPSILON)
    if deadline < work:
        return math.inf
    handover = task.handover or Handover(0.0, 0.0)
    beside, upload, restore = (math.floor(t + EPSILON) for t in (handover.boot, handover.upload, handover.restore))
    unit = math.gcd(gap, boot, upload + restore)
    ticks = -(-deadline // gap)
    # Point j has slack (points − 1 − j)·unit below the start's, plus what the lattice leaves over: j = 0 is the least.
    points = (deadline - work) // unit + 1
    slack = (deadline - work) - unit * np.arange(points - 1, -1, -1, dtype=np.int64)
    never = np.full(points, math.inf)
    idle = np.where(slack >= 0, 0.0, math.inf)

    window = slice(start, start + ticks)
    longest = max(boot, beside + restore)
    machines = [_Machine(pool.available[window], pool.price[window], gap, longest, idle) for pool in market.pools]
    machines.append(_Machine((True,) * ticks, (market.on_demand_price,) * ticks, gap, longest, idle))
    for tick in range(ticks - 1, -1, -1):
        left = deadline - tick * gap
        remaining = np.maximum(left - slack, 0)  # work left at each point
        best = _spend(idle, gap // unit) if left >= gap else never
        kept = [machine.keep(tick, left, remaining) for machine in machines]
        for machine, keep in zip(machines, kept, strict=True):
            if keep is not None:
                best = np.minimum(best, machine.begin(tick, left, remaining, boot, boot, unit))
        idle = np.where(remaining == 0, 0.0, best)
        handed_over = [
            market.on_demand_price / HOUR * beside
            + machine.begin(tick, left, remaining, beside + restore, upload + restore, unit)
            for machine in (machines[:-1] if task.handover else ())
        ]
        for machine, keep in zip(machines, kept, strict=True):
            machine.working.appendleft(idle if keep is None else np.minimum(keep, idle))
        for both in handed_over:
            at_work = machines[-1].working
            at_work[0] = np.where(remaining > beside - upload, np.minimum(at_work[0], both), at_work[0])
    return float(idle[-1])


class _Machine:
    """A pool, or on-demand, traversed from the last tick to the first. ``working``: the values of a machine that has
    booted, at the next tick and at those after it, as far as a start reaches. ``ended``: those at the deadline."""

    def __init__(self, available: Sequence[bool], price: Sequence[float], gap: int, boot: int, ended: Floats) -> None:
        self.available, self.price, self.gap = available, price, gap
        kept = _ticks(boot, gap)
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

    def begin(self, tick: int, left: int, remaining: NDArray[np.int64], boot: int, stopped: int, unit: int) -> Floats:
        """The cost from a start at this tick on. Seconds: ``boot``, of which the job does no work for ``stopped``."""
        reach = _ticks(boot, self.gap)
        if self.lasts < reach:
            return np.full(len(remaining), math.inf)
        *before, last = (price / HOUR for price in self.price[tick : tick + reach])
        paid, most = self.gap * sum(before), min(reach * self.gap, left)
        in_last = stopped + remaining - (reach - 1) * self.gap
        whole = most == reach * self.gap
        going_on = paid + last * self.gap + _spend(self.working[reach - 1], stopped // unit) if whole else math.inf
        return np.where(stopped + remaining <= most, paid + last * in_last, going_on)


def _ticks(boot: int, gap: int) -> int:
    """The ticks that a boot touches, at least the one that it begins in."""
    return max(-(-boot // gap), 1)


def _spend(value: Floats, steps: int) -> Floats:
    """The value after ``steps`` lattice steps of slack are used; infinite if there is less slack."""
    if steps == 0:
        return value
    spent = np.full(len(value), math.inf)
    if steps < len(value):
        spent[steps:] = value[:-steps]
    return spent
