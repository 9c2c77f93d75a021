"""The planned strategy: update the belief, look up the plan, take the least expected cost, keep the safety net.

With several pools the plan sees one market, up while any pool is, where a machine may be lost although others have
capacity; price, expected life and the cost of a changeover in money and slack decide on the pool and on moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from broker.placement.pricing.time_value import WORTH_MOVING
from broker.placement.strategy.plan import Floats32, PlanTerms, ValueTable, nearest_to, solve, step_for
from broker.placement.strategy.regimes import (
    HOUR,
    Belief,
    Outlook,
    Regimes,
    fit,
    followed_belief,
    initial_belief,
    outlook,
    shipped_prior,
    transitions,
)
from broker.placement.strategy.situation import (
    EPSILON,
    Handover,
    Mode,
    Situation,
    StrategyDecision,
    StrategySession,
    StrategyTask,
    UniformProgress,
    keep_deadline,
    may_hand_over,
    may_start_spot,
    may_wait,
)

MAX_DOUBT = 7.0
"""Nats of doubt from which Uniform Progress decides instead of the plan. With this value a history that does not match
the future costs little, and one that matches is hardly ever wrong."""


class PlannedSession:
    """The planned strategy for one job. ``outlook`` and ``belief`` are per pool; ``market`` and ``market_belief`` are
    of all pools together, None with one pool. Keeps only beliefs between calls; ``ticks_seen`` counts from the job's
    start."""

    def __init__(
        self,
        task: StrategyTask,
        pools: tuple[str, ...],
        plan: ValueTable,
        outlook: Outlook,
        belief: Belief,
        market: Outlook | None = None,
        market_belief: Belief | None = None,
    ) -> None:
        self.task, self.pools, self.plan = task, pools, plan
        self.outlook, self.belief = outlook, belief
        self.market, self.market_belief = market, market_belief
        self.fallback = UniformProgress(task)
        self.ticks_seen = 0

    def see(self, spot: Mapping[str, float]) -> None:
        """Observe one tick: which pools have capacity. Call it once per tick, in order; `decide` calls it itself.
        After a restart, the broker replays the recorded ticks and then decides as without the restart."""
        self.ticks_seen += 1
        up = np.array([pool in spot for pool in self.pools], dtype=np.int64)
        self.belief = self.outlook.follow(self.belief, up)
        if self.market is not None and self.market_belief is not None:
            self.market_belief = self.market.follow(self.market_belief, up.max(keepdims=True))

    def decide(self, now: Situation) -> StrategyDecision:
        """The decision for this tick, after observing it. A second call within a tick observes nothing new."""
        if now.elapsed >= self.ticks_seen * self.task.tick - EPSILON:
            self.see(now.spot)
        market, belief = self.market or self.outlook, self.market_belief or self.belief
        if belief.doubt.max() > MAX_DOUBT:
            return self.fallback.decide(now)
        return keep_deadline(self.task, now, self._wish(now, _Ahead(self.task, self.plan, market, belief, now)))

    def _wish(self, now: Situation, ahead: _Ahead) -> StrategyDecision:
        task = self.task
        if now.mode is Mode.BOTH:
            return StrategyDecision(Mode.BOTH, now.pool, why="spot boots to take over")
        pool = self._pool(now, ahead)
        if now.mode is Mode.SPOT and now.pool in now.spot and (len(self.pools) > 1 or now.pool not in self.pools):
            is_unknown = now.pool not in self.pools  # a pool unknown when the plan was made
            if is_unknown or pool == now.pool or not may_start_spot(task, now):
                return StrategyDecision(Mode.SPOT, now.pool, why="stay")
            return StrategyDecision(Mode.SPOT, pool, why="expected to cost less there")
        keeps_pool = now.mode is Mode.SPOT and pool == now.pool
        options: list[tuple[float, Mode, str | None]] = []
        if pool is not None and (keeps_pool or may_start_spot(task, now)):
            boot = now.changeover_left if keeps_pool else task.changeover
            options.append((ahead.use(Mode.SPOT, boot, now.spot[pool]), Mode.SPOT, pool))
        if pool is not None and task.handover and may_hand_over(task, now):
            cost = ahead.hand_over(task.handover, now.spot[pool], now.on_demand_price)
            options.append((cost, Mode.BOTH, pool))
        if may_wait(task, now):
            options.append((ahead.wait(), Mode.IDLE, None))
        boot = now.changeover_left if now.mode is Mode.ON_DEMAND else task.changeover
        options.append((ahead.use(Mode.ON_DEMAND, boot, now.on_demand_price), Mode.ON_DEMAND, None))
        _, mode, pool = min(options, key=lambda option: option[0])
        return StrategyDecision(mode, pool, why="lowest expected cost")

    def _pool(self, now: Situation, ahead: _Ahead) -> str | None:
        """The best pool, if the job is to use spot."""
        available = [pool for pool in self.pools if pool in now.spot]
        if len(available) < 2:
            return available[0] if available else None
        lives = dict(zip(self.pools, self.outlook.life(self.belief), strict=True))
        reference = min(now.spot[pool] for pool in available)
        changeover = reference * self.task.changeover / HOUR + ahead.changeover_value()
        rates = {pool: now.spot[pool] / HOUR + changeover / max(lives[pool], self.task.tick) for pool in available}
        if now.mode is not Mode.SPOT or now.pool not in rates:
            use = {pool: max(min(lives[pool], now.work_left), self.task.tick) for pool in available}
            return min(available, key=lambda pool: (rates[pool] + changeover / use[pool], pool))
        best = min(available, key=lambda pool: (rates[pool], pool))
        stay = min(lives[now.pool], lives[best], now.work_left)
        saving = (rates[now.pool] - rates[best]) * stay
        return best if saving > WORTH_MOVING * changeover else now.pool


class _Ahead:
    """Expected costs from here, looked up in the plan."""

    def __init__(self, task: StrategyTask, plan: ValueTable, market: Outlook, belief: Belief, now: Situation) -> None:
        self.task, self.plan, self.work_left = task, plan, now.work_left
        self.left = task.deadline - now.elapsed - task.tick
        self.spare = task.deadline - now.elapsed - now.work_left
        self.up = bool(belief.up[0])
        self.mix = self._states(market, belief)

    def _states(self, market: Outlook, belief: Belief) -> Floats32:
        """Odds of the plan's states one tick from now."""
        _, states, bands = market.hazard.shape
        state, band = int(belief.up[0]), int(market.bands(belief.age)[0])
        later = int(market.bands(belief.age + self.task.tick)[0])
        leave = belief.regimes[0] * market.hazard[:, state, band]
        stay = belief.regimes[0] - leave
        mix = np.zeros((states, bands, len(leave)))
        mix[1 - state, 0] = leave * (1 - market.redraw) + (leave @ market.redraw) * market.weights[0]
        mix[state, later] += stay * (1 - market.redraw) + (stay @ market.redraw) * market.weights[0]
        return mix.ravel().astype(np.float32)

    def wait(self) -> float:
        """Cost of a tick without a machine, and of all that follows.

        Waiting beside available capacity shows how long it lasts. The plan assumes that its next step knows this, so
        such a wait costs a whole step, even if the next decision comes sooner.
        """
        extra = 0.0
        if self.up:
            tick, spare = self.task.tick, self.spare - self.task.changeover
            extra = max(min(self.plan.terms.step, spare) - tick, 0.0)
        return self.plan.ahead(self.mix, self.left - extra, self.spare - self.task.tick - extra, 0)

    def use(self, mode: Mode, boot: float, price: float) -> float:
        """Cost of a tick on such a machine with ``boot`` seconds of changeover left, and of all that follows."""
        tick, plan = self.task.tick, self.plan
        paid = price / HOUR * min(tick, boot + self.work_left)
        if boot + self.work_left <= tick:
            return paid
        first = 1 + (len(plan.boots) if mode is Mode.ON_DEMAND else 0)
        return paid + self._boot(max(boot - tick, 0.0), self.spare - min(boot, tick), first)

    def hand_over(self, handover: Handover, price: float, on_demand_price: float) -> float:
        """Cost of a tick in which a spot machine begins to boot beside on-demand, and of all that follows."""
        tick, plan = self.task.tick, self.plan
        paid = (price * tick + on_demand_price * min(handover.boot, tick)) / HOUR
        spare = self.spare - handover.stopped(handover.boot, tick)
        left = handover.boot - tick
        if left <= 0:
            return paid + self._boot(max(left + handover.restore, 0.0), spare, 1)
        nearest = nearest_to(left, plan.overlaps)
        up = float(self.mix[len(self.mix) // 2 :].sum())
        paid += up * (left - plan.overlaps[nearest]) * on_demand_price / HOUR
        return paid + plan.ahead(self.mix, self.left, spare, 1 + 2 * len(plan.boots) + nearest)

    def _boot(self, left: float, spare: float, first: int) -> float:
        """What follows on a machine with ``left`` seconds of changeover left; ``first`` of its kind in the plan."""
        nearest = nearest_to(left, self.plan.boots)
        spare -= left - self.plan.boots[nearest]  # a difference in boot time counts as slack
        return self.plan.ahead(self.mix, self.left, spare, first + nearest)

    def changeover_value(self) -> float:
        """USD that the slack of one changeover is worth."""
        booted = len(self.plan.boots)
        with_changeover = self.plan.ahead(self.mix, self.left, self.spare - self.task.changeover, booted)
        return max(with_changeover - self.plan.ahead(self.mix, self.left, self.spare, booted), 0.0)


DAY = 24 * HOUR
ENOUGH_SPELLS = 30
"""The number of spells of each kind that must have ended in a family's history before a model is fitted to it."""


@dataclass(frozen=True, slots=True)
class LearnedFamily:
    """A family's history and its model, ``fitted`` to it or the prior. ``market``: its pools that one job may choose
    between; if not empty, the model's last row is their union.
    """

    gap: float
    history: Mapping[str, NDArray[np.bool_]]
    price: Mapping[str, NDArray[np.float64]]
    model: Regimes
    fitted: bool
    market: tuple[str, ...] = ()


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
    prior: Regimes | None = None,
) -> LearnedFamily:
    """Fit a family: availability and spot price (USD per hour) per pool, ``gap`` seconds a tick, up to now.

    Histories may differ in length, or be empty; they end together, at the tick before the job's first decision. A pool
    without a history may have today's price. With fewer than `ENOUGH_SPELLS` spells of a kind, the model is ``prior``,
    by default the shipped one. ``market``: the pools that a job may choose between, if there are several. While they
    have fewer spells on record, the fit uses the other pools of the family too.
    """
    bits = {pool: np.asarray(ticks, dtype=bool) for pool, ticks in history.items()}
    if market and _spells(own := [bits[pool] for pool in market]) >= ENOUGH_SPELLS:
        bits = dict(zip(market, own, strict=True))
    prices = {pool: np.asarray(price[pool], dtype=float) for pool in bits}
    union = [_union([bits[pool] for pool in market])] if market else []
    fitted = _spells(bits.values()) >= ENOUGH_SPELLS
    rows = [*bits.values(), *union]
    model = fit(rows, gap) if fitted else (prior or shipped_prior()).for_pools(len(rows))
    return LearnedFamily(gap, bits, prices, model, fitted, tuple(market))


def prepare(learned: LearnedFamily, pools: Sequence[str], task: StrategyTask, on_demand_price: float) -> PreparedPlan:
    """Solve the plan for ``task``; it also serves tasks with the same tick, changeover and handover, and no later
    deadline or larger slack."""
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
    terms = PlanTerms(
        task.deadline, task.deadline - task.work, task.changeover, step, spot, on_demand_price, loss, task.handover
    )
    return PreparedPlan(learned, tuple(pools), solve(transitions(model, model.weights[row], step), terms))


def start(prepared: PreparedPlan, task: StrategyTask) -> StrategySession:
    learned, pools = prepared.learned, prepared.pools
    names = list(learned.history)
    histories = [learned.history[pool] for pool in pools]
    view = _view(learned, [names.index(pool) for pool in pools], histories, task.tick)
    market = _view(learned, [len(names)], [_union(histories)], task.tick) if learned.market else (None, None)
    return PlannedSession(task, pools, prepared.plan, *view, *market)


def _view(
    learned: LearnedFamily, rows: Sequence[int], histories: Sequence[NDArray[np.bool_]], tick: float
) -> tuple[Outlook, Belief]:
    """The outlook for the pools at ``rows`` of the model, and the belief after their histories."""
    if learned.fitted:
        belief = initial_belief(learned.model, rows, histories)
    else:
        belief = followed_belief(outlook(learned.model, rows, learned.gap), histories)
    return outlook(learned.model, rows, tick), belief


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
    if not (learned.fitted and ticks):  # the cheapest pool of a moment will not always have capacity
        return fmean(_recent_price(learned, pool, otherwise) for pool in pools), 0.0
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
