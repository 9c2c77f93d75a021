"""Round marks."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cli.render.charts import terminal

BERLIN = ZoneInfo("Europe/Berlin")


def texts(start: datetime, end: datetime, most: int = 6, zone: ZoneInfo | None = None) -> list[str]:
    return [text for _, text in terminal.time_ticks(start, end, most, zone or UTC)]


def test_numbers_are_round() -> None:
    assert [text for _, text in terminal.number_ticks(1.83, 3.52, 6)] == ["2.0", "2.5", "3.0", "3.5"]
    assert [text for _, text in terminal.number_ticks(0, 10, 5)] == ["0.0", "2.5", "5.0", "7.5", "10.0"]
    assert [text for _, text in terminal.number_ticks(0, 4_000, 5)] == ["0", "1,000", "2,000", "3,000", "4,000"]


@given(st.floats(-1e6, 1e6), st.floats(1e-4, 1e6), st.integers(2, 12))
def test_numbers_are_within_and_few(low: float, width: float, most: int) -> None:
    found = [value for value, _ in terminal.number_ticks(low, low + width, most)]
    assert len(found) <= most + 1
    assert all(low - width * 1e-6 <= value <= low + width * (1 + 1e-6) for value in found)


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (timedelta(seconds=40), ["12:00:00", "12:00:15", "12:00:30"]),
        (timedelta(hours=5), ["12:00", "13:00", "14:00", "15:00", "16:00", "17:00"]),
        (timedelta(hours=30), ["Nov 21 12:00", "Nov 21 18:00", "Nov 22 00:00", "Nov 22 06:00", "Nov 22 12:00", "…"]),
        (timedelta(days=4), ["Nov 22", "Nov 23", "Nov 24", "Nov 25"]),
        (timedelta(days=30), ["Nov 23", "Nov 30", "Dec 7", "Dec 14", "Dec 21"]),
        (timedelta(days=200), ["Jan 2027", "Apr 2027"]),
        (timedelta(days=3000), ["2028", "2030", "2032", "2034"]),
    ],
)
def test_times_are_round_on_the_calendar(span: timedelta, expected: list[str]) -> None:
    start = datetime(2026, 11, 21, 12, tzinfo=UTC)
    found = texts(start, start + span)
    assert [*found[: len(expected) - 1], "…"] == expected if expected[-1] == "…" else found == expected


def test_marks_stay_at_midnight_when_clocks_change() -> None:
    start = datetime(2026, 10, 23, tzinfo=BERLIN)
    found = terminal.time_ticks(start, start + timedelta(days=5), 6, BERLIN)
    assert {at.astimezone(BERLIN).hour for at, _ in found} == {0}


@given(
    st.datetimes(datetime(2000, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC)),
    st.timedeltas(timedelta(minutes=1), timedelta(days=5000)),
    st.integers(2, 12),
    st.sampled_from([UTC, BERLIN]),
)
def test_times_are_within_in_order_and_few(start: datetime, span: timedelta, most: int, zone: ZoneInfo) -> None:
    found = [at for at, _ in terminal.time_ticks(start, start + span, most, zone)]
    assert found == sorted(set(found))
    assert all(start <= at <= start + span for at in found)
    assert len(found) <= most + 1
