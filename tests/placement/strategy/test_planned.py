"""The planned strategy: it never misses, uses what it knows, and steps aside when what it knows is not so."""

from dataclasses import replace
from random import Random
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.placement.strategy.plan import PlanTerms, solve
from broker.placement.strategy.planned_session import PlannedSession, learn, prepare, start
from broker.placement.strategy.regimes import shipped_prior, transitions
from broker.placement.strategy.situation import (
    Handover,
    Mode,
    Situation,
    StrategySession,
    StrategyTask,
    UniformProgress,
)
from tests.counts import FULL
from tests.lab.optimum import optimum
from tests.lab.replay import PoolRecord, ReplayMarket, ReplayStep, replay

HOUR = 3600.0
TICK = 600.0


def spells(*hours: float) -> list[bool]:
    """Up for so many hours, then down for so many, and so on."""
    return [i % 2 == 0 for i, length in enumerate(hours) for _ in range(round(length * HOUR / TICK))]


def market(*pools: list[bool], prices: tuple[float, ...] = (1.0, 1.0)) -> ReplayMarket:
    named = zip("ab", pools, prices, strict=False)
    return ReplayMarket(
        "f", "m", TICK, tuple(PoolRecord(n, tuple(bits), (p,) * len(bits), 3.0) for n, bits, p in named)
    )


def flicker(seed: int, chance: float, ticks: int) -> list[bool]:
    """Capacity that comes or goes with this chance at each tick."""
    dice, bits = Random(seed), [True]
    while len(bits) < ticks:
        bits.append(bits[-1] ^ (dice.random() < chance))
    return bits


def course(history: dict[str, list[bool]], pools: list[str], task: StrategyTask, price: float = 1.0) -> StrategySession:
    prices = {pool: [price] * max(len(bits), 1) for pool, bits in history.items()}
    learned = learn(history, prices, TICK, market=pools if len(pools) > 1 else ())
    return start(prepare(learned, pools, task, 3.0), task)


def task(work: float = 8, deadline: float = 12, changeover: float = 0.2) -> StrategyTask:
    return StrategyTask(work * HOUR, deadline * HOUR, changeover * HOUR, TICK)


bits = st.lists(st.tuples(st.booleans(), st.integers(1, 30)), min_size=1, max_size=30).map(
    lambda runs: [up for up, length in runs for _ in range(length)]
)


@settings(max_examples=25 if FULL else 8, deadline=None)
@given(
    bits, bits, bits, st.booleans(), st.floats(8.05, 16), st.sampled_from([0.0, 0.02, 0.05, 0.2, 1.7]), st.booleans()
)
def test_never_misses_whatever_the_history_and_the_market(
    past: list[bool], one: list[bool], two: list[bool], both: bool, deadline: float, changeover: float, overlap: bool
) -> None:
    handover = Handover(0.8 * changeover * HOUR, 0.2 * changeover * HOUR, 0.1 * changeover * HOUR) if overlap else None
    job = replace(task(8, max(deadline, 8 + changeover), changeover), handover=handover)
    now = market(*[(pool * 100)[:100] for pool in ((one, two) if both else (one,))])
    history = {"a": past, "b": past[::-1]}
    log: list[ReplayStep] = []
    outcome = replay(now, 0, job, course(history, ["a", "b"] if both else ["a"], job), log)
    assert not outcome.missed
    for step in log if both else ():
        if step.situation.mode is Mode.SPOT:
            assert step.decision.mode is Mode.SPOT, "left a working machine for none, or for on-demand"


def test_waits_out_a_gap_when_gaps_are_short() -> None:
    job = task(8, 12)
    log: list[ReplayStep] = []
    now = market([False] * 6 + [True] * 100)
    outcome = replay(now, 0, job, course({"a": spells(*([2, 0.5] * 40))}, ["a"], job), log)
    assert [step.decision.mode.value for step in log[:7]] == ["idle"] * 6 + ["spot"]
    assert outcome.cost == pytest.approx(8.2)


def test_with_plenty_of_slack_and_good_history_it_costs_less_than_uniform_progress() -> None:
    history = spells(*([3, 1] * 40))
    job = task(8, 14)
    now = market(spells(*([0.5, 1, 3, 1, 3, 1, 3, 1, 3])))
    planned = replay(now, 0, job, course({"a": history}, ["a"], job)).cost
    assert planned < replay(now, 0, job, UniformProgress(job)).cost


