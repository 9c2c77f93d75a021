"""Expected cost to finish, by time left, market state, machine and slack, by backward induction.

The grid runs over *slack* (time left − work left) instead of work. A productive step leaves slack unchanged, so the
usual path needs no interpolation; the grid is fine near one and two changeovers, where rules apply, and coarse
elsewhere. The safety net is part of the plan: it never counts on a start that the net would refuse, so being late has
an infinite price.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from broker.placement.strategy.regimes import HOUR, Floats
from broker.placement.strategy.situation import Handover

Floats32 = NDArray[np.float32]
STEP = 600.0
"""Least seconds between the decisions of a plan; real decisions may be more frequent."""
MAX_STEPS = 700
MAX_BOOT_STEPS = 4
FINEST = 5
COARSENING = 1.06
_ROWS = 96
MAX_BYTES = 100_000_000
"""Long jobs get a coarser grid rather than a larger table."""


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """Inputs of a plan. Seconds and USD per hour. ``loss``: probability that a spot machine is lost within a step
    although another pool keeps capacity, so that only a changeover is needed; 0 with a single pool.
    """

    horizon: float
    most_slack: float
    changeover: float
    step: float
    spot_price: float
    on_demand_price: float
    loss: float = 0.0
    handover: Handover | None = None


@dataclass(frozen=True, slots=True)
class ValueTable:
    """``value[t, slack, machine, state]`` in USD at time left ``t · step``.

    Machines: 0 idle, then spot and then on-demand with each of ``boots`` (seconds of changeover left), then both with
    each of ``overlaps`` (seconds of boot left). States: down then up, each by age band and, fastest, by regime.
    """

    terms: PlanTerms
    slacks: Floats
    boots: tuple[float, ...]
    overlaps: tuple[float, ...]
    value: Floats32

    def ahead(self, mix: Floats32, left: float, spare: float, machine: int) -> float:
        """Expected cost with ``left`` seconds to the deadline and ``spare`` of slack, over the states in ``mix``."""
        if left <= 0:
            return 0.0
        position = min(left / self.terms.step, len(self.value) - 1.0)
        t = min(int(position), len(self.value) - 2)
        time_fraction = position - t
        spare = min(max(spare, 0.0), float(self.slacks[-1]))
        low = min(int(np.searchsorted(self.slacks, spare, side="right")) - 1, len(self.slacks) - 2)
        slack_fraction = (spare - self.slacks[low]) / (self.slacks[low + 1] - self.slacks[low])
        (a, b), (c, d) = self.value[t : t + 2, low : low + 2, machine] @ mix
        return float(
            (1 - time_fraction) * (a + slack_fraction * (b - a)) + time_fraction * (c + slack_fraction * (d - c))
        )


def step_for(tick: float, horizon: float, changeover: float) -> float:
    """A multiple of the tick near ten minutes, longer for long horizons and long changeovers."""
    target = max(STEP, horizon / MAX_STEPS, changeover / MAX_BOOT_STEPS)
    return tick * max(round(target / tick), 1)


def solve(chain: Floats, terms: PlanTerms) -> ValueTable:
    """Backward induction over time left, from 0 to the horizon. About a quarter of a millisecond a step."""
    boot_steps = max(math.ceil(terms.changeover / terms.step), 1)
    boots = tuple(max(terms.changeover - terms.step * i, 0.0) for i in range(boot_steps + 1))
    steps = math.ceil(terms.horizon / terms.step - 1e-9)
    overlap_steps = _overlap_steps(terms, boots[1:])
    machines = 1 + 2 * boot_steps + len(overlap_steps)
    slacks = _slack_grid(terms, MAX_BYTES // ((steps + 1) * machines * len(chain) * 4))
    slack_amounts = (terms.step, *(min(boot, terms.step) for boot in boots), *(each.spent for each in overlap_steps))
    spent = {amount: _spend(slacks, amount) for amount in slack_amounts}
    plan_ahead = _PlanAhead(terms, slacks, boots, spent, overlap_steps)
    value = np.zeros((steps + 1, len(slacks), machines, len(chain)), dtype=np.float32)
    chain_t = np.ascontiguousarray(chain.T, dtype=np.float32)
    for t in range(1, steps + 1):
        previous = value[t - 1]
        if terms.loss:
            spot = slice(1, 1 + boot_steps)
            previous = previous.copy()
            previous[:, spot] += terms.loss * (previous[:, :1] - previous[:, spot])
            both, at_work = slice(1 + 2 * boot_steps, None), slice(2 * boot_steps, 1 + 2 * boot_steps)
            previous[:, both] += terms.loss * (previous[:, at_work] - previous[:, both])
        expected = _multiply(previous.reshape(-1, len(chain)), chain_t).reshape(previous.shape)
        plan_ahead.fill(value[t], expected, np.maximum(t * terms.step - slacks, 0.0))
    return ValueTable(terms, slacks, boots[1:], tuple(each.left for each in overlap_steps), value)


@dataclass(frozen=True, slots=True)
class _OverlapStep:
    """A step with both machines, ``left`` seconds of boot to go: the slack that the safety net asks for, the slack
    spent, the USD paid, and the machine of the next step."""

    left: float
    least: float
    spent: float
    paid: float
    machine: int


def _overlap_steps(terms: PlanTerms, boots: Sequence[float]) -> list[_OverlapStep]:
    if (handover := terms.handover) is None:
        return []
    step, overlap_steps = terms.step, list[_OverlapStep]()
    for i in range(max(math.ceil(handover.boot / step - 1e-9), 1)):
        left = handover.boot - i * step
        least = terms.changeover + handover.restore + min(handover.upload, left)
        spent, machine = handover.stopped(left, step), 2 + 2 * len(boots) + i
        if left <= step:
            to_restore = max(left + handover.restore - step, 0.0)
            nearest = nearest_to(to_restore, boots)
            spent, machine = spent + to_restore - boots[nearest], 1 + nearest  # the difference counts as slack
        paid = (terms.on_demand_price * min(left, step) + terms.spot_price * step) / HOUR
        overlap_steps.append(_OverlapStep(left, least, spent, paid, machine))
    return overlap_steps


def nearest_to(left: float, boots: Sequence[float]) -> int:
    """The place in ``boots`` of the value nearest to ``left``."""
    return min(range(len(boots)), key=lambda i: abs(boots[i] - left))


def _multiply(rows: Floats32, matrix: Floats32) -> Floats32:
    """The matrix product, in pieces too small for the linear algebra library to start threads. On a busy machine its
    threads wait for each other up to a hundred times as long as they work."""
    product = np.empty_like(rows)
    for first in range(0, len(rows), _ROWS):
        np.matmul(rows[first : first + _ROWS], matrix, out=product[first : first + _ROWS])
    return product


@dataclass(frozen=True, slots=True)
class _PlanAhead:
    """One step of the induction. ``boots[0]`` is a machine just started; ``spent[x]`` moves values by x of slack."""

    terms: PlanTerms
    slacks: Floats
    boots: tuple[float, ...]
    spent: dict[float, tuple[NDArray[np.int64], Floats32]]
    overlap_steps: Sequence[_OverlapStep]

    def fill(self, now: Floats32, after: Floats32, work: Floats) -> None:
        """Write the values at a step from ``after``, the expectation over the next states; ``work``: seconds left."""
        terms, up = self.terms, after.shape[2] // 2
        steps = len(self.boots) - 1
        may_start = self.slacks >= 2 * terms.changeover - 1e-3
        may_wait = may_start & (self.slacks - terms.step >= terms.changeover - 1e-3)
        idle = self._use(after, work, 1 + steps, 0, terms.on_demand_price)
        wait = self._after(after[:, 0], terms.step)
        idle[may_wait] = np.minimum(idle, wait)[may_wait]
        start = self._use(after, work, 1, 0, terms.spot_price)
        idle[may_start, up:] = np.minimum(idle, start)[may_start, up:]
        now[:] = idle[:, None]
        for i in range(1, steps + 1):
            keep = self._use(after, work, 1, i, terms.spot_price)
            np.minimum(now[:, i, up:], keep[:, up:], out=now[:, i, up:])
            keep = self._use(after, work, 1 + steps, i, terms.on_demand_price)
            np.minimum(now[:, steps + i], keep, out=now[:, steps + i])
        at_work = 2 * steps
        for machine, both in enumerate(self.overlap_steps, at_work + 1):
            allowed = (self.slacks >= both.least - 1e-3) & (work > both.left + terms.step)
            cost = self._after(after[:, both.machine], both.spent) + np.float32(both.paid)
            now[:, machine] = now[:, at_work]
            now[allowed, machine, up:] = cost[allowed, up:]
        if self.overlap_steps:
            np.minimum(now[:, at_work, up:], now[:, at_work + 1, up:], out=now[:, at_work, up:])
        now[work <= 0] = 0.0

    def _use(self, after: Floats32, work: Floats, first: int, boot_step: int, price: float) -> Floats32:
        """The cost of a step on the machine that has booted for ``boot_step`` steps, and of all that follows."""
        step, boot = self.terms.step, self.boots[boot_step]
        machine = first + min(boot_step, len(self.boots) - 2)
        paid = price / HOUR * np.minimum(boot + work, step)
        return self._after(after[:, machine], min(boot, step)) + paid[:, None].astype(np.float32)

    def _after(self, value: Floats32, used_slack: float) -> Floats32:
        low, share = self.spent[used_slack]
        result = value[low]
        result += share * (value[low + 1] - result)
        return result


def _slack_grid(terms: PlanTerms, max_points: int) -> Floats:
    """Seconds from 0 to the maximum slack: evenly spaced and fine at first, then growing, including the limits of the
    safety net's rules. Points are at most two steps apart, or more if ``max_points`` requires it."""
    changeover, step, max_slack = terms.changeover, terms.step, terms.most_slack
    unit = min(step, max(changeover, step / 4)) / FINEST
    fine = list(np.arange(0.0, min(2 * changeover + 2 * step, max_slack) + 2 * unit, unit))
    for widest in (2.0, 4.0, 8.0, math.inf):
        points, width = list(fine), unit
        while points[-1] < max_slack:
            width = min(width * COARSENING, widest * step)
            points.append(points[-1] + width)
        if len(points) <= max_points:
            break
    edges = [changeover, 2 * changeover, changeover + step]
    return np.unique(np.round([*points, *(edge for edge in edges if edge <= points[-1])], 3))


def _spend(slacks: Floats, amount: float) -> tuple[NDArray[np.int64], Floats32]:
    """The grid points after ``amount`` of slack is used: lower neighbor and share of the upper one."""
    target = np.maximum(slacks - amount, 0.0)
    low = np.clip(np.searchsorted(slacks, target, side="right") - 1, 0, len(slacks) - 2)
    share = (target - slacks[low]) / (slacks[low + 1] - slacks[low])
    return low, np.clip(share, 0, 1)[:, None].astype(np.float32)
