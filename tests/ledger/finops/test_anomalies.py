"""Days on which more was spent than the recent pattern predicts."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ledger.finops.anomalies import WARM_UP, Incident, incidents, scores


def ordinary(length: int = 60, seed: int = 1) -> list[float]:
    chance = random.Random(seed)
    return [100 + 10 * (day % 7 < 5) + chance.uniform(-5, 5) for day in range(length)]


def found(days: list[float], planned: list[float] | None = None) -> list[Incident]:
    return incidents(scores(days, planned))


def test_ordinary_weeks_are_quiet() -> None:
    assert not found(ordinary())


def test_three_days_twice_as_dear_are_one_incident_with_its_cost() -> None:
    days = ordinary()
    for day in (40, 41, 42):
        days[day] += 100
    (one,) = found(days)
    assert one.first == 40
    assert 40 <= one.last <= 42
    assert one.excess > 90


def test_two_incidents_with_ordinary_days_between_are_two() -> None:
    days = ordinary()
    days[30] += 200
    days[50] += 400
    assert [(one.first, one.last) for one in found(days)] == [(30, 30), (50, 50)]


def test_a_weekend_as_dear_as_a_working_day_is_found() -> None:
    days = [amount * (0.2 if day % 7 >= 5 else 1) for day, amount in enumerate(ordinary(80))]
    assert not found(days)
    days[61] = days[62] = 105.0  # Saturday and Sunday
    assert [(one.first, one.last) for one in found(days)] == [(61, 62)]


def test_days_that_are_each_within_the_usual_are_found_together() -> None:
    """Every other day of 80 after 120 is usual, three dear ones one after the other are not."""
    days = [80.0, 120.0] * 30
    assert not found(days)
    assert not found([*days, 145.0])
    assert [one.first for one in found([*days, 145.0, 145.0, 145.0])] == [61]


def test_work_that_begins_again_after_a_holiday_is_usual() -> None:
    days = [*ordinary(40), *([10.0] * 6), *ordinary(10)]
    assert not found(days)


def test_an_ordinary_day_between_does_not_end_an_incident() -> None:
    days = ordinary()
    days[40] += 300
    days[42] += 600
    assert [(one.first, one.last) for one in found(days)] == [(40, 42)]
    assert found(days)[0].excess == pytest.approx(900, rel=0.1)


def test_what_was_planned_never_alarms() -> None:
    days, planned = ordinary(), [0.0] * 60
    days[40] += 5_000
    planned[40] = 5_000
    assert found(days)
    assert not found(days, planned)


def test_spending_more_than_planned_alarms() -> None:
    days, planned = ordinary(), [0.0] * 60
    days[40] += 5_000
    planned[40] = 4_800
    assert [one.first for one in found(days, planned)] == [40]


def test_the_first_weeks_are_not_judged_and_do_not_begin_before_the_first_spending() -> None:
    days = [0.0] * 20 + ordinary(40)
    judged = [day for day, score in enumerate(scores(days)) if score is not None]
    assert judged[0] == 20 + WARM_UP


def test_spending_after_a_pause_is_compared_with_what_was_before_it() -> None:
    days = [*ordinary(30), *([0.0] * 30), 1.0, 300.0]
    last = [one.first for one in found(days)]
    assert last == [61], "a dollar is nothing, 300 is"


@given(st.lists(st.floats(-1e6, 1e6), max_size=60), st.floats(0.01, 100))
def test_neither_the_unit_nor_the_days_after_matter(days: list[float], unit: float) -> None:
    all_of_them = scores(days)
    assert scores(days[:40]) == all_of_them[:40]
    scaled = scores([day * unit for day in days])
    for one, other in zip(all_of_them, scaled, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            ratios = [[stretch.ratio for stretch in score.stretches] for score in (one, other)]
            assert ratios[1] == pytest.approx(ratios[0], rel=1e-6, abs=1e-6)
