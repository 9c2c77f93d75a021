"""The yardstick: exact on small cases, and never above any policy."""

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.placement.strategy.situation import Handover, Mode, Situation, StrategyDecision, StrategyTask
from tests.counts import FULL
from tests.lab.optimum import optimum
from tests.lab.replay import PoolRecord, ReplayMarket, replay
from tests.lab.strategies import POLICIES, Preparation


class Script:
    """Decisions read from a list; asking for absent capacity makes the script invalid."""

    def __init__(self, decisions: tuple[StrategyDecision, ...]) -> None:
        self.decisions = iter(decisions)

    def decide(self, now: Situation) -> StrategyDecision:
        decision = next(self.decisions)
        if decision.pool is not None and decision.pool not in now.spot:
            raise LookupError
        starts_both = decision.mode is Mode.BOTH and (now.mode, now.pool) != (Mode.BOTH, decision.pool)
        if starts_both and (now.mode is not Mode.ON_DEMAND or now.changeover_left > 0):
            raise LookupError
        return decision


def brute_force(market: ReplayMarket, task: StrategyTask) -> float:
    """Every sequence of decisions, replayed."""
    ticks = math.ceil(task.deadline / task.tick)
    choices = [
        StrategyDecision(Mode.IDLE),
        StrategyDecision(Mode.ON_DEMAND),
        *(StrategyDecision(Mode.SPOT, p.name) for p in market.pools),
        *(StrategyDecision(Mode.BOTH, p.name) for p in market.pools if task.handover),
    ]
    best = math.inf
    for decisions in product(choices, repeat=ticks):
        try:
            outcome = replay(market, 0, task, Script(decisions))
        except LookupError:
            continue
        if not outcome.missed:
            best = min(best, outcome.cost)
    return best


@st.composite
def small(draw: st.DrawFn, most_ticks: int = 6) -> tuple[ReplayMarket, StrategyTask]:
    ticks = draw(st.integers(2, most_ticks))
    gap = draw(st.sampled_from([10, 12, 15]))
    names = ("a", "b") if ticks <= 4 and draw(st.booleans()) else ("a",)
    pools = tuple(
        PoolRecord(
            name,
            tuple(draw(st.lists(st.booleans(), min_size=ticks, max_size=ticks))),
            tuple(draw(st.lists(st.sampled_from([1.0, 1.5, 4.0]), min_size=ticks, max_size=ticks))),
            3.0,
        )
        for name in names
    )
    changeover = draw(st.integers(0, 2 * gap))
    deadline = draw(st.integers((ticks - 1) * gap + 1, ticks * gap))
    work = draw(st.integers(1, deadline))
    boot = draw(st.integers(0, 2 * gap))
    handover = Handover(boot, draw(st.integers(0, gap)), draw(st.integers(0, boot)))
    task = StrategyTask(work, deadline, changeover, gap, draw(st.sampled_from([None, handover])))
    return ReplayMarket("small", "small", gap, pools), task


@settings(max_examples=60 if FULL else 10, deadline=None)
@given(small())
def test_agrees_with_brute_force(case: tuple[ReplayMarket, StrategyTask]) -> None:
    market, task = case
    assert optimum(market, 0, task) == pytest.approx(brute_force(market, task), rel=1e-9)
    assert optimum(market, 0, task) <= optimum(market, 0, replace(task, handover=None)) + 1e-9


@settings(max_examples=60 if FULL else 10, deadline=None)
@given(small(most_ticks=40))
def test_is_never_above_a_policy(case: tuple[ReplayMarket, StrategyTask]) -> None:
    market, task = case
    least = optimum(market, 0, task)
    for name in POLICIES.keys() - {"gpubroker"}:
        course = POLICIES[name](Preparation([market], 0), market, task, task)
        outcome = replay(market, 0, task, course)
        assert outcome.missed or least <= outcome.cost + 1e-9, name
