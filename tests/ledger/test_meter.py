"""However prices, ends and clocks are learned, each period bears what its machine time cost, and no more is posted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.market.offers import Billing
from broker.core.values.money import Money, divide_half_even
from broker.ledger.budgets import period_containing, periods_touching, share_within
from broker.ledger.holds import Metering, cost_of
from broker.ledger.meter import BilledTime, CostStretch, Meter, advance, can_continue, recount
from tests.counts import FULL

START = datetime(2026, 10, 24, 22, 10, tzinfo=UTC)  # clocks go back in Berlin in the night after
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
TICK = timedelta(microseconds=1)
WHOLE = Billing()
# Each entry is rounded to a micro-dollar at an edge of a period, and the sum up to the edge was rounded as well.
ROUNDING = 3


@dataclass
class Ledger:
    """Settles one attempt, and remembers the stretches posted. ``prices``: what is known of them now, ascending."""

    start: datetime = START
    billing: Billing = WHOLE
    prices: list[tuple[datetime, Money]] = field(default_factory=lambda: [(START, Money.usd("1"))])
    meter: Meter | None = None
    posted: list[CostStretch] = field(default_factory=list)
    recounts: int = 0

    def known(self, since: datetime, end: datetime) -> list[tuple[datetime, Money]]:
        """As `Reading.price_series`: the one in force at ``since``, then each change up to ``end``."""
        first = [one for one in self.prices if one[0] <= since][-1:]
        return (first + [one for one in self.prices if since < one[0] <= end]) or [(self.start, Money.usd("1"))]

    def settle(self, now: datetime, metering: Metering = Metering.RUNNING) -> list[CostStretch]:
        usage = BilledTime(self.start, max(now, self.start), self.billing, metering)
        meter = self.meter if self.posted or self.meter else Meter.new(self.start, Money.usd("1"))
        rates = self.known(meter.since if meter else self.start, usage.end)
        if meter is not None and can_continue(meter, rates, usage):
            self.meter, found = advance(meter, rates, usage)
        else:
            self.recounts += 1
            posted = [(one.start, one.end, one.amount) for one in self.posted]
            self.meter, found = recount(posted, self.known(self.start, usage.end), usage, Money.ZERO)
        self.posted += found
        return found

    def within(self, start: datetime, end: datetime) -> Money:
        return sum((share_within(one.amount, (one.start, one.end), (start, end)) for one in self.posted), Money.ZERO)

    @property
    def total(self) -> Money:
        return sum((one.amount for one in self.posted), Money.ZERO)


def exactly(prices: Sequence[tuple[datetime, Money]], start: datetime, end: datetime) -> Fraction:
    """What the time from ``start`` to ``end`` costs in micro-dollars, reckoned in the simplest way."""
    edges = sorted({start, end, *(at for at, _ in prices if start < at < end)})
    total = Fraction(0)
    for since, until in pairwise(edges):
        rate = ([price for at, price in prices if at <= since] or [prices[0][1]])[-1]
        total += Fraction(rate.micros * ((until - since) // TICK), 3_600_000_000)
    return total


AMOUNTS = st.integers(0, 40_000_000).map(Money)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("settle"), st.integers(1, 5000)),
        st.tuples(st.just("price"), st.integers(1, 3000), AMOUNTS),
        st.tuples(st.just("price"), st.integers(1, 3000), st.just(Money.usd("1"))),
        st.tuples(st.just("ahead"), st.integers(1, 600_000)),
        st.tuples(st.just("behind"), st.integers(1, 600_000)),
        st.tuples(st.just("forget"), st.just(0)),
    ),
    max_size=12,
)
BILLING = st.sampled_from(
    [
        WHOLE,
        Billing(granularity=HOUR),
        Billing(minimum=10 * MINUTE),
        Billing(free_if_interrupted_within=HOUR),
    ]
)


@settings(max_examples=400 if FULL else 40, deadline=None)
@given(
    steps=STEPS,
    billing=BILLING,
    lag=st.integers(0, 5000),
    how=st.sampled_from([Metering.RUNNING, Metering.ENDED, Metering.INTERRUPTED]),
    period=st.sampled_from(["day", "week", "month"]),
    timezone=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns"]),
)
def test_each_period_bears_what_its_machine_time_cost(
    steps: list[tuple[Any, ...]], billing: Billing, lag: int, how: Metering, period: str, timezone: str
) -> None:
    """Minutes pass and machines are settled; prices become known late, but in the order of their dates; clocks are
    ahead or behind for one look; meters are dropped; the end is found out ``lag`` minutes after it was."""
    ledger = Ledger(billing=billing)
    now = START
    for kind, number, *price in steps:
        if kind == "settle":
            now += number * MINUTE
            ledger.settle(now)
        elif kind == "price":
            # Dated after the newest that is known, and often long before now.
            at = ledger.prices[-1][0] + number * MINUTE
            now = max(now, at)
            ledger.prices.append((at, price[0]))
        elif kind == "forget":
            ledger.meter = None if ledger.posted else ledger.meter
        else:
            ledger.settle(now + number * MINUTE * (1 if kind == "ahead" else -1))
    end = now if how is Metering.RUNNING else max(START, now - lag * MINUTE)
    ledger.settle(end, how)
    assert ledger.total == cost_of(ledger.prices, 1, START, end, billing, metering=how)
    assert ledger.settle(end, how) == [], "settling twice posts nothing"
    if how is not Metering.ENDED and end - START < billing.free_if_interrupted_within:
        expected = [(START, ledger.total)]
    else:
        beside = ledger.total - Money(divide_half_even(*exactly(ledger.prices, START, end).as_integer_ratio()))
        expected = [(max(end - TICK, START), beside)]
    furthest = max([end, *(one.end for one in ledger.posted)])
    for first, after in periods_touching(period, timezone, (START, furthest + TICK)):
        left, right = max(first, START), min(after, end)
        meant = exactly(ledger.prices, left, right) if left < right else Fraction(0)
        if how is not Metering.ENDED and end - START < billing.free_if_interrupted_within:
            meant = Fraction(0)
        meant += sum(amount.micros for at, amount in expected if first <= at < after)
        spent = ledger.within(first, after)
        assert abs(spent.micros - meant) <= ROUNDING * (1 + len(ledger.posted)), (first, after)
        assert spent.micros >= -ROUNDING * (1 + len(ledger.posted)), (first, after)


def test_a_price_that_becomes_known_late_is_booked_where_it_was_in_force() -> None:
    month = datetime(2026, 12, 1, tzinfo=UTC)
    ledger = Ledger(start=month - 10 * HOUR, prices=[(month - 20 * HOUR, Money.usd("1"))])
    for hours in range(13):
        ledger.settle(month + (hours - 10) * HOUR)
    ledger.prices.append((month - 5 * HOUR, Money.usd("11")))
    (correction,) = ledger.settle(month + 2 * HOUR)
    assert correction == CostStretch(month - 5 * HOUR, month + 2 * HOUR, Money.usd("70"))
    assert ledger.within(month - 30 * HOUR, month) == Money.usd("60")
    assert ledger.within(month, month + 30 * HOUR) == Money.usd("22")
    assert ledger.recounts == 0, "the newest known price is a place to go on from"


def test_a_clock_that_was_ahead_leaves_nothing_in_the_time_that_it_showed() -> None:
    ledger = Ledger()
    ledger.settle(START + HOUR)
    ahead = START + timedelta(days=400)
    ledger.settle(ahead)
    assert ledger.total == Money.usd("9600")
    ledger.settle(START + HOUR + MINUTE)
    assert ledger.total == Money(1_016_667)
    for day in range(401):
        at = START + timedelta(days=day)
        first, after = period_containing("month", "UTC", at)
        assert ledger.within(first, after) >= Money.ZERO
        assert day < 32 or ledger.within(at, at + timedelta(days=1)) == Money.ZERO


@pytest.mark.parametrize("lag", [timedelta(0), MINUTE, 3 * HOUR])
def test_an_end_found_out_late_gives_back_the_time_after_it(lag: timedelta) -> None:
    ledger = Ledger()
    for hours in range(1, 5):
        ledger.settle(START + hours * HOUR)
    end = START + 4 * HOUR - lag
    found = ledger.settle(end, Metering.ENDED)
    given_back = CostStretch(end, START + 4 * HOUR, -Money.usd("1").for_duration(lag))
    assert found == ([given_back] if lag else [])
    assert ledger.total == Money.usd("1").for_duration(4 * HOUR - lag)


def test_what_is_billed_beyond_the_end_belongs_to_the_last_moment_of_the_machines() -> None:
    month = datetime(2026, 12, 1, tzinfo=UTC)
    start = month - 30 * MINUTE
    ledger = Ledger(start=start, billing=Billing(granularity=HOUR), prices=[(start, Money.usd("6"))])
    ledger.settle(month - 10 * MINUTE)
    ledger.settle(month, Metering.ENDED)
    assert ledger.total == Money.usd("6")
    assert ledger.within(start, month) == Money.usd("6"), "nothing of it was there in December"


def test_a_price_change_at_the_very_end_does_not_count() -> None:
    ledger = Ledger(billing=Billing(granularity=HOUR))
    end = START + 30 * MINUTE
    ledger.prices.append((end, Money.usd("100")))
    ledger.settle(end, Metering.ENDED)
    assert ledger.total == Money.usd("1")
    assert ledger.meter is not None
    assert (ledger.meter.since, ledger.meter.rate) == (START, Money.usd("1"))


def test_an_interruption_in_the_free_time_takes_everything_back() -> None:
    ledger = Ledger(billing=Billing(free_if_interrupted_within=HOUR))
    ledger.settle(START + 59 * MINUTE)
    assert ledger.posted == []
    ledger.settle(START + 2 * HOUR)
    assert ledger.total == Money.usd("2")
    ledger.settle(START + 59 * MINUTE, Metering.INTERRUPTED)
    assert ledger.total == Money.ZERO
    assert ledger.within(START, START + 20 * MINUTE) == Money.ZERO


def test_a_free_interruption_found_out_late_takes_back_what_older_prices_cost_as_well() -> None:
    ledger = Ledger(billing=Billing(free_if_interrupted_within=HOUR))
    ledger.prices.append((START + 30 * MINUTE, Money.usd("4")))
    ledger.settle(START + 2 * HOUR)
    ledger.settle(START + 59 * MINUTE, Metering.INTERRUPTED)
    assert ledger.total == Money.ZERO
    half_past = START + 20 * MINUTE
    assert ledger.within(START, half_past) == ledger.within(half_past, START + HOUR) == Money.ZERO


def test_going_on_costs_the_same_after_many_settlements_and_recounting_is_the_exception() -> None:
    ledger = Ledger()
    for minute in range(1, 500):
        ledger.prices.append((START + minute * MINUTE - 30 * TICK, Money(minute // 100)))
        asked = ledger.known(ledger.meter.since if ledger.meter else START, START + minute * MINUTE)
        assert len(asked) <= 2
        assert len(ledger.settle(START + minute * MINUTE)) <= 2
    assert ledger.recounts == 0
