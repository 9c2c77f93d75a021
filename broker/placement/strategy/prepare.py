"""Fits a model to history, solves the plan, and starts a session."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from broker.placement.strategy.belief import initial_belief, outlook
from broker.placement.strategy.pacing import UniformProgress
from broker.placement.strategy.plan import PlanTerms, ValueTable, solve, step_for, transitions
from broker.placement.strategy.planned_session import PlannedSession
from broker.placement.strategy.regimes import HOUR, Regimes, fit
from broker.placement.strategy.situation import StrategySession, StrategyTask

DAY = 24 * HOUR
ENOUGH_SPELLS = 4
"""The number of spells of each kind that must have ended in a family's history before a plan is made from it."""
OWN_SPELLS = 8
"""With this many spells of each kind, interchangeable pools learn from their own record alone."""


@dataclass(frozen=True, slots=True)
class LearnedFamily:
    """A family's history and the model fitted to it. ``market``: its pools that one job may choose between; if not
    empty, the model's last row is their union.
    """

    gap: float
    history: Mapping[str, NDArray[np.bool_]]
    price: Mapping[str, NDArray[np.float64]]
    model: Regimes
    market: tuple[str, ...] = ()

    @property
    def enough(self) -> bool:
        """Whether there is enough history to plan on. Without it, Uniform Progress is the better strategy."""
        return _spells(self.history.values()) >= ENOUGH_SPELLS


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan for some pools of a family, valid for every job whose deadline and slack its terms cover."""

    learned: LearnedFamily
    pools: tuple[str, ...]
    plan: ValueTable


def learn(
    history: Mapping[str, Sequence[bool]],
    price: Mapping[str, Sequence[float]],
    gap: float,
    *,
    market: Sequence[str] = (),
) -> LearnedFamily:
    """Fit a family: availability and spot price (USD per hour) per pool, ``gap`` seconds a tick, up to now.

    Histories may differ in length, or be empty; they end together, at the tick before the job's first decision.
    ``market``: the pools that a job may choose between, if there are several. While they have fewer than `OWN_SPELLS`
    spells on record, the fit uses the other pools of the family too.
    """
    bits = {pool: np.asarray(ticks, dtype=bool) for pool, ticks in history.items()}
    if market and _spells(own := [bits[pool] for pool in market]) >= OWN_SPELLS:
        bits = dict(zip(market, own, strict=True))
    prices = {pool: np.asarray(price[pool], dtype=float) for pool in bits}
    union = [_union([bits[pool] for pool in market])] if market else []
    return LearnedFamily(gap, bits, prices, fit([*bits.values(), *union], gap), tuple(market))


def prepare(learned: LearnedFamily, pools: Sequence[str], task: StrategyTask, on_demand_price: float) -> PreparedPlan:
    """Solve the plan for ``task``; it also serves tasks with the same tick and changeover, and no later deadline or
    larger slack."""
    step = step_for(task.tick, task.deadline, task.changeover)
    names = list(learned.history)
    model = learned.model
    if not learned.market:
        row, loss = names.index(pools[0]), 0.0
        spot = _recent_price(learned, pools[0], on_demand_price)
    else:
        row = len(names)
        spot, rate = _selector(learned, pools, task.changeover, on_demand_price)
        loss = 1 - (1 - rate) ** (step / learned.gap)
    terms = PlanTerms(task.deadline, task.deadline - task.work, task.changeover, step, spot, on_demand_price, loss)
    return PreparedPlan(learned, tuple(pools), solve(transitions(model, model.weights[row], step), terms))


def start(prepared: PreparedPlan, task: StrategyTask) -> StrategySession:
    learned, pools = prepared.learned, prepared.pools
    if not learned.enough:
        return UniformProgress(task)
    names = list(learned.history)
    rows = [names.index(pool) for pool in pools]
    belief = initial_belief(learned.model, rows, [learned.history[pool] for pool in pools])
    pool_outlook = outlook(learned.model, rows, task.tick)
    if not learned.market:
        return PlannedSession(task, pools, prepared.plan, pool_outlook, belief)
    union = _union([learned.history[pool] for pool in pools])
    row = [len(names)]
    market = outlook(learned.model, row, task.tick)
    return PlannedSession(
        task, pools, prepared.plan, pool_outlook, belief, market, initial_belief(learned.model, row, [union])
    )


def _spells(histories: Iterable[NDArray[np.bool_]]) -> int:
    """The number of capacity spells that began, or that ended, whichever is smaller."""
    began, ended = 0, 0
    for bits in histories:
        began += int((bits[1:] & ~bits[:-1]).sum())
        ended += int((bits[:-1] & ~bits[1:]).sum())
    return min(began, ended)


def _union(histories: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Whether any pool has capacity, over the ticks that all pools with a history share."""
    recorded = [history for history in histories if len(history)]
    ticks = min((len(history) for history in recorded), default=0)
    return np.asarray(np.any([history[-ticks:] for history in recorded], axis=0) if ticks else np.zeros(0), dtype=bool)


def _recent_price(learned: LearnedFamily, pool: str, otherwise: float) -> float:
    """Mean spot price of the pool's last day; if it has no price, that of its family; else ``otherwise``."""
    ticks = max(round(DAY / learned.gap), 1)
    recent = [learned.price[pool][-ticks:], *(prices[-ticks:] for prices in learned.price.values())]
    return next((float(prices.mean()) for prices in recent if len(prices)), otherwise)


def _selector(learned: LearnedFamily, pools: Sequence[str], changeover: float, otherwise: float) -> tuple[float, float]:
    """The cost over the history of a simple rule: mean price per hour, and the probability per tick of losing the
    machine while another pool has capacity. The rule: keep the machine; else take the pool with the least price per
    useful hour, by its mean spell.
    """
    recorded = [pool for pool in pools if len(learned.history[pool])]
    ticks = min((len(learned.history[pool]) for pool in recorded), default=0)
    if not ticks:
        return _recent_price(learned, pools[0], otherwise), 0.0
    up = np.stack([learned.history[pool][-ticks:] for pool in recorded])
    price = np.stack([learned.price[pool][-ticks:] for pool in recorded])
    ended = (up[:, :-1] & ~up[:, 1:]).sum(1)
    life = (up.sum(1) + 1) / (ended + 0.5) * learned.gap
    per_useful = price * (1 + changeover / life)[:, None]
    choice = np.where(up, per_useful, np.inf).argmin(0)
    any_up = np.asarray(up.any(0))
    held_pool, paid, ticks_held, lost = -1, 0.0, 0, 0
    for tick in range(up.shape[1]):
        if held_pool >= 0 and not up[held_pool, tick]:
            lost += bool(any_up[tick])
            held_pool = -1
        if held_pool < 0 and any_up[tick]:
            held_pool = int(choice[tick])
        if held_pool >= 0:
            paid += price[held_pool, tick]
            ticks_held += 1
    if not ticks_held:
        return float(price.min()), 0.0
    return paid / ticks_held, lost / ticks_held
