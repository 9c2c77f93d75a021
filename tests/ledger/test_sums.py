"""Slots of time: they add up exactly, and ranges of them cover a time without gap or overlap."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import available_timezones

from hypothesis import given
from hypothesis import strategies as st

from broker.ledger.budgets import PERIODS, period_containing
from broker.ledger.sums import DAY, QUARTER, SIZES, amount_before, slots, spans

times = st.integers(0, 400 * DAY)
lengths = st.integers(0, DAY)
money = st.integers(-(10**12), 10**12)


@given(money, times, lengths)
def test_the_slots_of_an_amount_add_up_to_it_and_lie_where_it_does(micros: int, start: int, length: int) -> None:
    for size in SIZES:
        found = list(slots(micros, start, start + length, size))
        assert sum(part for _, part in found) == micros
        last = max((start + length - 1) // size, start // size)
        assert [slot for slot, _ in found] == list(range(start // size, last + 1))
        for slot, part in found:
            before = amount_before(micros, start, start + length, slot * size)
            assert part == amount_before(micros, start, start + length, (slot + 1) * size) - before


@given(times, st.integers(0, 100 * DAY))
def test_spans_cover_the_time_once(left: int, length: int) -> None:
    whole, rest = spans(left, left + length)
    pieces = sorted([(first * size, after * size) for size, first, after in whole] + rest)
    at = left
    for start, end in pieces:
        assert start == at < end
        at = end
    assert at == left + length
    assert all(end - start < 2 * QUARTER for start, end in rest), "less than would hold a whole one wherever it begins"
    assert len(whole) <= 3
    assert len(rest) <= 2


def test_a_month_of_kathmandu_needs_no_entry_to_be_read() -> None:
    offset = 5 * 4 * QUARTER + 3 * QUARTER  # 5:45 ahead
    assert spans(31 * DAY - offset, 59 * DAY - offset)[1] == []


ZONES = st.sampled_from(sorted(available_timezones() - {"localtime", "Factory"}))
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2036, 1, 1), timezones=st.just(UTC))


@given(ZONES, st.sampled_from(PERIODS), MOMENTS)
def test_periods_of_every_time_zone_are_made_of_whole_slots(timezone: str, period: str, at: datetime) -> None:
    left, right = (round(edge.timestamp()) * 1_000_000 for edge in period_containing(period, timezone, at))
    whole, rest = spans(left, right)
    assert rest == []
    assert len(whole) <= 3