@pytest.mark.parametrize("history", [[], [True], [True] * 500, [False] * 500, spells(*([2, 1] * 29))])
def test_with_little_history_a_job_is_planned_on_the_prior(history: list[bool]) -> None:
    session = course({"a": history}, ["a"], task())
    assert isinstance(session, PlannedSession)
    assert session.plan.value.shape[-1] == 60  # of the prior's five regimes


def test_several_pools_without_a_history_are_one_market_that_has_capacity_while_any_has() -> None:
    session = course({"a": [], "b": []}, ["a", "b"], task())
    assert isinstance(session, PlannedSession)
    session.see({"b": 1.0})
    assert session.belief.up.tolist() == [0, 1]
    assert session.market_belief is not None
    assert session.market_belief.up.tolist() == [1]
    log: list[ReplayStep] = []
    now = market([True] * 100, [True] * 100, prices=(1.0, 0.9))
    assert not replay(now, 0, task(), course({"a": [], "b": []}, ["a", "b"], task()), log).missed
    assert log[0].decision.pool == "b"


def test_the_first_look_at_a_pool_sets_the_belief_and_ends_no_spell() -> None:
    for capacity, scarce, plentiful in ({}, 0.418, 0.063), ({"a": 1.0}, 0.043, 0.506):
        session = course({"a": []}, ["a"], task())
        assert isinstance(session, PlannedSession)
        session.see(capacity)
        belief = session.belief
        assert (belief.up[0], belief.age[0], belief.ended.sum(), belief.doubt[0]) == (bool(capacity), 0, 0, 0)
        assert belief.regimes[0, [0, 3]] == pytest.approx([scarce, plentiful], abs=0.001)
        session.see(capacity)
        assert session.belief.age[0] == TICK


def test_a_thin_history_is_followed_to_its_last_tick() -> None:
    bits = {"a": spells(2, 1, 3), "b": spells(1)}  # they end together
    session, without = course(bits, ["a", "b"], task()), course({"a": [], "b": []}, ["a", "b"], task())
    assert isinstance(session, PlannedSession)
    assert isinstance(without, PlannedSession)
    for bit in bits["a"]:
        without.see({"a": 1.0} if bit else {})
    assert session.belief.age.tolist() == [3 * HOUR - TICK, HOUR - TICK]
    assert session.belief.regimes[0] == pytest.approx(without.belief.regimes[0])
    alone = course({"b": bits["b"]}, ["b"], task())
    assert isinstance(alone, PlannedSession)
    assert session.belief.regimes[1] == pytest.approx(alone.belief.regimes[0])
    assert not session.belief.seen.any()


def test_the_shipped_prior_is_a_distribution_of_rates() -> None:
    prior = shipped_prior()
    assert prior.weights.sum() == pytest.approx(1)
    assert ((prior.hazard > 0) & (prior.hazard < 1)).all()
    assert prior.hazard.shape == (5, 2, 6)


@pytest.mark.parametrize("handover", [None, Handover(54, 18)])
def test_flickering_capacity_without_history_costs_little_more_than_the_optimum(handover: Handover | None) -> None:
    job, mine, best = replace(task(24, 30, 0.02), handover=handover), 0.0, 0.0
    prepared = prepare(learn({"a": []}, {"a": [1.0]}, TICK), ["a"], job, 3.0)
    for seed in range(4):
        now = market(flicker(seed, 0.5, 31 * 6))  # spells of 20 min on average
        mine += replay(now, 0, job, start(prepared, job)).cost
        best += optimum(now, 0, job)
    assert mine / best <= 1.05


def test_a_pool_without_history_takes_its_family_s() -> None:
    job = task()
    planned = course({"a": [], "b": spells(*([2, 0.5] * 40))}, ["a"], job)
    assert not isinstance(planned, UniformProgress)
    assert not replay(market([True] * 100), 0, job, planned).missed


def test_a_market_unlike_its_history_is_met_with_uniform_progress() -> None:
    # The history says that gaps last ten minutes every two hours; now capacity flickers and is mostly gone.
    job = task(24, 36)
    history = spells(*([2, 1 / 6] * 60))
    now = market((spells(1 / 6, 2) * 40)[: 36 * 6])
    log: list[ReplayStep] = []
    cost = replay(now, 0, job, course({"a": history}, ["a"], job), log).cost
    assert any(step.decision.why in ("behind the line", "catch up") for step in log)
    assert cost <= 1.15 * replay(now, 0, job, UniformProgress(job)).cost


