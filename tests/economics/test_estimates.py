"""Estimates as text: three significant digits, whatever the size."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.economics.figures import DIGITS, number_text, round_to, usd_text


@given(st.floats(min_value=1e-6, max_value=1e15))
def test_no_more_digits_than_three_and_no_other_value(value: float) -> None:
    for shown in (number_text(value), usd_text(value).removeprefix("$")):
        told = shown.replace(",", "")
        assert len(told.replace(".", "").strip("0")) <= DIGITS
        assert float(told) == pytest.approx(value, rel=0.5 * 10 ** (1 - DIGITS) * 1.001)
        assert "e" not in told


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e15, max_value=1e15))
def test_rounding_twice_changes_nothing_and_keeps_the_order(value: float) -> None:
    assert round_to(round_to(value)) == round_to(value)
    assert round_to(value * 1.01) >= round_to(value) if value >= 0 else round_to(value * 1.01) <= round_to(value)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (1_214_111.11, "$1,210,000"), (94_188, "$94,200"), (999.6, "$1,000"), (58.06, "$58.1"), (75.0, "$75"),
        (4.3, "$4.30"), (0.1626, "$0.163"), (0.000123456, "$0.000123"), (0, "$0"), (-12_345, "-$12,300"),
    ],
)  # fmt: skip
def test_amounts(amount: float, text: str) -> None:
    assert usd_text(amount) == text


def test_what_is_not_finite_is_said() -> None:
    assert number_text(math.inf) == "inf"
