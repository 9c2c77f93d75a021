"""Slots of time: they add up exactly, and ranges of them cover a time without gap or overlap."""

from datetime import UTC, datetime
from zoneinfo import available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.ledger.budgets import PERIODS, period_containing
from broker.ledger.entries import DAY, QUARTER, SIZES, amount_before, slots, spans

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


def test_slots_are_quarters_of_an_hour_and_days() -> None:
    """Sums that were kept are counted in them: they may not change."""
    assert SIZES == (86_400_000_000, 900_000_000)


@pytest.mark.parametrize(
    ("covers", "expected"),
    [
        ((450, 2250), [(0, 250), (1, 500), (2, 250)]),  # 30 minutes from 00:07:30: 7:30, 15:00 and 7:30 of them
        ((900, 1800), [(1, 1000)]),  # one whole quarter; the next begins where it ends
        ((0, 1800), [(0, 500), (1, 500)]),
        ((600, 600), [(0, 1000)]),  # for no time: where it begins
        ((900, 900), [(1, 1000)]),  # on the edge, the quarter that begins there
    ],
)
def test_an_amount_is_shared_by_quarters_by_hand(covers: tuple[int, int], expected: list[tuple[int, int]]) -> None:
    second = 1_000_000
    assert list(slots(1000, covers[0] * second, covers[1] * second, QUARTER)) == expected


@pytest.mark.parametrize(("edge", "before"), [(9, 0), (10, 0), (11, 25), (12, 50), (14, 100), (15, 100)])
def test_the_part_before_an_edge_by_hand(edge: int, before: int) -> None:
    assert amount_before(100, 10, 14, edge) == before


@pytest.mark.parametrize("end", [10, 7])
@pytest.mark.parametrize(("edge", "before"), [(9, 0), (10, 0), (11, 100)])
def test_an_amount_for_no_time_belongs_to_its_start(end: int, edge: int, before: int) -> None:
    assert amount_before(100, 10, end, edge) == before


def test_spans_by_hand() -> None:
    minute = 60_000_000
    # From 22:20 on the first day to 01:40 on the fourth.
    left, right = DAY - 100 * minute, 3 * DAY + 100 * minute
    whole, rest = spans(left, right)
    assert whole == [(DAY, 1, 3), (QUARTER, 90, 96), (QUARTER, 288, 294)]
    assert rest == [(left, left + 10 * minute), (right - 10 * minute, right)]


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


NO_PLACES = {"EET", "CET", "EST", "HST", "MET", "MST", "WET", "CST6CDT", "EST5EDT", "MST7MDT", "PST8PDT"}
ZONES = st.sampled_from(sorted(available_timezones() - {"localtime", "Factory"} - NO_PLACES))
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2036, 1, 1), timezones=st.just(UTC))


@given(ZONES, st.sampled_from(PERIODS), MOMENTS)
def test_periods_of_every_time_zone_are_made_of_whole_slots(timezone: str, period: str, at: datetime) -> None:
    left, right = (round(edge.timestamp()) * 1_000_000 for edge in period_containing(period, timezone, at))
    whole, rest = spans(left, right)
    assert rest == []
    assert len(whole) <= 3
