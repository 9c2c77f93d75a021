"""How held money is used up over time, by hand: $48 at $2 an hour from noon on last a day."""

from datetime import UTC, datetime, timedelta

import pytest

from broker.core.values.burns import Burn, rate_over
from broker.core.values.money import Money

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MOMENT = timedelta(microseconds=1)
DAY = Burn(Money.usd(48), NOON, NOON + 24 * HOUR, Money.usd(2))


def rest(burn: Burn, moment: datetime) -> Money:
    return burn.share((moment, moment + 10_000 * HOUR))


@pytest.mark.parametrize(("hours", "left"), [(-5, 48), (0, 48), (6, 36), (23, 2), (24, 0), (90, 0)])
def test_what_can_still_be_used_up_at_a_moment(hours: int, left: int) -> None:
    assert rest(DAY, NOON + hours * HOUR) == Money.usd(left)


def test_what_falls_into_a_period() -> None:
    midnight = NOON + 12 * HOUR
    assert DAY.share((midnight - 720 * HOUR, midnight)) == Money.usd(24)
    assert DAY.share((midnight, midnight + 744 * HOUR)) == Money.usd(24)
    assert DAY.share((midnight + HOUR, midnight + 2 * HOUR)) == Money.usd(2)
    assert DAY.share((NOON - 2 * HOUR, NOON)) == Money.ZERO


def test_what_falls_into_each_of_many_periods() -> None:
    periods = [(NOON + hours * HOUR, NOON + (hours + 6) * HOUR) for hours in (-12, -6, 0, 6, 15, 21, 48)]
    assert DAY.shares(periods) == [Money.usd(amount) for amount in (0, 0, 12, 12, 12, 6, 0)]
    assert DAY.shares(periods) == [DAY.share(period) for period in periods]


def test_what_the_rate_cannot_use_up_counts_at_the_beginning() -> None:
    """$5 beside the $4 that two hours take: the egress of a start."""
    burn = Burn(Money.usd(9), NOON, NOON + 2 * HOUR, Money.usd(2))
    assert rest(burn, NOON) == Money.usd(9)
    assert rest(burn, NOON + MOMENT) == Money.usd(4)
    assert rest(burn, NOON + HOUR) == Money.usd(2)
    assert burn.share((NOON, NOON + HOUR)) == Money.usd(7)


def test_a_rate_that_is_higher_than_needed_uses_up_no_more_than_there_is() -> None:
    burn = Burn(Money.usd(4), NOON, NOON + 4 * HOUR, Money.usd(50))
    assert rest(burn, NOON + HOUR) == Money.usd(3)


def test_spread_evenly() -> None:
    even = Burn.evenly(Money.usd(48), (NOON, NOON + 24 * HOUR))
    assert even == DAY
    assert Burn.evenly(Money.usd(5), (NOON, NOON)) == Burn(Money.usd(5), NOON, NOON, Money.ZERO)
    backwards = Burn.evenly(Money.usd(5), (NOON, NOON - HOUR))
    assert backwards == Burn(Money.usd(5), NOON, NOON, Money.ZERO)
    assert rest(backwards, NOON) == Money.usd(5)
    assert rest(backwards, NOON + MOMENT) == Money.ZERO


def test_a_rate_that_is_just_enough_is_rounded_up() -> None:
    assert rate_over(Money.usd(48), 24 * HOUR) == Money.usd(2)
    assert rate_over(Money(10), 3 * HOUR) == Money(4)
    assert rate_over(Money(9), 3 * HOUR) == Money(3)
    assert rate_over(Money(9), timedelta(0)) == rate_over(Money(9), -HOUR) == Money.ZERO
    assert rate_over(Money(1), MOMENT) == Money(3_600_000_000)


def test_seen_later_it_begins_then_and_ends_as_planned_or_once_it_is_used_up() -> None:
    """Ten hours later $48 are held still: 14 hours at $2 use up $28, and the rest counts at the beginning."""
    assert DAY.seen(NOON) == DAY
    later = DAY.seen(NOON + 10 * HOUR)
    assert later == Burn(Money.usd(48), NOON + 10 * HOUR, NOON + 24 * HOUR, Money.usd(2))
    assert later.share((NOON + 10 * HOUR, NOON + 11 * HOUR)) == Money.usd(22)
    settled = Burn(Money.usd(6), NOON, NOON + 24 * HOUR, Money.usd(2)).seen(NOON + 10 * HOUR)
    assert settled.end == NOON + 13 * HOUR


def test_seen_after_its_end_all_of_it_counts_now() -> None:
    over = DAY.seen(NOON + 30 * HOUR)
    assert (over.start, over.end) == (NOON + 30 * HOUR, NOON + 30 * HOUR)
    assert over.share((NOON + 30 * HOUR, NOON + 31 * HOUR)) == Money.usd(48)


def test_what_a_clock_dated_ahead_counts_from_now_on_for_as_long() -> None:
    assert DAY.end_at(NOON - 100 * HOUR) == NOON - 76 * HOUR
    assert DAY.end_at(NOON) == DAY.end_at(NOON + 100 * HOUR) == NOON + 24 * HOUR
    early = DAY.seen(NOON - 100 * HOUR)
    assert (early.start, early.end, early.amount) == (NOON - 100 * HOUR, NOON - 76 * HOUR, Money.usd(48))


def test_what_burns_at_no_rate_or_is_nothing_is_over_at_once() -> None:
    for burn in (Burn(Money.usd(5), NOON, NOON + HOUR, Money.ZERO), Burn(Money.ZERO, NOON, NOON + HOUR, Money.usd(2))):
        assert (burn.seen(NOON).start, burn.seen(NOON).end) == (NOON, NOON)


def test_the_last_part_is_used_up_after_everything_else() -> None:
    assert DAY.last(Money.usd(6)) == Burn(Money.usd(6), NOON + 21 * HOUR, NOON + 24 * HOUR, Money.usd(2))
    assert DAY.last(Money.usd(48)) == DAY
    assert DAY.last(Money.usd(60)).start == NOON, "no part of it begins before it"
    at_once = Burn(Money.usd(9), NOON, NOON + HOUR, Money.ZERO)
    assert at_once.last(Money.usd(2)) == Burn(Money.usd(2), NOON, NOON + HOUR, Money.ZERO)


@pytest.mark.parametrize(
    ("edge", "expected"),
    [
        (0, "2"),  # ten hours at $1 follow
        (4, "6"),
        (10, "12"),
        (15, "12"),
        (-5, "0"),  # fifteen hours would need more than there is
    ],
)
def test_what_may_be_used_up_before_an_edge_leaves_what_was_judged_for_later(edge: int, expected: str) -> None:
    """$12 from NOON on, at $1 an hour for ten hours: $2 count at the beginning."""
    burn = Burn(Money.usd(12), NOON, NOON + 10 * HOUR, Money.usd(1))
    assert burn.before(NOON + edge * HOUR) == Money.usd(expected)
