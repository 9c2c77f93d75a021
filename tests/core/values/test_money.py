"""Money: exact, integer, and never made of floats."""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from broker.core.values.money import Money, divide_half_even, round_distinct

amounts = st.integers(-(10**15), 10**15).map(Money)
durations = st.integers(0, 10**14).map(lambda us: timedelta(microseconds=us))


@pytest.mark.parametrize(
    ("text", "micros"),
    [("1", 1_000_000), ("0.000001", 1), ("0.0000005", 0), ("0.0000015", 2), ("-2.50", -2_500_000), ("1e3", 10**9)],
)
def test_dollars_round_half_even_to_the_micro_dollar(text: str, micros: int) -> None:
    assert Money.usd(text).micros == micros


@pytest.mark.parametrize("nonsense", ["", "abc", "NaN", "Infinity", "1,000"])
def test_what_is_no_amount_is_refused(nonsense: str) -> None:
    with pytest.raises(ValueError, match="amount"):
        Money.usd(nonsense)


def test_floats_are_refused_by_type() -> None:
    with pytest.raises(TypeError):
        Money.usd(0.1)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(TypeError):
        Money(1.0)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(TypeError):
        Money(1) * 1.5  # type: ignore[operator]  # wrong on purpose


@pytest.mark.parametrize(
    ("micros", "text", "short"),
    [
        (0, "$0.00", "$0.00"),
        (1, "$0.000001", "$0.00"),
        (1_200_000, "$1.20", "$1.20"),
        (-3_000_000, "-$3.00", "-$3.00"),
        (1_234_567_891, "$1,234.567891", "$1,234.57"),
        (5_000, "$0.005", "$0.00"),
        (15_000, "$0.015", "$0.02"),
    ],
)
def test_as_people_read_it(micros: int, text: str, short: str) -> None:
    assert str(Money(micros)) == text
    assert Money(micros).rounded() == short


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (["2", "2.0034"], ["$2.000", "$2.003"]),
        (["500", "610.503417", "12"], ["$500.00", "$610.50", "$12.00"]),
        (["500", "500.000001"], ["$500.000000", "$500.000001"]),
        (["3", "3"], ["$3.00", "$3.00"]),
    ],
)
def test_amounts_of_one_sentence_are_written_alike(written: list[str], told: list[str]) -> None:
    assert round_distinct(*map(Money.usd, written)) == told


@given(st.lists(amounts, min_size=1, max_size=6))
def test_different_amounts_never_read_the_same(several: list[Money]) -> None:
    told = round_distinct(*several)
    assert len(set(told)) == len(set(several))
    assert len({len(text.partition(".")[2]) for text in told}) == 1


@given(amounts)
def test_whole_cents_cover_the_amount_and_no_more_than_a_cent_more(amount: Money) -> None:
    covered = amount.up_to_cents()
    assert Money.ZERO <= covered - amount < Money(10_000)
    assert covered.micros % 10_000 == 0


@given(amounts)
def test_json_is_a_decimal_string_that_reads_back(amount: Money) -> None:
    adapter = TypeAdapter(Money)
    assert adapter.validate_json(adapter.dump_json(amount)) == amount
    assert Decimal(amount.as_json()) == amount.dollars


@given(st.integers(-(10**18), 10**18), st.integers(1, 10**9))
def test_division_agrees_with_exact_arithmetic(numerator: int, denominator: int) -> None:
    assert divide_half_even(numerator, denominator) == round(Fraction(numerator, denominator))


@given(amounts, durations)
def test_an_hourly_rate_over_time_is_exact(rate: Money, duration: timedelta) -> None:
    exact = Fraction(rate.micros) * (duration // timedelta(microseconds=1)) / 3_600_000_000
    assert rate.for_duration(duration).micros == round(exact)


@given(st.integers(0, 10**12).map(Money), st.integers(1000, 10**9).map(Money))
def test_money_lasts_as_long_as_it_pays_for(amount: Money, rate: Money) -> None:
    lasts = amount.lasts(rate)
    used = Fraction(rate.micros) * (lasts // timedelta(microseconds=1)) / 3_600_000_000
    one_more = Fraction(rate.micros, 3_600_000_000)
    assert used <= amount.micros < used + one_more


@given(amounts, amounts)
def test_sums_and_differences_are_inverse(one: Money, other: Money) -> None:
    assert one + other - other == one
    assert Money.ZERO - one == -one