def test_of_two_pools_the_lasting_one_is_worth_a_little_more() -> None:
    job = task(8, 12)
    history = {"a": spells(*([0.5, 0.5] * 80)), "b": spells(*([16, 4] * 4))}
    log: list[ReplayStep] = []
    now = market([True] * 100, [True] * 100, prices=(1.0, 1.01))
    replay(now, 0, job, course(history, ["a", "b"], job), log)
    assert log[0].decision.pool == "b"


def test_it_moves_to_a_much_cheaper_pool_and_not_for_a_cent() -> None:
    job = task(8, 12)
    history = {"a": spells(*([6, 1] * 12)), "b": spells(*([6, 1] * 12))}

    def moves(price: float) -> int:
        late = market([True] * 100, [False] * 6 + [True] * 94, prices=(1.0, price))
        return replay(late, 0, job, course(history, ["a", "b"], job)).moves

    assert moves(0.5) == 1
    assert moves(0.99) == 0


def test_without_the_time_to_move_it_stays_where_it_would_rather_leave() -> None:
    job = task(8, 8.3, 0.2)  # after the first start less is left than a further one needs
    history = {"a": spells(*([6, 1] * 12)), "b": spells(*([6, 1] * 12))}
    late = market([True] * 100, [False] * 6 + [True] * 94, prices=(1.0, 0.1))
    roomy = task(8, 12, 0.2)
    assert replay(late, 0, roomy, course(history, ["a", "b"], roomy)).moves == 1
    follower = course(history, ["a", "b"], job)
    for tick in range(12):
        elapsed = tick * TICK
        now = Situation(elapsed, 8.05 * HOUR - elapsed, Mode.SPOT, "a", 0.0, late.spot[tick], 3.0)
        assert follower.decide(now).pool == "a"


@pytest.mark.parametrize("pools", [["a"], ["a", "b"]])
def test_a_machine_in_a_pool_that_the_plan_does_not_know_is_kept(pools: list[str]) -> None:
    job = task(8, 12)
    follower = course({pool: spells(*([6, 1] * 12)) for pool in pools}, pools, job)
    now = Situation(0.0, 8 * HOUR, Mode.SPOT, "new", 0.0, {"a": 1.0, "new": 1.2}, 3.0)
    assert (follower.decide(now).mode, follower.decide(now).pool) == (Mode.SPOT, "new")


def test_fine_ticks_do_not_make_waiting_beside_capacity_free() -> None:
    tick = 30.0

    def flickering(seed: int, hours: float) -> tuple[bool, ...]:
        """Hours of spells of minutes, then hours of spells of an hour."""
        dice, bits, ticks = Random(seed), list[bool](), round(hours * HOUR / tick)
        while len(bits) < ticks:
            for up_hours, down_hours, lasts in ((1 / 15, 1 / 10, 3.0), (1.0, 0.3, 5.0)):
                end, up = len(bits) + round(dice.expovariate(1 / lasts) * HOUR / tick), True
                while len(bits) < end:
                    bits += [up] * max(round(dice.expovariate(1 / (up_hours if up else down_hours)) * HOUR / tick), 1)
                    up = not up
        return tuple(bits[:ticks])

    past, job = flickering(1, 40), StrategyTask(2 * HOUR, 3 * HOUR, 720, tick)
    prepared = prepare(learn({"a": past}, {"a": [1.0] * len(past)}, tick), ["a"], job, 3.0)
    idle = 0.0
    for seed in (11, 12, 16, 19, 21):
        bits, log = flickering(seed, 3.1), list[ReplayStep]()
        now = ReplayMarket("f", "m", tick, (PoolRecord("a", bits, (1.0,) * len(bits), 3.0),))
        assert not replay(now, 0, job, start(prepared, job), log).missed
        idle += tick * sum(step.decision.mode is Mode.IDLE and bits[step.tick] for step in log)
    assert idle / 5 < prepared.plan.terms.step


def test_plan_values_fall_with_slack_and_rise_with_work() -> None:
    job = task(8, 14)
    history = spells(*([3, 1] * 40))
    learned = learn({"a": history}, {"a": [1.0] * len(history)}, TICK)
    plan = prepare(learned, ["a"], job, 3.0).plan
    assert np.isfinite(plan.value).all()
    enough = plan.slacks >= job.changeover
    assert (np.diff(plan.value[60][enough][:, 0], axis=0) <= 1e-3).all()
    assert plan.value.nbytes < 100e6


