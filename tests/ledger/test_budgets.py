import calendar
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.money import Money, in_microseconds
from broker.ledger.budgets import (
    PERIODS,
    budget_uses,
    fixed_period,
    in_scope,
    is_fixed,
    period_containing,
    period_name,
    periods_touching,
    share_within,
    summable_until,
)
from tests.counts import FULL

HOUR = timedelta(hours=1)
zones = st.sampled_from(
    # Clocks that change at midnight, by half an hour, over a skipped day, not at all; and ordinary ones.
    [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/Sao_Paulo",
        "America/Havana",
        "America/St_Johns",
        "Asia/Beirut",
        "Asia/Kolkata",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Pacific/Auckland",
        "Africa/Casablanca",
    ]
)
moments = st.datetimes(
    min_value=datetime(1990, 1, 1), max_value=datetime(2036, 12, 31), timezones=st.just(UTC)
)  # time zone rules of the past change under nobody's feet
recent = st.datetimes(min_value=datetime(2020, 1, 1), max_value=datetime(2036, 12, 31), timezones=st.just(UTC))
periods = st.sampled_from(PERIODS)
amounts = st.integers(min_value=0, max_value=10**13).map(Money)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("period", "timezone", "at", "start", "end"),
    [
        ("month", "UTC", "2026-02-28T23:59:59.999999+00:00", "2026-02-01T00:00+00:00", "2026-03-01T00:00+00:00"),
        ("month", "UTC", "2028-02-29T12:00+00:00", "2028-02-01T00:00+00:00", "2028-03-01T00:00+00:00"),
        # Still January in Berlin's February; already the new year in Auckland.
        ("month", "Europe/Berlin", "2026-01-31T23:30+00:00", "2026-02-01T00:00+01:00", "2026-03-01T00:00+01:00"),
        ("quarter", "Pacific/Auckland", "2025-12-31T11:30+00:00", "2026-01-01T00:00+13:00", "2026-04-01T00:00+13:00"),
        # The month in which clocks go forward is an hour short, the one in which they go back an hour long.
        ("month", "Europe/Berlin", "2026-03-15T00:00+00:00", "2026-03-01T00:00+01:00", "2026-04-01T00:00+02:00"),
        ("month", "Europe/Berlin", "2026-10-31T23:30+00:00", "2026-11-01T00:00+01:00", "2026-12-01T00:00+01:00"),
        ("day", "America/New_York", "2026-03-08T12:00+00:00", "2026-03-08T00:00-05:00", "2026-03-09T00:00-04:00"),
        ("day", "America/New_York", "2026-11-01T12:00+00:00", "2026-11-01T00:00-04:00", "2026-11-02T00:00-05:00"),
        # Monday to Monday, over the new year.
        ("week", "UTC", "2026-01-01T00:00+00:00", "2025-12-29T00:00+00:00", "2026-01-05T00:00+00:00"),
        # Clocks that skip midnight: the day begins at 01:00.
        ("day", "America/Sao_Paulo", "2017-10-15T12:00+00:00", "2017-10-15T01:00-02:00", "2017-10-16T00:00-02:00"),
        # Midnight happens twice: the first one counts.
        ("day", "America/Havana", "2026-11-01T12:00+00:00", "2026-11-01T00:00-04:00", "2026-11-02T00:00-05:00"),
        # Clocks that went back over midnight, from 00:01 to 23:01: the month had begun already.
        ("month", "America/St_Johns", "2009-11-01T02:45+00:00", "2009-11-01T00:00-02:30", "2009-12-01T00:00-03:30"),
        ("month", "America/St_Johns", "2009-11-01T02:29+00:00", "2009-10-01T00:00-02:30", "2009-11-01T00:00-02:30"),
        # Clocks that went forward over midnight, from 23:30 to 00:30.
        ("day", "America/Toronto", "1919-03-31T04:45+00:00", "1919-03-30T00:00-05:00", "1919-03-31T00:00-05:00"),
        # Samoa never had a 30th of December 2011.
        ("day", "Pacific/Apia", "2011-12-30T09:59+00:00", "2011-12-29T00:00-10:00", "2011-12-31T00:00+14:00"),
        ("day", "Pacific/Apia", "2011-12-30T10:00+00:00", "2011-12-31T00:00+14:00", "2012-01-01T00:00+14:00"),
    ],
)
def test_periods_by_hand(period: str, timezone: str, at: str, start: str, end: str) -> None:
    assert period_containing(period, timezone, utc(at)) == (utc(start), utc(end))


