"""When a job gets a plan, and when Uniform Progress."""

import pytest

from broker.placement.strategy.live import session_for
from broker.placement.strategy.situation import Mode, Situation, StrategyTask, UniformProgress

HOUR = 3600.0
HISTORY = {"a": ([True] * 12 + [False] * 3) * 30, "b": ([True] * 6 + [False] * 6) * 30}
PRICE = {pool: [1.0] * len(bits) for pool, bits in HISTORY.items()}
TASK = StrategyTask(8 * HOUR, 12 * HOUR, 720.0, 600.0)


def test_history_gives_a_plan_for_one_pool_and_for_several() -> None:
    for pools in (["a"], ["a", "b"]):
        course, why = session_for(TASK, pools, HISTORY, PRICE, gap=600.0, on_demand_price=3.0)
        assert why == "planned"
        now = Situation(0.0, TASK.work, Mode.IDLE, None, 0.0, {"a": 1.0}, 3.0)
        assert course.decide(now).mode is Mode.SPOT


def test_several_pools_learn_from_their_family_while_their_own_record_is_thin() -> None:
    thin = {"a": [True] * 60 + [False] * 3, "b": [True] * 63}
    price = {**PRICE, "c": PRICE["a"] * 2}
    _, why = session_for(TASK, ["a", "b"], thin, price, gap=600.0, on_demand_price=3.0)
    assert "habits of other recorded pools" in why
    course, why = session_for(TASK, ["a", "b"], {**thin, "c": HISTORY["a"] * 2}, price, gap=600.0, on_demand_price=3.0)
    assert why == "planned"
    now = Situation(0.0, TASK.work, Mode.IDLE, None, 0.0, {"b": 1.0}, 3.0)
    assert course.decide(now).pool == "b"
    alone, _ = session_for(TASK, ["a", "b"], HISTORY, PRICE, gap=600.0, on_demand_price=3.0)
    longer = {**HISTORY, "c": [True, False] * 200}
    course, _ = session_for(TASK, ["a", "b"], longer, price, gap=600.0, on_demand_price=3.0)
    assert (course.plan.value == alone.plan.value).all()  # type: ignore[attr-defined]  # planned courses have one


@pytest.mark.parametrize("pools", [["c"], []])
def test_without_a_basis_it_is_uniform_progress(pools: list[str]) -> None:
    course, why = session_for(TASK, pools, HISTORY, PRICE, gap=600.0, on_demand_price=3.0)
    assert isinstance(course, UniformProgress)
    assert "without a history" in why


@pytest.mark.parametrize("thin", [[], [True] * 60])
def test_one_pool_with_little_history_is_planned_on_others(thin: list[bool]) -> None:
    course, why = session_for(TASK, ["a"], {"a": thin}, {"a": [1.0]}, gap=600.0, on_demand_price=3.0)
    assert "habits of other recorded pools" in why
    now = Situation(0.0, TASK.work, Mode.IDLE, None, 0.0, {"a": 1.0}, 3.0)
    assert course.decide(now).mode is Mode.SPOT


def test_a_job_of_weeks_gets_a_plan_of_bounded_size() -> None:
    task = StrategyTask(500 * HOUR, 900 * HOUR, 1.5 * HOUR, 600.0)
    course, _ = session_for(task, ["a"], HISTORY, PRICE, gap=600.0, on_demand_price=3.0)
    assert course.plan.value.nbytes < 110e6  # type: ignore[attr-defined]  # a planned course has one


def test_decisions_faster_than_the_record() -> None:
    task = StrategyTask(8 * HOUR, 12 * HOUR, 720.0, 60.0)
    course, _ = session_for(task, ["a"], HISTORY, PRICE, gap=600.0, on_demand_price=3.0)
    for minute in range(30):
        now = Situation(60.0 * minute, task.work, Mode.IDLE, None, 0.0, {}, 3.0)
        assert course.decide(now).mode is Mode.IDLE