handovers = st.sampled_from([(0.15, 0.05, 0.0), (0.1, 0.1, 0.05), (0.2, 0.0, 0.0), (0.9, 0.1, 0.2), (0.0, 0.2, 0.0)])


@settings(max_examples=20 if FULL else 4, deadline=None)
@given(bits, handovers, st.sampled_from([0.05, 0.2, 1.0]), st.sampled_from([0.0, 0.05]))
def test_a_plan_with_a_handover_expects_no_higher_cost_in_any_state(
    past: list[bool], hours: tuple[float, float, float], changeover: float, loss: float
) -> None:
    learned = learn({"a": past}, {"a": [1.0] * len(past)}, TICK)
    chain = transitions(learned.model, learned.model.weights[0], TICK)
    terms = PlanTerms(12 * HOUR, 4 * HOUR, changeover * HOUR, TICK, 1.0, 3.0, loss)
    without = solve(chain, terms)
    able = solve(chain, replace(terms, handover=Handover(*(HOUR * each for each in hours))))
    assert (able.value[:, :, : without.value.shape[2]] <= without.value + 1e-3).all()


@pytest.mark.parametrize("tick", [600.0, 200.0])  # longer than the boot, and shorter
def test_a_handover_begins_if_the_work_left_is_worth_both_machines_and_is_seen_through(tick: float) -> None:
    job = StrategyTask(8 * HOUR, 9 * HOUR, 720, tick, Handover(540, 180))
    session = course({"a": [True] * 500 + spells(*([6, 1] * 40))}, ["a"], job, price=2.0)
    at_work = Situation(0.0, 3 * HOUR, Mode.ON_DEMAND, None, 0.0, {"a": 2.0}, 3.0)
    for work_left, mode in (3 * HOUR, Mode.BOTH), (1200, Mode.ON_DEMAND):
        now = replace(at_work, work_left=work_left, elapsed=9 * HOUR - work_left - 1000)  # too little slack for a stop
        assert session.decide(now).mode is mode
        booting = replace(now, mode=Mode.BOTH, pool="a", changeover_left=140.0)
        assert session.decide(booting).mode is session.decide(replace(booting, elapsed=0.0)).mode is Mode.BOTH
        assert session.decide(replace(booting, spot={})).mode is Mode.ON_DEMAND


def test_handovers_cost_less_than_stops() -> None:
    job, past = task(24, 27), flicker(0, 0.1, 2000)
    cost, expected = dict[Handover | None, float](), dict[Handover | None, float]()
    for handover in (None, Handover(540, 180)):
        able, log = replace(job, handover=handover), list[ReplayStep]()
        prepared = prepare(learn({"a": past}, {"a": [1.0]}, TICK), ["a"], able, 3.0)
        nows = [market(flicker(seed, 0.1, 27 * 6)) for seed in range(1, 5)]
        cost[handover] = fmean(replay(now, 0, able, start(prepared, able), log).cost for now in nows)
        expected[handover] = prepared.plan.value[-1, -1, 0].mean()
        assert (Mode.BOTH in {step.decision.mode for step in log}) == bool(handover)
    assert expected[Handover(540, 180)] < expected[None] - 0.1, "the plan counts on it"
    assert cost[Handover(540, 180)] < 0.95 * cost[None]


def test_a_handover_that_is_never_safe_changes_no_decision() -> None:
    job, now = task(8, 10), market(flicker(1, 0.2, 60))
    logs: list[list[ReplayStep]] = [[], []]
    for able, log in zip((job, replace(job, handover=Handover(60, 2 * HOUR))), logs, strict=True):
        replay(now, 0, able, course({"a": spells(*([2, 1] * 40))}, ["a"], able), log)
    assert [step.decision for step in logs[0]] == [step.decision for step in logs[1]]


def test_a_broker_that_starts_again_decides_as_it_would_have() -> None:
    job = task(8, 12)
    history = {"a": spells(*([2, 1] * 40))}
    now = market((spells(*([1, 0.5, 0.5, 2, 4, 1])) * 3)[:72])
    log: list[ReplayStep] = []
    replay(now, 0, job, course(history, ["a"], job), log)
    again = course(history, ["a"], job)
    for step in log[:20]:
        again.see(step.situation.spot)  # type: ignore[attr-defined]  # planned courses can
    assert [again.decide(step.situation) for step in log[20:]] == [step.decision for step in log[20:]]
