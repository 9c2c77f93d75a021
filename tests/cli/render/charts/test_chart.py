"""What a chart holds, and how it is told in words."""

from datetime import UTC, datetime, timedelta
from math import inf, isfinite, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cli.render.charts.chart import Bars, Chart, Line, line_runs, number_text, x_numbers

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_a_series_has_a_value_for_each_place() -> None:
    with pytest.raises(ValueError, match="3 x values and 2 y values"):
        Line("p5", [1, 2, 3], [1.0, 2.0])
    with pytest.raises(ValueError, match="2 labels and 1 values"):
        Bars("cash", ["a", "b"], [1.0])


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        Line("p5", [datetime(2026, 11, 21)], [1.0])


def test_a_chart_is_of_one_kind() -> None:
    line, bars = Line("p5", [1], [1.0]), Bars("cash", ["a"], [1.0])
    with pytest.raises(ValueError, match="not both"):
        Chart("", "", "", lines=[line], bars=[bars])
    with pytest.raises(ValueError, match="times and numbers"):
        Chart("", "", "", lines=[line, Line("p4", [NOON], [1.0])])
    with pytest.raises(ValueError, match="different labels"):
        Chart("", "", "", bars=[bars, Bars("held", ["b"], [1.0])])


def test_what_is_not_known_leaves_a_gap() -> None:
    line = Line("p5", [0, 1, 2, 3, 4, 5], [1.0, None, 2.0, 3.0, nan, inf])
    assert list(line_runs(line)) == [[(0, 1.0)], [(2, 2.0), (3, 3.0)]]


def test_a_price_holds_until_the_next_and_up_to_a_gap() -> None:
    line = Line("p5", [0, 1, 2, 3], [1.0, 2.0, None, 5.0], step=True)
    assert list(line_runs(line)) == [[(0, 1.0), (1, 1.0), (1, 2.0), (2, 2.0)], [(3, 5.0)]]


@given(st.lists(st.one_of(st.none(), st.floats(allow_nan=True)), max_size=30), st.booleans())
def test_runs_keep_every_known_value_in_order(values: list[float | None], step: bool) -> None:
    line = Line("p5", [NOON + timedelta(hours=n) for n in range(len(values))], values, step)
    found = list(line_runs(line))
    kept = [point for run in found for point in run]
    wanted = [(x, y) for x, y in zip(x_numbers(line), values, strict=True) if y is not None and isfinite(y)]
    assert set(wanted) <= set(kept)
    assert [x for x, _ in kept] == sorted(x for x, _ in kept)
    assert step or kept == wanted


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,234.5"), (0.0375, "0.0375"), (12.0, "12"), (2.5e7, "25,000,000")]
)
def test_numbers_keep_the_digits_that_count(value: float, text: str) -> None:
    assert number_text(value) == text
