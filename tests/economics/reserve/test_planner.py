"""The planner: what it holds at which price, and what must be true of it on any demand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.errors import InvalidInput
from broker.economics.reserve.planner import HORIZONS, Memory, Planner, memories, required_share, units_to_buy
from broker.economics.reserve.replay import ReserveTerms, Stock, replay

demands = st.lists(st.integers(0, 30), min_size=1, max_size=400)
ratios = st.floats(0.01, 1.5)


def test_steady_demand_is_reserved_whole_and_bursts_are_not() -> None:
    daily = [4] * 18 + [12] * 6  # between 4 and 12 GPUs, 12 for a quarter of the day
    memory = Memory(720, daily * 30)
    assert memory.level(0.6) == 4
    assert units_to_buy(memory, 0.6, Stock(), 0) == 4


def test_nothing_is_bought_that_is_not_in_use() -> None:
    memory = Memory(720, [10] * 500 + [0])
    assert memory.level(0.6) == 10
    assert units_to_buy(memory, 0.6, Stock(), 0) == 0


def test_nothing_is_bought_before_a_day_is_known() -> None:
    assert units_to_buy(Memory(720, [10] * 23), 0.6, Stock(), 0) == 0
    assert units_to_buy(Memory(720, [10] * 24), 0.6, Stock(), 0) == 10


def test_above_the_on_demand_price_nothing_is_reserved() -> None:
    memory = Memory(168, [7] * 400)
    assert memory.level(1.0) == 7
    assert memory.level(1.01) == 0


def test_a_renewal_that_is_due_soon_makes_buying_for_a_short_while_worth_it() -> None:
    memory = Memory(168, [10] * 160 + [12] * 20)  # two more for most of a day: too short for a week
    long, soon = Stock(), Stock()
    long.add(10, 200)
    soon.add(10, 6)
    assert units_to_buy(memory, 0.6, long, 0) == 0
    assert units_to_buy(memory, 0.6, soon, 0) == 2


def test_what_lapses_above_the_baseline_will_not_be_renewed_and_spares_nothing() -> None:
    memory = Memory(168, [10] * 160 + [22] * 20)
    stock = Stock()
    stock.add(10, 200)
    stock.add(10, 6)
    assert units_to_buy(memory, 0.6, stock, 0) == 0


def test_longer_terms_look_further_back() -> None:
    assert memories(168) == memories(720) == (72, 168)
    assert memories(8760) == (72, 168, 504, 1512)


@given(demands, ratios, ratios)
def test_a_higher_ratio_never_raises_the_baseline(demand: list[int], one: float, other: float) -> None:
    memory = Memory(168, demand)
    low, high = sorted((one, other))
    assert memory.level(high) <= memory.level(low)
    assert units_to_buy(memory, high, Stock(), 0) <= units_to_buy(memory, low, Stock(), 0)
    for horizon in HORIZONS:
        assert memory.level_for(horizon, high) <= memory.level_for(horizon, low)


@given(demands, ratios)
def test_the_baseline_lies_within_what_was_seen(demand: list[int], ratio: float) -> None:
    memory = Memory(168, demand)
    assert 0 <= memory.level(ratio) <= max(demand)
    assert 0 <= units_to_buy(memory, ratio, Stock(), 0) <= min(demand[-6:])


@given(demands, demands, ratios)
def test_what_comes_later_changes_nothing_before(past: list[int], future: list[int], ratio: float) -> None:
    terms = ReserveTerms(24, ratio)
    whole = replay(Planner(24, ratio), [*past, *future], terms)
    before = replay(Planner(24, ratio), past, terms)
    assert whole.held[: len(past)] == before.held


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.8])
def test_patience_asks_for_more_use_than_the_price_and_never_for_more_than_all(ratio: float) -> None:
    assert ratio < required_share(ratio) < 1


@pytest.mark.parametrize("demand", [-1.0, float("nan"), float("inf")])
def test_demand_that_is_none_is_refused(demand: float) -> None:
    with pytest.raises(InvalidInput):
        Memory(168).add(demand)


@pytest.mark.parametrize("term", [0, -5])
def test_a_term_of_no_time_is_refused(term: int) -> None:
    with pytest.raises(InvalidInput):
        Memory(term)
