"""Windows of the past and stocks of what was bought, against counting by hand."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.economics.reserve.planner import SlidingWindow
from broker.economics.reserve.replay import Stock

values = st.lists(st.integers(0, 50), min_size=1, max_size=120)


@given(values, st.integers(1, 40), st.floats(0, 1))
def test_a_window_is_the_latest_hours_sorted(seen: list[int], hours: int, q: float) -> None:
    window, at_once = SlidingWindow(hours), SlidingWindow(hours)
    for value in seen:
        window.add(value)
    at_once.extend(seen)
    latest = sorted(seen[-hours:])
    assert len(window) == len(at_once) == len(latest)
    assert window.quantile(q) == at_once.quantile(q)
    assert window.quantile(0) == latest[0]
    assert window.quantile(1) == latest[-1]
    assert window.quantile(0.5) == pytest.approx(statistics.median(latest))
    level = window.level(q)
    assert sum(value >= level for value in latest) >= q * len(latest) - 1e-6
    assert all(sum(v >= other for v in latest) < q * len(latest) for other in latest if other > level)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), max_size=20), st.integers(0, 40), st.integers(0, 40))
def test_a_stock_is_what_was_added_and_has_not_lapsed(lots: list[tuple[int, int]], hour: int, within: int) -> None:
    stock = Stock()
    for units, until in lots:
        stock.add(units, until)
    assert stock.held(hour) == sum(units for units, until in lots if until > hour)
    assert stock.lapsing(hour, within) == sum(units for units, until in lots if hour < until <= hour + within)