def label(period: str, day: date) -> tuple[int, int]:
    """Which period a calendar day belongs to, without the code under test."""
    match period:
        case "day":
            return day.year, day.timetuple().tm_yday
        case "week":
            return day.isocalendar()[:2]
        case "month":
            return day.year, day.month
        case _:
            return day.year, (day.month + 2) // 3


@given(periods, zones, recent)
@settings(max_examples=400 if FULL else 40)
def test_a_period_is_the_longest_time_with_one_label_on_the_local_calendar(
    period: str, timezone: str, at: datetime
) -> None:
    local = ZoneInfo(timezone)
    start, end = period_containing(period, timezone, at)
    tick = timedelta(microseconds=1)

    def of(moment: datetime) -> tuple[int, int]:
        return label(period, moment.astimezone(local).date())

    assert start <= at < end
    assert of(start) == of(at) == of(end - tick)
    assert of(start - tick) != of(at) != of(end)


@given(zones, recent)
def test_months_have_their_days(timezone: str, at: datetime) -> None:
    start, end = period_containing("month", timezone, at)
    local = at.astimezone(ZoneInfo(timezone))

    assert round((end - start) / timedelta(days=1)) == calendar.monthrange(local.year, local.month)[1]


@given(periods, zones, moments)
def test_periods_follow_each_other_without_gap_or_overlap(period: str, timezone: str, at: datetime) -> None:
    start, end = period_containing(period, timezone, at)

    assert start <= at < end
    assert period_containing(period, timezone, end)[0] == end
    assert period_containing(period, timezone, start - timedelta(microseconds=1))[1] == start
    assert period_containing(period, timezone, start) == (start, end)


@given(periods, zones, moments, st.timedeltas(timedelta(0), timedelta(days=120)))
def test_the_periods_of_a_window_contain_it_and_no_more(
    period: str, timezone: str, at: datetime, length: timedelta
) -> None:
    found = periods_touching(period, timezone, (at, at + length))

    assert found[0] == period_containing(period, timezone, at)
    assert found[0][0] <= at
    assert found[-1][1] >= at + length
    assert found[-1][0] < at + length or len(found) == 1
    assert all(a[1] == b[0] for a, b in pairwise(found))


def test_a_window_that_ends_with_its_month_does_not_touch_the_next() -> None:
    window = (utc("2026-01-10T00:00+00:00"), utc("2026-02-01T00:00+00:00"))

    assert len(periods_touching("month", "UTC", window)) == 1


@given(periods, zones, moments, st.timedeltas(timedelta(0), timedelta(days=120)), amounts)
def test_a_hold_is_split_by_time_and_to_the_micro_dollar(
    period: str, timezone: str, at: datetime, length: timedelta, amount: Money
) -> None:
    window = (at, at + length)
    touched = periods_touching(period, timezone, window)
    shares = [share_within(amount, window, one) for one in touched]

    assert sum(shares, Money.ZERO) == amount
    assert min(shares) >= Money.ZERO
    for share, (start, end) in zip(shares, touched, strict=True):
        inside = in_microseconds(min(end, window[1]) - max(start, window[0]))
        ideal = amount.micros * inside / in_microseconds(length) if length else amount.micros
        assert abs(share.micros - ideal) <= 1 + ideal * 1e-12


