"""The safety net holds whatever a strategy wishes and whatever the market does."""

from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.placement.strategy.situation import (
    Handover,
    Mode,
    Situation,
    StrategyDecision,
    StrategyTask,
    UniformProgress,
    keep_deadline,
)
from tests.lab.replay import PoolRecord, ReplayMarket, replay
from tests.lab.strategies import EagerNextRegion, Greedy, OnDemandOnly, TimeSliced

TICKS = 60


@dataclass
class Erratic:
    """Wishes for anything at all, absent pools included, and leaves the rest to the safety net."""

    task: StrategyTask
    dice: Random = field(default_factory=lambda: Random(0))

    def decide(self, now: Situation) -> StrategyDecision:
        mode = self.dice.choice(list(Mode))
        pool = self.dice.choice(["a", "b", "nowhere"]) if mode in (Mode.SPOT, Mode.BOTH) else None
        return keep_deadline(self.task, now, StrategyDecision(mode, pool))


@st.composite
def markets(draw: st.DrawFn) -> ReplayMarket:
    gap = draw(st.sampled_from([60.0, 195.0, 600.0, 3600.0]))
    pools = []
    for name in draw(st.sampled_from([("a",), ("a", "b")])):
        spells = draw(st.lists(st.tuples(st.booleans(), st.integers(1, 12)), min_size=1, max_size=20))
        bits = [up for up, length in spells for _ in range(length)]
        bits = (bits * TICKS)[:TICKS]
        price = draw(st.floats(0.1, 4))
        pools.append(PoolRecord(name, tuple(bits), (price,) * TICKS, 3.0))
    return ReplayMarket("any", "any", gap, tuple(pools))


@st.composite
def windows(draw: st.DrawFn) -> tuple[ReplayMarket, StrategyTask]:
    """A market and a task that on-demand from the first second finishes in time, sometimes only just."""
    market = draw(markets())
    room = TICKS * market.gap_seconds
    changeover = draw(st.one_of(st.just(0.0), st.floats(0, room / 4), st.just(market.gap_seconds)))
    work = draw(st.floats(1, room - changeover - 1))
    deadline = draw(st.one_of(st.just(work + changeover), st.floats(work + changeover, room)))
    boot = draw(st.floats(0, room / 4))
    handover = Handover(boot, draw(st.floats(0, room / 4)), draw(st.floats(0, boot)))
    return market, StrategyTask(work, deadline, changeover, market.gap_seconds, draw(st.sampled_from([None, handover])))


@pytest.mark.parametrize(
    ("spare", "mode", "wish", "gets"),
    [
        (200, Mode.IDLE, Mode.SPOT, Mode.SPOT),  # two changeovers to spare
        (199, Mode.IDLE, Mode.SPOT, Mode.ON_DEMAND),
        (199, Mode.ON_DEMAND, Mode.SPOT, Mode.ON_DEMAND),
        (0, Mode.SPOT, Mode.SPOT, Mode.SPOT),  # what works is kept
        (400, Mode.IDLE, Mode.IDLE, Mode.IDLE),  # a tick (300) and a changeover
        (399, Mode.IDLE, Mode.IDLE, Mode.ON_DEMAND),
        (399, Mode.SPOT, Mode.IDLE, Mode.SPOT),  # better to go on than to stop for on-demand
        (1000, Mode.IDLE, Mode.ON_DEMAND, Mode.ON_DEMAND),
    ],
)
def test_the_rules_edges(spare: float, mode: Mode, wish: Mode, gets: Mode) -> None:
    task = StrategyTask(work=1000, deadline=1000 + spare, changeover=100, tick=300)
    now = Situation(0.0, 1000, mode, "a" if mode is Mode.SPOT else None, 0.0, {"a": 1.0}, 3.0)
    assert keep_deadline(task, now, StrategyDecision(wish, "a" if wish is Mode.SPOT else None)).mode is gets


@pytest.mark.parametrize(
    ("spare", "mode", "left", "gets"),
    [
        (160, Mode.ON_DEMAND, 0, Mode.BOTH),  # a changeover, a restore and an upload to spare
        (159, Mode.ON_DEMAND, 0, Mode.ON_DEMAND),
        (400, Mode.ON_DEMAND, 1, Mode.ON_DEMAND),  # nothing to hand over yet
        (150, Mode.BOTH, 10, Mode.BOTH),  # half of the upload is done
        (149, Mode.BOTH, 10, Mode.ON_DEMAND),
        (400, Mode.IDLE, 0, Mode.ON_DEMAND),
        (400, Mode.SPOT, 0, Mode.SPOT),
    ],
)
def test_the_edges_of_a_handover(spare: float, mode: Mode, left: float, gets: Mode) -> None:
    task = StrategyTask(1000, 1000 + spare, changeover=100, tick=300, handover=Handover(60, 40, 20))
    now = Situation(0.0, 1000, mode, "a" if mode in (Mode.SPOT, Mode.BOTH) else None, left, {"a": 1.0, "b": 1.0}, 3.0)
    assert keep_deadline(task, now, StrategyDecision(Mode.BOTH, "a")).mode is gets
    assert keep_deadline(replace(task, handover=None), now, StrategyDecision(Mode.BOTH, "a")).mode is not Mode.BOTH
    assert keep_deadline(task, replace(now, work_left=360), StrategyDecision(Mode.BOTH, "c")).mode is not Mode.BOTH


def test_no_handover_begins_that_the_work_would_not_outlast_by_a_tick() -> None:
    task = StrategyTask(1000, 9000, changeover=100, tick=300, handover=Handover(60, 40))
    for work_left, gets in (361, Mode.BOTH), (360, Mode.ON_DEMAND):
        now = Situation(0.0, work_left, Mode.ON_DEMAND, None, 0.0, {"a": 1.0}, 3.0)
        assert keep_deadline(task, now, StrategyDecision(Mode.BOTH, "a")).mode is gets


@given(windows(), st.integers(0, 10**6))
def test_no_wish_can_miss_a_deadline(window: tuple[ReplayMarket, StrategyTask], seed: int) -> None:
    market, task = window
    outcome = replay(market, 0, task, Erratic(task, Random(seed)))
    assert not outcome.missed
    assert outcome.finish is not None
    assert outcome.finish <= task.deadline + 1e-5


@given(windows())
def test_no_baseline_misses_a_deadline(window: tuple[ReplayMarket, StrategyTask]) -> None:
    market, task = window
    for course in (OnDemandOnly(task), Greedy(task), UniformProgress(task), EagerNextRegion(task), TimeSliced(task)):
        assert not replay(market, 0, task, course).missed, course


@given(windows())
def test_billed_time_is_work_plus_changeovers_at_most_one_per_start(window: tuple[ReplayMarket, StrategyTask]) -> None:
    market, task = window
    outcome = replay(market, 0, task, UniformProgress(task))
    starts, handover = 1 + outcome.moves + outcome.interruptions, task.handover or Handover(0, 0)
    most = task.changeover + handover.boot + handover.restore + handover.upload
    assert task.work - 1e-3 <= outcome.billed_seconds <= task.work + starts * most + 1e-3
