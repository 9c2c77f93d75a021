"""The current belief about pools: the spell of each, its age, and the odds of each hidden regime."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from broker.placement.strategy.regimes import HOUR, UP, Floats, Regimes, ages

MEMORY = 24.0
"""Hours after which the weight of the job's own observations has fallen to a third."""
TYPICAL_SPELL = 3.0
"""Assumed spell length in hours of the rival model, which knows only the job's own observations."""

Bits = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Belief:
    """One entry per pool. ``up``: whether it has capacity; ``age``: seconds since the spell's first tick;
    ``regimes[z, k]``: odds. ``ended`` and ``seen``, per pool and state: spells ended and ticks observed since the job
    started, with fading weights. ``doubt``: by how many nats a rival model, which knows only these observations, has
    lately predicted better than the fitted model; never below 0."""

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

    def follow(self, belief: Belief, up: Bits) -> Belief:
        """The belief one tick later, after the observation which pools have capacity (``up``)."""
        hazard = self.hazard[:, belief.up, self.bands(belief.age)].T
        left = up != belief.up
        expected = (belief.regimes * hazard).sum(1)
        regimes = belief.regimes * np.where(left[:, None], hazard, 1 - hazard)
        regimes /= regimes.sum(1, keepdims=True)
        regimes = (1 - self.redraw) * regimes + (regimes @ self.redraw)[:, None] * self.weights

        at = np.arange(len(up)), belief.up
        rival = (belief.ended[at] + 1) / (belief.seen[at] + max(TYPICAL_SPELL * HOUR / self.tick, 1.1))
        gain = np.where(left, np.log(rival / expected), np.log((1 - rival) / (1 - expected)))
        fade = float(np.exp(-self.tick / (MEMORY * HOUR)))
        ended, seen = belief.ended * fade, belief.seen * fade
        ended[at] += left
        seen[at] += 1
        doubt = np.maximum(belief.doubt * fade + gain, 0.0)
        return Belief(up, np.where(left, 0.0, belief.age + self.tick), regimes, ended, seen, doubt)

    def bands(self, age: Floats) -> Bits:
        return np.asarray(np.searchsorted(self.model.edges_seconds, age + 0.5, side="right") - 1)

    def life(self, belief: Belief) -> Floats:
        """Expected seconds until each pool loses its capacity; meaningless where it has none."""
        return np.asarray((self.lives[np.arange(len(belief.up)), self.bands(belief.age)] * belief.regimes).sum(1))


def outlook(model: Regimes, rows: Sequence[int], tick: float) -> Outlook:
    """The model for the pools at ``rows`` of its fit, for decisions every ``tick`` seconds."""
    weights = model.weights[list(rows)]
    lives = np.stack([_lives(model, weight, tick) for weight in weights])
    return Outlook(model, weights, tick, model.hazard_for(tick), model.redraw_for(tick), lives)


def initial_belief(model: Regimes, rows: Sequence[int], histories: Sequence[NDArray[np.bool_]]) -> Belief:
    """The belief at the last tick of the history of ``rows`` that ``model`` was fitted on."""
    up = np.array([int(history[-1]) if len(history) else 0 for history in histories], dtype=np.int64)
    age = np.array([ages(history, model.gap)[-1] if len(history) else 0.0 for history in histories])
    zeros = np.zeros((len(up), 2))
    return Belief(up, age, model.belief[list(rows)], zeros, zeros, np.zeros(len(up)))


def _lives(model: Regimes, weights: Floats, tick: float) -> Floats:
    """Mean time to the end of an up spell from each (band, regime): one linear system."""
    hazard = model.hazard_for(tick)[:, UP].T
    bands, regimes = hazard.shape
    redraw = model.redraw_for(tick)
    redrawn = np.diag(1 - redraw) + redraw[:, None] * weights[None, :]
    ageing = model.ageing(tick)
    stay = np.zeros((bands, regimes, bands, regimes))
    for band in range(bands):
        continuing = (1 - hazard[band])[:, None] * redrawn
        stay[band, :, min(band + 1, bands - 1)] += ageing[band] * continuing
        stay[band, :, band] += (1 - ageing[band]) * continuing
    size = bands * regimes
    lives = np.linalg.solve(np.eye(size) - stay.reshape(size, size), np.full(size, tick))
    return np.asarray(lives.reshape(bands, regimes))