def test_a_hold_over_the_end_of_a_month() -> None:
    window = (utc("2026-01-31T18:00+00:00"), utc("2026-02-01T18:00+00:00"))

    shares = [share_within(Money.usd(24), window, one) for one in periods_touching("month", "UTC", window)]

    assert shares == [Money.usd(6), Money.usd(18)]


def test_money_for_no_time_belongs_to_its_moment() -> None:
    at = utc("2026-01-31T18:00+00:00")
    january, february = (
        (utc("2026-01-01T00:00+00:00"), utc("2026-02-01T00:00+00:00")),
        (utc("2026-02-01T00:00+00:00"), utc("2026-03-01T00:00+00:00")),
    )

    assert [share_within(Money.usd(5), (at, at), one) for one in (january, february)] == [Money.usd(5), Money.ZERO]
    assert share_within(Money.usd(5), (at, at - HOUR), january) == Money.usd(5)


def test_what_ends_before_it_begins_belongs_to_its_beginning() -> None:
    t = datetime(2026, 3, 2, tzinfo=UTC)
    backwards = (t + HOUR, t)
    assert share_within(Money(7), backwards, (t, t + HOUR)) == Money.ZERO
    assert share_within(Money(7), backwards, (t + HOUR, t + 2 * HOUR)) == Money(7)


def test_half_a_micro_dollar_goes_to_the_even_running_total() -> None:
    t, tick = datetime(2026, 3, 2, tzinfo=UTC), timedelta(microseconds=1)
    halves = (t, t + tick), (t + tick, t + 2 * tick)
    assert [share_within(Money(1), (t, t + 2 * tick), half).micros for half in halves] == [0, 1]
    assert [share_within(Money(3), (t, t + 2 * tick), half).micros for half in halves] == [2, 1]


def test_periods_are_told_in_utc() -> None:
    found = period_containing("day", "Asia/Kolkata", datetime(2026, 3, 2, tzinfo=UTC))
    assert all(edge.tzinfo is UTC for edge in found)


def test_a_moment_between_two_periods_belongs_to_the_later_one() -> None:
    at = utc("2026-02-01T00:00+00:00")
    before, after = (at - HOUR, at), (at, at + HOUR)

    assert [share_within(Money.usd(5), (at, at), one) for one in (before, after)] == [Money.ZERO, Money.usd(5)]
    assert period_containing("month", "UTC", at)[0] == at


def test_a_hold_that_is_meant_to_last_past_the_calendar_of_its_period_is_counted_within_it() -> None:
    """$60 over six hours, of which the period has the second and third."""
    begin = utc("2026-01-31T18:00+00:00")
    assert share_within(Money.usd(60), (begin, begin + 6 * HOUR), (begin + HOUR, begin + 3 * HOUR)) == Money.usd(20)


# --- what a budget has used -----------------------------------------------------------------------------------------


def lasting(amount: Money, now: datetime, until: datetime) -> Burn:
    """A hold that was dated now, spread evenly."""
    return Burn.evenly(amount, (now, until))


def spec(**scope: Any) -> BudgetSpec:
    return BudgetSpec("nlp", "month", "Europe/Berlin", frozenset({"cash"}), **scope)


def test_fixed_days_are_one_period_from_midnight_to_midnight_on_the_local_calendar() -> None:
    period = fixed_period(date(2026, 3, 28), date(2026, 3, 29))  # the clocks go forward on the second day
    window = (utc("2026-03-27T23:00+00:00"), utc("2026-03-29T22:00+00:00"))

    for moment in ("2020-01-01", "2026-03-28", "2030-01-01"):
        assert period_containing(period, "Europe/Berlin", utc(f"{moment}T00:00+00:00")) == window
        assert periods_touching(period, "Europe/Berlin", (utc(f"{moment}T00:00+00:00"),) * 2) == [window]
    assert window[1] - window[0] == 47 * HOUR
    assert period_name(period, "Europe/Berlin", window[0]) == "2026-03-28 to 2026-03-29"
    assert is_fixed(period)
    assert not any(map(is_fixed, PERIODS))


