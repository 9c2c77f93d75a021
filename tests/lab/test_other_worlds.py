"""A history from a different world: the strategy must not be led astray by it, on average, and never misses."""

from functools import cache
from random import Random
from statistics import fmean

import pytest

from broker.placement.strategy.planned_session import PreparedPlan, learn, prepare, start
from broker.placement.strategy.situation import StrategySession, StrategyTask, UniformProgress
from tests.counts import FULL
from tests.lab.replay import PoolRecord, ReplayMarket, replay

HOUR = 3600.0
TICK = 600.0
SEEDS = 45 if FULL else 16
TASK = StrategyTask(24 * HOUR, 30 * HOUR, 720, TICK)

# Mean hours with capacity, and without.
WORLDS = {
    "lasting": (12.0, 1.0),
    "flickering": (0.5, 0.5),
    "scarce": (1.0, 6.0),
    "short gaps": (2.0, 0.3),
    "long gaps": (8.0, 8.0),
}
QUICK = ("scarce",)  # what the quick run tries; the others are tried in the system run


def world(name: str, seed: int, hours: float) -> tuple[bool, ...]:
    """Availability with spells of random length."""
    dice, bits, ticks = Random(f"{name}{seed}"), list[bool](), round(hours * HOUR / TICK)
    up = dice.random() < 0.5
    while len(bits) < ticks:
        mean = WORLDS[name][0 if up else 1]
        bits += [up] * max(round(dice.expovariate(1 / mean) * HOUR / TICK), 1)
        up = not up
    return tuple(bits[:ticks])


def cost(now: tuple[bool, ...], course: StrategySession) -> float:
    """What it came to; it may not be late."""
    outcome = replay(ReplayMarket("f", "m", TICK, (PoolRecord("a", now, (1.0,) * len(now), 3.0),)), 0, TASK, course)
    assert not outcome.missed
    return outcome.cost


@cache
def planned(past: tuple[bool, ...]) -> PreparedPlan:
    """What that history leads to; several tests start from the same."""
    learned = learn({"a": past}, {"a": [1.0] * max(len(past), 1)}, TICK)
    return prepare(learned, ["a"], TASK, 3.0)


@cache
def uniform(now: tuple[bool, ...]) -> float:
    """What Uniform Progress comes to, which learns nothing from a history."""
    return cost(now, UniformProgress(TASK))


def compared(past: tuple[bool, ...], nows: list[tuple[bool, ...]]) -> float:
    """Mean cost with that history over the mean cost of Uniform Progress."""
    mine = fmean(cost(now, start(planned(past), TASK)) for now in nows)
    return mine / fmean(uniform(now) for now in nows)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "now", [*QUICK, *(pytest.param(one, marks=pytest.mark.system) for one in WORLDS if one not in QUICK)]
)
def test_on_average_hardly_dearer_than_uniform_progress_whatever_the_history(now: str) -> None:
    markets = [world(now, seed, 30) for seed in range(SEEDS)]
    ratios = {past: compared(world(past, 0, 240), markets) for past in WORLDS if past != now}
    assert fmean(ratios.values()) <= 1.05, ratios


@pytest.mark.parametrize("past", [(), (True,) * 100, (False,) * 100], ids=["empty", "always", "never"])
def test_a_history_that_says_nothing_leads_nobody_astray(past: tuple[bool, ...]) -> None:
    assert compared(past, [world("flickering", seed, 30) for seed in range(4)]) <= 1
