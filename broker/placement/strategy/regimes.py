"""A model of spot availability: up and down spells whose hazard depends on age and on a hidden regime of the pool.

At each tick a pool is up or down, its spell has an age, and a hidden regime k determines the typical length of spells.
A spell ends within a tick with probability ``hazard[k, state, age band]``; with probability tick/36 h the regime is
drawn anew from the pool's weights. Fitted by expectation maximization over all pools of a family, on history only: the
hazard's shape by age is pooled, each regime scales it, thin counts shrink to that.

The current belief about pools: the spell of each, its age, and the odds of each hidden regime.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from broker.core.extras import load_packaged_toml

HOUR = 3600.0
Floats = NDArray[np.float64]
DOWN, UP = 0, 1
LASTING = 0.7
"""Prior hazard of an age band relative to the one before."""


@dataclass(frozen=True, slots=True)
class RegimeShape:
    """Assumed, not fitted. Times in hours; ``pseudo``: weight of a prior in events."""

    regimes: int = 4
    edges: tuple[float, ...] = (0.0, 1 / 6, 0.5, 1.0, 3.0, 9.0)
    persistence: float = 72.0
    spread: float = 1.2
    iterations: int = 20
    block: float = 1.0
    pseudo: float = 2.0
    pool_pseudo: float = 3.0
    redraw_pseudo: float = 2.0


@dataclass(frozen=True, slots=True)
class Regimes:
    """A fitted family. ``hazard[k, s, b]``: probability that a spell ends within a tick of ``gap`` seconds.

    ``weights[p, k]``: how often pool p draws regime k; ``belief[p, k]``: its regime at the end of the history.
    """

    shape: RegimeShape
    gap: float
    hazard: Floats
    persistence: Floats
    weights: Floats
    belief: Floats

    def for_pools(self, pools: int) -> "Regimes":
        """The first pool's habits for each of ``pools``."""
        rows = np.zeros(pools, dtype=int)
        return replace(self, weights=self.weights[rows], belief=self.belief[rows])

    def hazard_for(self, seconds: float) -> Floats:
        """The same hazard for a step of another length."""
        return np.asarray(-np.expm1(np.log1p(-self.hazard) * (seconds / self.gap)))

    def redraw_for(self, seconds: float) -> Floats:
        """Probability by regime that it is drawn anew within a step."""
        return np.asarray(-np.expm1(-seconds / self.persistence))

    def ageing(self, seconds: float) -> Floats:
        """Probability that a surviving spell enters the next age band within a step, by band; 0 for the last."""
        lengths = np.diff([*self.edges_seconds, np.inf])
        return np.asarray(np.minimum(seconds / lengths, 1.0))

    @property
    def edges_seconds(self) -> Floats:
        return np.asarray(self.shape.edges) * HOUR


@cache
def shipped_prior() -> Regimes:
    """The prior in ``prior.toml``."""
    return prior_from(load_packaged_toml("broker.placement.strategy", "prior.toml"))


def prior_from(table: Mapping[str, Any]) -> Regimes:
    """The model that a file like ``prior.toml`` describes, with a single pool."""
    regimes, gap = table["regime"], 300.0  # rates are continuous: any gap gives the same
    rates = np.array([[regime["down"], regime["up"]] for regime in regimes])
    weights = np.array([[regime["weight"] for regime in regimes]])
    persistence = np.array([regime["hours"] for regime in regimes]) * HOUR
    return Regimes(RegimeShape(len(regimes)), gap, -np.expm1(-rates * gap / HOUR), persistence, weights, weights)


def ages(available: NDArray[np.bool_], gap: float) -> Floats:
    """Seconds since the spell's first tick, tick by tick; the first spell counts from the record's start."""
    ticks = np.arange(len(available))
    flips = np.zeros(len(available), dtype=np.int64)
    flips[1:] = np.where(available[1:] != available[:-1], ticks[1:], 0)
    return np.asarray((ticks - np.maximum.accumulate(flips)) * gap, dtype=np.float64)


