"""Units: what is read, what is refused with which sentence, and that writing is the inverse of reading."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.values.money import Money
from broker.core.values.units import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_DURATION,
    MAX_MEMORY_GIB,
    MAX_MONEY,
    parse_accelerators,
    parse_count,
    parse_cpus,
    parse_duration,
    parse_memory,
    parse_money,
    parse_size,
    parse_term,
    print_count,
    print_duration,
    print_minimum,
    print_money,
    print_size,
    split_machine,
)

PARSERS = [parse_duration, parse_size, parse_money, parse_count, parse_memory, parse_cpus, split_machine]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("12m", 720),
        ("48h", 172_800),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        (" 1.5h ", 5_400),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1d2h3m4.5s", 93_784.5),
        ("0s", 0),
        ("48H", 172_800),
        ("3650d", 315_360_000),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "days"), [("1y", 365), ("36mo", 1095), (" 1.5Y ", 547.5), ("100y", 36_500), ("720h", 30)]
)
def test_terms_have_years_and_months_too(text: str, days: float) -> None:
    assert parse_term(text) == timedelta(days=days)


@pytest.mark.parametrize("text", ["0y", "0h", "100.1y", "9" * 30 + "mo", "1 year", "y", "-1y"])
def test_terms_are_above_zero_and_of_at_most_a_century(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_term(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("14GB", 14 * 10**9),
        ("14GiB", 14 * 2**30),
        ("500MB", 500 * 10**6),
        ("1.5 TB", 15 * 10**11),
        ("512KiB", 512 * 1024),
        ("7B", 7),
        ("3KB", 3_000),
        ("3PB", 3 * 10**15),
        ("3MiB", 3 * 2**20),
        ("3TiB", 3 * 2**40),
        ("3PiB", 3 * 2**50),
        ("14gb", 14 * 10**9),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "dollars"),
    [
        ("$900", "900"),
        ("900 USD", "900"),
        ("USD 900", "900"),
        ("900usd", "900"),
        ("$1,234.56", "1234.56"),
        ("$0.000001", "0.000001"),
        ("$2.50000000", "2.5"),
        ("$0", "0"),
    ],
)
def test_money(text: str, dollars: str) -> None:
    assert parse_money(text) == Money.usd(Decimal(dollars))


@pytest.mark.parametrize("value", [900, 900.0, "900", "900.00"])
def test_money_without_a_currency_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"expected an amount with currency, such as \$900"):
        parse_money(value)


@pytest.mark.parametrize(
    ("value", "count"), [("7B", 7e9), ("350M", 3.5e8), ("1.5b", 1.5e9), ("1T", 1e12), (7_000_000_000, 7e9), (1e3, 1e3)]
)
def test_counts(value: object, count: float) -> None:
    assert parse_count(value) == count


@pytest.mark.parametrize(
    ("value", "gib"),
    [(64, 64), ("64", 64), ("64+", 64), ("64GB", 64), ("64GB+", 64), ("64GiB", 64), ("512MB", 0.5), ("1tb", 1024),
     ("16Gi", 16), (0.5, 0.5), (1e2, 100)],
)  # fmt: skip
def test_memory_as_skypilot_writes_it(value: object, gib: float) -> None:
    assert parse_memory(value) == gib


@pytest.mark.parametrize(("value", "cpus"), [(8, 8), ("8", 8), ("8+", 8), (0.5, 0.5), ("16.5+", 16.5)])
def test_cpus(value: object, cpus: float) -> None:
    assert parse_cpus(value) == cpus


@pytest.mark.parametrize(
    ("value", "machine"), [("H100:8", ("H100", 8)), ("H100", ("H100", 1)), (" A100-80GB : 4 ", ("A100-80GB", 4))]
)
def test_machines(value: str, machine: tuple[str, int]) -> None:
    assert split_machine(value) == machine


@pytest.mark.parametrize("value", ["H100:", "H100:0", "H100:-1", "H100:0.5", "H100:8:2", ":8", "", "H100:2000"])
def test_machines_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"expected|makes sense"):
        split_machine(value)


@pytest.mark.parametrize("value", [True, None, [8], 0, -1, 1.5, "1.5", float("nan"), 2000])
def test_numbers_of_accelerators_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"accelerators per machine"):
        parse_accelerators(value)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    "value",
    ["", "  ", "soon", None, True, [], {}, ["1h"], "nan", "inf", float("nan"), float("inf"), "1e400h", "٣h", "7\u212a"],
)
def test_nonsense_is_refused_with_what_was_expected(parse: Callable[[object], object], value: object) -> None:
    # Names of accelerators may be any word. U+212A is the Kelvin sign, which only looks like a K.
    if parse is split_machine and isinstance(value, str) and value.strip():
        return
    with pytest.raises(ValueError, match=r"expected .*such as"):
        parse(value)


@pytest.mark.parametrize("parse", PARSERS[:-1])
@pytest.mark.parametrize("value", ["-5", "-5m", "-$5", "$-5", "-5GB", -5, -0.5, "- 5h"])
def test_negative_values_say_so(parse: Callable[[object], object], value: object) -> None:
    with pytest.raises(ValueError, match=r"must not be negative; expected .*such as"):
        parse(value)


@pytest.mark.parametrize(
    ("parse", "value"),
    [
        (parse_duration, "3651d"),
        (parse_duration, "999999999999999999w"),
        (parse_size, "1001PB"),
        (parse_money, "$1,000,000,000.01"),
        (parse_money, "$0.0000001"),
        (parse_count, 0),
        (parse_count, "0.5"),
        (parse_count, 10**18),
        (parse_memory, 0),
        (parse_memory, "1KB"),
        (parse_memory, "9999999TB"),
        (parse_cpus, 0),
        (parse_cpus, 10**9),
    ],
)
def test_absurd_values_are_refused(parse: Callable[[object], object], value: object) -> None:
    with pytest.raises(ValueError, match=r"makes sense|finer than"):
        parse(value)


@pytest.mark.parametrize("text", ["60", "5 minutes", "30m1h", "1h1h", "5us", "1:30"])
def test_durations_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a duration with its unit, such as 90s"):
        parse_duration(text)


def test_messages_do_not_repeat_pages_of_input() -> None:
    with pytest.raises(ValueError, match=r"\.\.\.'$") as caught:
        parse_duration("x" * 100_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        ("48h", "48h"),
        ("60h", "60h"),
        ("90s", "1m30s"),
        ("90m", "1h30m"),
        ("14d", "14d"),
        ("0s", "0s"),
        ("0.5s", "0.5s"),
    ],
)
def test_durations_are_printed_for_people(duration: str, text: str) -> None:
    assert print_duration(parse_duration(duration)) == text


@pytest.mark.parametrize("text", ["14GB", "14GiB", "500MB", "1KB", "1KiB", "999B", "0B", "1500MB"])
def test_sizes_are_printed_for_people(text: str) -> None:
    assert print_size(parse_size(text)) == text


@pytest.mark.parametrize("text", ["7B", "350M", "1.5B", "12", "1T"])
def test_counts_are_printed_for_people(text: str) -> None:
    assert print_count(parse_count(text)) == text


def test_money_is_printed_for_people() -> None:
    assert print_money(Money.usd("900")) == "$900.00"
    assert print_money(Money.usd("1234.5")) == "$1,234.50"


@given(st.timedeltas(timedelta(0), MAX_DURATION))
def test_durations_survive_printing(duration: timedelta) -> None:
    assert parse_duration(print_duration(duration)) == duration


@given(st.integers(0, MAX_BYTES) | st.integers(0, 1000).map(lambda n: n * 2**40))
def test_sizes_survive_printing(size: int) -> None:
    assert parse_size(print_size(size)) == size


@given(st.integers(0, MAX_MONEY.micros).map(Money))
def test_money_survives_printing(amount: Money) -> None:
    assert parse_money(print_money(amount)) == amount


@given(st.floats(1, MAX_COUNT) | st.integers(1, MAX_COUNT).map(float))
def test_counts_survive_printing(count: float) -> None:
    assert parse_count(print_count(count)) == count


@given(st.floats(1 / 1024, MAX_MEMORY_GIB))
def test_memory_survives_printing(gib: float) -> None:
    assert parse_memory(print_minimum(gib)) == gib
    assert parse_memory(gib) == gib


@given(st.floats(0.01, 100_000))
def test_cpus_survive_printing(cpus: float) -> None:
    assert parse_cpus(print_minimum(cpus)) == cpus


@given(st.sampled_from(PARSERS), st.text() | st.floats() | st.integers() | st.booleans() | st.none())
def test_whatever_comes_in_only_value_errors_come_out(parse: Callable[[object], object], value: object) -> None:
    with suppress(ValueError):
        parse(value)
