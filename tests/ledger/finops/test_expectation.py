"""What the days that are left come to."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ledger.finops.expectation import COVERAGE, MIN_DAYS, expect

DAYS = st.lists(st.floats(0, 1e6), min_size=MIN_DAYS, max_size=60)


def test_steady_spending_goes_on() -> None:
    found = expect([25.0] * 20, 10)
    assert found is not None
    assert found.amount == pytest.approx(250, rel=0.01)
    assert found.low < 250 < found.high
    assert found.high - found.low < 0.15 * 250, "what never varied has a narrow interval"


def test_the_days_ahead_are_those_of_their_week() -> None:
    week = [110.0] * 5 + [75.0] * 2
    working, weekend = expect(week * 8, 5), expect([*(week * 8), *week[:5]], 2)
    assert working is not None
    assert weekend is not None
    assert working.amount == pytest.approx(550, rel=0.03)
    assert weekend.amount == pytest.approx(150, rel=0.05)


def test_too_few_days_say_nothing() -> None:
    assert expect([25.0] * (MIN_DAYS - 1), 10) is None


def test_a_past_that_surprised_more_than_the_formula_expects_widens_the_interval() -> None:
    """The same last weeks, after a past of shifting levels or after a steady one."""
    last = [100.0, 104.0, 97.0, 101.0, 99.0] * 3
    shifting = expect([*([20.0, 21.0] * 6), *([240.0, 238.0] * 6), *([55.0, 54.0] * 6), *last], 12)
    steady = expect([*([100.0, 102.0] * 18), *last], 12)
    assert shifting is not None
    assert steady is not None
    assert shifting.high - shifting.low > 3 * (steady.high - steady.low)


@given(DAYS, st.integers(0, 31), st.floats(0.01, 100))
def test_the_unit_does_not_matter_and_bounds_enclose(days: list[float], ahead: int, unit: float) -> None:
    found, scaled = expect(days, ahead), expect([day * unit for day in days], ahead)
    assert found is not None
    assert scaled is not None
    assert 0 <= found.low <= found.amount <= found.high
    assert scaled.amount == pytest.approx(found.amount * unit, rel=1e-6, abs=1e-6 * max(days) * unit)


def test_four_of_five_sums_lie_within_the_interval_of_a_noisy_level() -> None:
    chance, inside = random.Random(7), 0
    for _ in range(200):
        days = [max(0.0, chance.gauss(100, 25)) for _ in range(45)]
        found = expect(days[:30], 15)
        assert found is not None
        inside += found.low <= sum(days[30:]) <= found.high
    assert COVERAGE - 0.05 <= inside / 200 < 0.98, "wider than needed where nothing ever shifts, but not endless"


def test_a_period_of_less_than_no_days_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 days"):
        expect([1.0] * 10, -1)
