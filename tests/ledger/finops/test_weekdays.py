"""The week's pattern in daily spending."""

import random

import pytest

from broker.ledger.finops.anomalies import week_pattern

WEEK = (110.0, 110.0, 110.0, 110.0, 110.0, 75.0, 75.0)


def test_a_pattern_is_found_and_taken_out() -> None:
    found = week_pattern(WEEK * 8)
    assert [100 * (1 + one) for one in found.effects] == pytest.approx(WEEK)
    assert found.levelled[3:-3] == pytest.approx([100.0] * 50)
    assert found.share(7) == pytest.approx(1)
    assert found.share(5) == pytest.approx(1.1), "the five days after a Sunday are working days"


def test_the_first_effect_is_that_of_the_next_day() -> None:
    assert week_pattern(WEEK * 8 + WEEK[:6]).effects[0] == pytest.approx(-0.25, abs=0.02)


def test_chance_is_no_pattern() -> None:
    kept = []
    for seed in range(20):
        chance = random.Random(seed)
        kept.append(max(map(abs, week_pattern([chance.gauss(100, 20) for _ in range(60)]).effects)))
    assert sorted(kept)[10] < 0.05, "weekdays of noise differ by more, and most of it is taken for chance"


@pytest.mark.parametrize("days", [(), (5.0,), WEEK * 2, (0.0,) * 60])
def test_with_little_history_or_no_spending_there_is_none(days: tuple[float, ...]) -> None:
    found = week_pattern(days)
    assert found.effects == (0.0,) * 7
    assert found.levelled == days
