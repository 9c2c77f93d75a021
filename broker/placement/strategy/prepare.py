"""From history to a course: fit the market, solve the plan, start following it. NumPy is needed from here on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from broker.placement.strategy.belief import believe, outlook
from broker.placement.strategy.plan import Plan, Terms, solve, step_for, transitions
from broker.placement.strategy.planned import PlannedCourse
from broker.placement.strategy.regimes import HOUR, Regimes, fit
from broker.placement.strategy.situation import Task

DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Learned:
    """A family's history up to now, and what was learned from it. ``together``: its pools as one market."""

    gap: float
    history: Mapping[str, NDArray[np.bool_]]
    price: Mapping[str, NDArray[np.float64]]
    model: Regimes
    together: Regimes | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan for some pools of a family, good for every job whose deadline and slack its terms cover."""

    learned: Learned
    pools: tuple[str, ...]
    plan: Plan


def learn(
    history: Mapping[str, Sequence[bool]], price: Mapping[str, Sequence[float]], gap: float, *, together: bool
) -> Learned:
    """Fit a family: availability and spot price (USD per hour) per pool, ``gap`` seconds a tick, up to now."""
    bits = {pool: np.asarray(ticks, dtype=bool) for pool, ticks in history.items()}
    prices = {pool: np.asarray(ticks, dtype=float) for pool, ticks in price.items()}
    union = fit([np.any(list(bits.values()), axis=0)], gap) if together else None
    return Learned(gap, bits, prices, fit(list(bits.values()), gap), union)


def prepare(learned: Learned, pools: Sequence[str], task: Task, on_demand_price: float) -> Prepared:
    """Solve the plan for ``task`` and every other with the same tick and changeover, no later deadline and no more
    slack."""
    step = step_for(task.tick, task.deadline, task.changeover)
    names = list(learned.history)
    ticks = max(round(DAY / learned.gap), 1)
    if learned.together is None:
        model, row, loss = learned.model, names.index(pools[0]), 0.0
        recent = learned.price[pools[0]][-ticks:]
        spot = float(recent.mean())
    else:
        model, row = learned.together, 0
        spot, rate = _selector(learned, pools, task.changeover)
        loss = 1 - (1 - rate) ** (step / learned.gap)
    terms = Terms(task.deadline, task.deadline - task.work, task.changeover, step, spot, on_demand_price, loss)
    return Prepared(learned, tuple(pools), solve(transitions(model, model.weights[row], step), terms))


def start(prepared: Prepared, task: Task) -> PlannedCourse:
    """A course for one job from now on."""
    learned, pools = prepared.learned, prepared.pools
    names = list(learned.history)
    rows = [names.index(pool) for pool in pools]
    belief = believe(learned.model, rows, [learned.history[pool] for pool in pools])
    view = outlook(learned.model, rows, task.tick)
    if learned.together is None:
        return PlannedCourse(task, pools, prepared.plan, view, belief)
    union = np.any([learned.history[pool] for pool in pools], axis=0)
    market = outlook(learned.together, [0], task.tick)
    return PlannedCourse(task, pools, prepared.plan, view, belief, market, believe(learned.together, [0], [union]))


def _selector(learned: Learned, pools: Sequence[str], changeover: float) -> tuple[float, float]:
    """What following the market by a simple rule cost over the history: mean price per hour, and the probability per
    tick of losing the machine while another pool has capacity. The rule: keep the machine; else take the pool with
    the least price per useful hour, by its mean spell."""
    up = np.stack([learned.history[pool] for pool in pools])
    price = np.stack([learned.price[pool] for pool in pools])
    ended = (up[:, :-1] & ~up[:, 1:]).sum(1)
    life = (up.sum(1) + 1) / (ended + 0.5) * learned.gap
    per_useful = price * (1 + changeover / life)[:, None]
    choice = np.where(up, per_useful, np.inf).argmin(0)
    some = np.asarray(up.any(0))
    at, paid, held, lost = -1, 0.0, 0, 0
    for tick in range(up.shape[1]):
        if at >= 0 and not up[at, tick]:
            lost += bool(some[tick])
            at = -1
        if at < 0 and some[tick]:
            at = int(choice[tick])
        if at >= 0:
            paid += price[at, tick]
            held += 1
    if not held:
        return float(price.min()), 0.0
    return paid / held, lost / held