@pytest.mark.parametrize(
    ("period", "timezone", "start", "name"),
    [
        ("day", "America/New_York", "2026-11-22T05:00+00:00", "2026-11-22"),
        ("week", "Pacific/Auckland", "2026-11-22T11:00+00:00", "the week from 2026-11-23"),
        ("month", "Europe/Berlin", "2026-10-31T23:00+00:00", "November 2026"),
        ("quarter", "UTC", "2026-01-01T00:00+00:00", "Q1 2026"),
        ("quarter", "Asia/Tokyo", "2026-03-31T15:00+00:00", "Q2 2026"),
        ("quarter", "UTC", "2026-07-01T00:00+00:00", "Q3 2026"),
        ("quarter", "UTC", "2026-10-01T00:00+00:00", "Q4 2026"),
    ],
)
def test_a_period_is_called_by_its_place_on_the_local_calendar(
    period: str, timezone: str, start: str, name: str
) -> None:
    assert period_name(period, timezone, utc(start)) == name
    assert period_containing(period, timezone, utc(start))[0] == utc(start), "it does begin there"


@given(zones, st.dates(date(2020, 1, 1), date(2030, 1, 1)), st.integers(0, 400))
def test_fixed_days_begin_and_end_where_single_days_do(timezone: str, first: date, days: int) -> None:
    last = first + timedelta(days=days)
    start, end = period_containing(fixed_period(first, last), timezone, datetime(2026, 1, 1, tzinfo=UTC))

    assert start.astimezone(ZoneInfo(timezone)).date() in (first, first + timedelta(days=1)), "a day may be skipped"
    assert period_containing("day", timezone, end)[0] == end
    assert period_containing("day", timezone, start)[0] == start


@given(
    periods,
    zones,
    moments,
    st.timedeltas(timedelta(0), timedelta(days=60)),
    st.lists(st.tuples(st.integers(0, 10**12).map(Money), st.timedeltas(timedelta(days=-9), timedelta(days=99)))),
)
def test_holds_that_end_in_time_may_be_told_as_one(
    period: str, timezone: str, now: datetime, length: timedelta, held: list[tuple[Money, timedelta]]
) -> None:
    budget = replace(spec(), period=period, timezone=timezone)
    holds = [lasting(amount, now, now + lasts) for amount, lasts in held]
    until = summable_until(budget, now)
    short = sum((hold.amount for hold in holds if hold.end <= until), Money.ZERO)
    together = [Burn(short, until, until, Money.ZERO), *(hold for hold in holds if hold.end > until)]

    def uses(told: list[Burn]) -> object:
        return budget_uses(budget, (now, now + length), now, lambda start, end: Money.ZERO, told)

    assert uses(together) == uses(holds)


def test_before_a_fixed_period_what_lasts_into_it_is_told_hold_by_hold() -> None:
    budget = replace(spec(), period="2026-02-01/2026-03-01")
    before, within = utc("2026-01-20T00:00+00:00"), utc("2026-02-10T00:00+00:00")

    assert summable_until(budget, before) == before
    assert summable_until(budget, within) == utc("2026-03-01T00:00+01:00")


def test_the_edges_of_a_fixed_period_for_holds_that_are_told_as_one() -> None:
    budget = replace(spec(), period="2026-02-01/2026-03-01")
    start, end = utc("2026-02-01T00:00+01:00"), utc("2026-03-01T00:00+01:00")

    assert summable_until(budget, start) == end
    assert summable_until(budget, end) == end
    assert summable_until(budget, end + HOUR) == end + HOUR


def test_a_project_counts_where_its_budget_names_it() -> None:
    tags: dict[str, Any] = {"user": "ann", "team": None, "workload": None, "environment": None}

    assert in_scope(spec(projects=("llm*",)), project="llm-2", **tags)
    assert not in_scope(spec(projects=("llm*",)), project="vision", **tags)
