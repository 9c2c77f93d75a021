"""Intervals and expected runs, against the formulas and against a simulation."""

import math
import random

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from broker.placement.pricing.run_model import daly_interval, expected_run, young_interval


def first_order_waste(interval: float, write: float, between: float, restart: float) -> float:
    """Hours lost for each useful one: δ/τ + τ/2M + restart/M."""
    return write / interval + interval / (2 * between) + restart / between


def test_young_and_daly_on_round_figures() -> None:
    assert young_interval(0.02, 4) == pytest.approx(0.4)
    # √(2δM)·[1 + ⅓√(δ/2M) + δ/(18M)] - δ by hand: 0.4 · (1 + 0.05/3 + 0.02/72) - 0.02
    assert daly_interval(0.02, 4) == pytest.approx(0.4 * (1 + 0.05 / 3 + 0.02 / 72) - 0.02)


def test_daly_when_writing_takes_longer_than_life() -> None:
    assert daly_interval(3.0, 1.0) == 1.0
    assert daly_interval(0.1, math.inf) == math.inf


@given(write=st.floats(0.001, 0.2), between=st.floats(1, 1000))
def test_the_best_interval_is_near_the_least_waste(write: float, between: float) -> None:
    best = young_interval(write, between)
    least = first_order_waste(best, write, between, 0.1)
    for factor in (0.5, 0.8, 1.25, 2):
        assert first_order_waste(best * factor, write, between, 0.1) >= least


@given(write=st.floats(0.001, 2), between=st.floats(0.5, 1000))
def test_daly_s_interval_leaves_the_most_of_the_time(write: float, between: float) -> None:
    """Of a long run as it is expected to go, within a percent of it."""
    best = daly_interval(write, between)
    most = expected_run(1000 * best, 1 / between, best, write, 0.1).useful_fraction
    for factor in (0.3, 0.5, 0.8, 1.25, 2, 3):
        assert expected_run(1000 * best, 1 / between, best * factor, write, 0.1).useful_fraction <= most + 0.01


def test_without_interruptions_only_checkpoints_cost() -> None:
    run = expected_run(work=10, rate=0, interval=0.5, write=0.01, restart=0.1)
    assert (run.work, run.lost, run.restarts, run.interruptions) == (10, 0, 0, 0)
    assert run.checkpoints == pytest.approx(0.2)


def test_to_first_order_the_waste_is_that_of_the_formula() -> None:
    rate, interval, write, restart = 0.01, 0.5, 0.01, 0.1
    run = expected_run(100, rate, interval, write, restart)
    waste = run.hours / run.work - 1
    assert waste == pytest.approx(first_order_waste(interval, write, 1 / rate, restart), rel=0.05)


@pytest.mark.parametrize(
    ("work", "rate", "interval", "write"), [(12, 0.3, 0.5, 0.02), (3, 0.5, math.inf, 0.0), (8, 0.1, 2.0, 0.05)]
)
def test_a_simulation_agrees(work: float, rate: float, interval: float, write: float) -> None:
    chance, restart, rounds = random.Random(5), 0.2, 4000
    spent = interruptions = 0.0
    stretches = 1 if math.isinf(interval) else round(work / interval)
    stretch = work / stretches + (write if stretches > 1 else 0)
    for _ in range(rounds * stretches):
        while (life := chance.expovariate(rate)) < stretch:
            spent += life + restart
            interruptions += 1
        spent += stretch
    run = expected_run(work, rate, interval, write, restart)
    assert run.hours == pytest.approx(spent / rounds, rel=0.05)
    assert run.interruptions == pytest.approx(interruptions / rounds, rel=0.05)


@given(
    work=st.floats(0, 500),
    more=st.floats(0, 100),
    rate=st.floats(0, 2),
    interval=st.one_of(st.floats(0.05, 50), st.just(math.inf)),
    write=st.floats(0, 0.2),
)
def test_more_work_never_takes_less_time(work: float, more: float, rate: float, interval: float, write: float) -> None:
    shorter = expected_run(work, rate, interval, write, 0.1)
    longer = expected_run(work + more, rate, interval, write, 0.1)
    assert longer.hours >= shorter.hours * (1 - 1e-9)
    assert 0 <= shorter.useful_fraction <= 1
    assert min(shorter.lost, shorter.restarts, shorter.checkpoints) >= 0


@given(
    work=st.floats(0.1, 100),
    rate=st.floats(0, 1),
    interval=st.floats(0.05, 200),
    write=st.floats(0, 0.2),
    restart=st.floats(0, 1),
)
@example(work=1.0, rate=5e-324, interval=0.5, write=0.125, restart=0.0)
def test_checkpoints_cost_no_more_than_writing_them(
    work: float, rate: float, interval: float, write: float, restart: float
) -> None:
    """In pieces it takes no longer than in one piece, were writing them work."""
    pieces = expected_run(work, rate, interval, write, restart)
    assume(rate * (work + pieces.checkpoints) < 50)
    assert pieces.hours <= expected_run(work + pieces.checkpoints, rate, math.inf, 0.0, restart).hours * (1 + 1e-9)