def fit(histories: Sequence[Any], gap: float, shape: RegimeShape | None = None) -> Regimes:
    """Fit a family on its pools' availability up to now, oldest tick first, one sequence of bits a pool.

    Pools may differ in length; they end together. An empty history is allowed and leaves that pool with the family's
    weights. With no history at all the model is the prior: spells of about three hours.
    """
    shape = shape or RegimeShape()
    bands = len(shape.edges)
    cells = 2 * bands
    per_block = max(round(shape.block * HOUR / gap), 1)
    arrays = [np.asarray(history, dtype=bool) for history in histories]
    blocks = max([-(-(len(array) - 1) // per_block) for array in arrays if len(array) > 1], default=0)
    exposed = np.zeros((len(arrays), blocks, cells))
    left = np.zeros_like(exposed)
    for p, array in enumerate(arrays):
        if len(array) > 1:
            _count(array, gap, shape, per_block, exposed[p], left[p])

    pooled = _pooled_hazard(exposed.sum((0, 1)).reshape(2, bands), left.sum((0, 1)).reshape(2, bands), gap).ravel()

    x = np.linspace(-1, 1, shape.regimes) if shape.regimes > 1 else np.zeros(1)
    scale = np.stack([np.exp(shape.spread * x), np.exp(-shape.spread * x)], axis=1)  # [k, down/up]
    hazard = np.clip(np.repeat(scale, bands, axis=1) * pooled, 1e-6, 0.95)
    weights = np.full((len(arrays), shape.regimes), 1 / shape.regimes)
    family = np.full(shape.regimes, 1 / shape.regimes)
    prior_redraw = min(per_block * gap / (shape.persistence * HOUR), 0.5)
    redraw = np.full(shape.regimes, prior_redraw)
    belief = weights.copy()
    for _ in range(shape.iterations if blocks else 0):
        posterior, draws, ends, belief = _smooth(exposed, left, hazard, weights, redraw)
        exposure = np.einsum("pbk,pbc->kc", posterior, exposed)
        ended_spells = np.einsum("pbk,pbc->kc", posterior, left)
        expected = (exposure * pooled).reshape(-1, 2, bands).sum(2)
        multiplier = (ended_spells.reshape(-1, 2, bands).sum(2) + 1) / (expected + 1)
        centre = np.repeat(multiplier, bands, axis=1) * pooled
        hazard = np.clip((ended_spells + shape.pseudo) / (exposure + shape.pseudo / centre), 1e-6, 0.95)
        stays = posterior.sum((0, 1))
        redraw = np.clip((ends + shape.redraw_pseudo) / (stays + shape.redraw_pseudo / prior_redraw), 1e-4, 0.5)
        family = (draws.sum(0) + 1 / shape.regimes) / (draws.sum() + 1)
        weights = (draws + shape.pool_pseudo * family) / (draws.sum(1, keepdims=True) + shape.pool_pseudo)
    persistence = -per_block * gap / np.log1p(-redraw)
    return Regimes(shape, gap, hazard.reshape(-1, 2, bands), persistence, weights, belief)


def _pooled_hazard(exposed: Floats, left: Floats, gap: float) -> Floats:
    """Hazard by state and age band over the whole family. A band with few spells shrinks towards a lower hazard than
    the band before it: spells that have lasted tend to last."""
    guess = (left.sum(1) + 1) / (exposed.sum(1) + 3 * HOUR / gap)
    pooled = np.empty_like(exposed)
    for band in range(exposed.shape[1]):
        guess = (left[:, band] + 1) / (exposed[:, band] + 1 / guess)
        pooled[:, band] = guess
        guess = guess * LASTING
    return np.asarray(np.clip(pooled, 1e-6, 0.95))


def _count(
    array: NDArray[np.bool_], gap: float, shape: RegimeShape, per_block: int, exposed: Floats, left: Floats
) -> None:
    """Spell-ticks at risk and spells ended, per block and cell (state, band); blocks are aligned at the end."""
    hours = ages(array, gap)[:-1] / HOUR + 1e-9
    band = np.searchsorted(np.asarray(shape.edges), hours, side="right") - 1
    cell = array[:-1] * len(shape.edges) + band
    back = np.arange(len(array) - 2, -1, -1) // per_block
    block = len(exposed) - 1 - back
    np.add.at(exposed, (block, cell), 1.0)
    ended = array[1:] != array[:-1]
    np.add.at(left, (block[ended], cell[ended]), 1.0)


def _smooth(exposed: Floats, left: Floats, hazard: Floats, weights: Floats, redraw: Floats) -> tuple[Floats, ...]:
    """Forward and backward over blocks: the regimes' posterior, expected draws of each regime per pool, expected ends
    of each regime by a new draw, and the last filter state."""
    likelihood = left @ np.log(hazard).T + (exposed - left) @ np.log1p(-hazard).T
    likelihood = np.exp(likelihood - likelihood.max(2, keepdims=True)).transpose(1, 0, 2).copy()
    blocks, pools, regimes = likelihood.shape
    predicted = np.empty((blocks, pools, regimes))
    filtered = np.empty_like(predicted)
    state = weights
    for t in range(blocks):
        predicted[t] = state if t == 0 else (1 - redraw) * state + (state @ redraw)[:, None] * weights
        state = predicted[t] * likelihood[t]
        state /= state.sum(1, keepdims=True)
        filtered[t] = state
    posterior = np.empty_like(predicted)
    later = np.ones((pools, regimes))
    draws = np.zeros((pools, regimes))
    ends = np.zeros(regimes)
    for t in range(blocks - 1, -1, -1):
        joint = filtered[t] * later
        posterior[t] = joint / joint.sum(1, keepdims=True)
        if t == 0:
            break
        message = likelihood[t] * later
        new_draw = weights * message
        chance = (predicted[t] * message).sum(1, keepdims=True)
        draws += (filtered[t - 1] @ redraw)[:, None] * new_draw / chance
        new_total = new_draw.sum(1, keepdims=True)
        ends += (filtered[t - 1] * redraw * new_total / chance).sum(0)
        later = (1 - redraw) * message + redraw * new_total
        later /= later.max(1, keepdims=True)
    draws += posterior[0]
    return posterior.transpose(1, 0, 2), draws, ends, filtered[-1]


MEMORY = 24.0
"""Hours after which the weight of the job's own observations has fallen to a third."""
REACH = 96.0
"""Hours of a thin history that are followed; what is older says nothing about today."""
TYPICAL_SPELL = 3.0
"""Assumed spell length in hours of the rival model, which knows only the job's own observations."""

Bits = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Belief:
    """One entry per pool. ``up``: whether it has capacity; ``age``: seconds since the spell's first tick, negative
    before the first observation, which sets the belief and ends no spell; ``regimes[z, k]``: odds. ``ended`` and
    ``seen``, per pool and state: spells ended and ticks observed since the job started, with fading weights. ``doubt``:
    by how many nats a rival model, which knows only these observations, has lately predicted better than the fitted
    model; never below 0."""

    up: Bits
    age: Floats
    regimes: Floats
    ended: Floats
    seen: Floats
    doubt: Floats


@dataclass(frozen=True, slots=True)
class Outlook:
    """A fitted model, narrowed to the pools of one job and to the time between its decisions."""

    model: Regimes
    weights: Floats
    tick: float
    hazard: Floats
    redraw: Floats
    lives: Floats
    """``lives[z, band, k]``: expected seconds of capacity left in a spell of that age."""
    odds: Floats
    """``odds[z, state, k]``: of the regimes at a look after which nothing is known but the state."""

    def follow(self, belief: Belief, up: Bits) -> Belief:
        """The belief one tick later, after the observation which pools have capacity (``up``)."""
        hazard = self.hazard[:, belief.up, self.bands(belief.age)].T
        first = belief.age < 0
        left = (up != belief.up) & ~first
        expected = (belief.regimes * hazard).sum(1)
        regimes = belief.regimes * np.where(left[:, None], hazard, 1 - hazard)
        regimes /= regimes.sum(1, keepdims=True)
        regimes = (1 - self.redraw) * regimes + (regimes @ self.redraw)[:, None] * self.weights
        regimes = np.where(first[:, None], self.odds[np.arange(len(up)), up], regimes)

        at = np.arange(len(up)), belief.up
        rival = (belief.ended[at] + 1) / (belief.seen[at] + max(TYPICAL_SPELL * HOUR / self.tick, 1.1))
        gain = np.where(left, np.log(rival / expected), np.log((1 - rival) / (1 - expected))) * ~first
        fade = float(np.exp(-self.tick / (MEMORY * HOUR)))
        ended, seen = belief.ended * fade, belief.seen * fade
        ended[at] += left
        seen[at] += ~first
        doubt = np.maximum(belief.doubt * fade + gain, 0.0)
        return Belief(up, np.where(left | first, 0.0, belief.age + self.tick), regimes, ended, seen, doubt)

    def bands(self, age: Floats) -> Bits:
        return np.asarray(np.searchsorted(self.model.edges_seconds, age + 0.5, side="right") - 1)

    def life(self, belief: Belief) -> Floats:
        """Expected seconds until each pool loses its capacity; meaningless where it has none."""
        return np.asarray((self.lives[np.arange(len(belief.up)), self.bands(belief.age)] * belief.regimes).sum(1))


def transitions(model: Regimes, weights: Floats, step: float) -> Floats:
    """One step of a pool's chain over (state, band, regime), rows from, columns to."""
    hazard = model.hazard_for(step)
    regimes, _, bands = hazard.shape
    redraw = model.redraw_for(step)
    redrawn = np.diag(1 - redraw) + redraw[:, None] * weights[None, :]
    ageing = model.ageing(step)
    matrix = np.zeros((2, bands, regimes, 2, bands, regimes))
    for state in (DOWN, UP):
        for band in range(bands):
            leave = hazard[:, state, band, None] * redrawn
            stay = redrawn - leave
            matrix[state, band, :, 1 - state, 0] += leave
            matrix[state, band, :, state, min(band + 1, bands - 1)] += ageing[band] * stay
            matrix[state, band, :, state, band] += (1 - ageing[band]) * stay
    size = 2 * bands * regimes
    return matrix.reshape(size, size)


def outlook(model: Regimes, rows: Sequence[int], tick: float) -> Outlook:
    """The model for the pools at ``rows`` of its fit, for decisions every ``tick`` seconds."""
    weights = model.weights[list(rows)]
    chains = [transitions(model, weight, tick) for weight in weights]
    lives = np.stack([_lives(chain, tick) for chain in chains]).reshape(len(rows), -1, weights.shape[1])
    odds = np.stack([_odds(chain, weights.shape[1]) for chain in chains])
    return Outlook(model, weights, tick, model.hazard_for(tick), model.redraw_for(tick), lives, odds)


def initial_belief(model: Regimes, rows: Sequence[int], histories: Sequence[NDArray[np.bool_]]) -> Belief:
    """The belief at the last tick of the history of ``rows`` that ``model`` was fitted on."""
    up = np.array([int(history[-1]) if len(history) else 0 for history in histories], dtype=np.int64)
    age = np.array([ages(history, model.gap)[-1] if len(history) else -1.0 for history in histories])
    return _fresh(up, age, model.belief[list(rows)])


def followed_belief(view: Outlook, histories: Sequence[NDArray[np.bool_]]) -> Belief:
    """The belief after histories, one entry a tick of ``view``, that its model was not fitted on. They end together."""
    belief = _fresh(np.zeros(len(histories), dtype=np.int64), np.full(len(histories), -1.0), view.weights)
    for back in range(min(max(map(len, histories)), round(REACH * HOUR / view.tick)), 0, -1):
        known = np.array([len(history) >= back for history in histories])
        up = np.array([len(history) >= back and history[-back] for history in histories], dtype=np.int64)
        belief = view.follow(belief, up)
        belief = replace(belief, age=np.where(known, belief.age, -1.0))
    return _fresh(belief.up, belief.age, belief.regimes)


def _fresh(up: Bits, age: Floats, regimes: Floats) -> Belief:
    """A belief that the job itself has not observed anything for."""
    zeros = np.zeros((len(up), 2))
    return Belief(up, age, regimes, zeros, zeros, np.zeros(len(up)))


def _lives(chain: Floats, tick: float) -> Floats:
    """Mean time to the end of an up spell from each (band, regime): one linear system."""
    size = len(chain) // 2
    return np.asarray(np.linalg.solve(np.eye(size) - chain[size:, size:], np.full(size, tick)))


def _odds(chain: Floats, regimes: int) -> Floats:
    """Odds of the regimes in each state, in the long run."""
    system = chain.T - np.eye(len(chain))
    system[-1] = 1.0
    shares = np.linalg.solve(system, np.eye(len(chain))[-1]).reshape(2, -1, regimes).sum(1)
    return np.asarray(shares / shares.sum(1, keepdims=True))
