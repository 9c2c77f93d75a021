"""A machine at $3.60 an hour, that is ninety cents a quarter of an hour: what is to be posted, to the micro-dollar."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.market.offers import Billing
from broker.core.values.money import Money
from broker.ledger.holds import Metering
from broker.ledger.meter import HOUR as HOUR_IN_MICROSECONDS
from broker.ledger.meter import BilledTime, CostStretch, Meter, advance, can_continue, recount

T = datetime(2026, 10, 24, 22, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
TICK = timedelta(microseconds=1)
RATE = Money.usd("3.60")
PLAIN = Billing()
NOTHING = Money.ZERO


def at(minutes: float) -> datetime:
    return T + minutes * MINUTE


def used(
    minutes: float, metering: Metering = Metering.RUNNING, billing: Billing = PLAIN, since: float = 0
) -> BilledTime:
    return BilledTime(at(since), at(minutes), billing, metering)


def stretch(first: float, after: float, dollars: str) -> CostStretch:
    return CostStretch(at(first), at(after), Money.usd(dollars))


def lacking(*micros: int) -> list[tuple[float, float, int]]:
    """What is to be posted where so many micro-dollars lack in each quarter of an hour from T on: minutes and amount.
    None of it is the cost of now."""
    posted = [(at(15 * n), at(15 * n + 15), Money(-amount)) for n, amount in enumerate(micros)]
    _, found = recount(posted, [(T, NOTHING)], used(0), NOTHING)
    return [((one.start - T) / MINUTE, (one.end - T) / MINUTE, one.amount.micros) for one in found]


# --- what is billed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("minutes", "metering", "free"),
    [
        (59, Metering.RUNNING, True),
        (59, Metering.INTERRUPTED, True),
        (59, Metering.ENDED, False),  # whoever else ends it pays
        (60, Metering.RUNNING, False),
        (60, Metering.INTERRUPTED, False),
    ],
)
def test_what_is_free(minutes: int, metering: Metering, free: bool) -> None:
    assert used(minutes, metering, Billing(free_if_interrupted_within=HOUR)).free is free


def test_steps_and_minimum_are_billed_once_the_machines_are_gone() -> None:
    steps = Billing(granularity=HOUR)
    assert used(30, billing=steps).billed_to == at(30)
    assert used(30, Metering.ENDED, steps).billed_to == used(30, Metering.INTERRUPTED, steps).billed_to == at(60)


@pytest.mark.parametrize(
    ("since", "rates", "minutes", "whether"),
    [
        (0, [], 0, True),  # the start itself is a place to go on from, whatever the prices
        (-1, [(-1, RATE)], 60, False),
        (20, [(20, RATE)], 21, True),
        (20, [(20, RATE)], 20, False),  # the machines were gone by then
        (20, [(20, RATE)], 19, False),
        (20, [(19, RATE)], 60, False),  # prices were rewritten
        (20, [(20, Money.usd(1))], 60, False),
    ],
)
def test_whether_a_meter_is_a_place_to_go_on_from(
    since: float, rates: list[tuple[float, Money]], minutes: float, whether: bool
) -> None:
    meter = Meter(NOTHING, at(60), at(since), RATE)
    assert can_continue(meter, [(at(when), rate) for when, rate in rates], used(minutes)) is whether


def test_what_turned_out_to_be_free_is_counted_anew() -> None:
    usage = used(59, Metering.INTERRUPTED, Billing(free_if_interrupted_within=HOUR))
    assert not can_continue(Meter(NOTHING, at(60), at(20), RATE), [(at(20), RATE)], usage)


# --- going on -------------------------------------------------------------------------------------------------------


def test_each_settlement_goes_on_from_the_one_before() -> None:
    first, found = advance(Meter.new(T, RATE), [(T, RATE)], used(30))
    assert found == [stretch(0, 30, "1.80")]
    assert first == Meter(Money.usd("1.80"), at(30), T, RATE)
    rose = [(T, RATE), (at(40), Money.usd("7.20"))]
    second, found = advance(first, rose, used(60))
    assert found == [stretch(30, 40, "0.60"), stretch(40, 60, "2.40")]
    assert second == Meter(Money.usd("4.80"), at(60), at(40), Money.usd("7.20"), cost=2_400_000 * HOUR_IN_MICROSECONDS)
    assert advance(second, rose[1:], used(60)) == (second, [])


def test_a_price_that_is_told_again_divides_nothing_and_is_where_it_goes_on() -> None:
    meter, found = advance(Meter.new(T, RATE), [(T, RATE), (at(40), RATE)], used(60))
    assert found == [stretch(0, 60, "3.60")]
    assert (meter.since, meter.rate, meter.cost) == (at(40), RATE, 2_400_000 * HOUR_IN_MICROSECONDS)


def test_the_rest_of_a_step_is_billed_in_the_last_moment_and_once() -> None:
    billing = Billing(granularity=HOUR)
    before, _ = advance(Meter.new(T, RATE), [(T, RATE)], used(20, billing=billing))
    ended, found = advance(before, [(T, RATE)], used(30, Metering.ENDED, billing))
    assert found == [stretch(20, 30, "0.60"), CostStretch(at(30) - TICK, at(30), Money.usd("1.80"))]
    assert ended == Meter(Money.usd("3.60"), at(30), T, RATE, ended=True)
    assert advance(ended, [(T, RATE)], used(30, Metering.ENDED, billing)) == (ended, [])
    # It was earlier still: the time after it is given back, the rest of the step is longer by that.
    again, found = advance(ended, [(T, RATE)], used(25, Metering.ENDED, billing))
    assert sum((one.amount for one in found), NOTHING) == NOTHING
    assert stretch(25, 30, "-0.30") in found
    assert again.settled == Money.usd("3.60")


def test_what_has_no_rate_cannot_be_metered() -> None:
    with pytest.raises(ValueError, match="without a rate"):
        advance(Meter.new(T, RATE), [], used(30))
    with pytest.raises(ValueError, match="without a rate"):
        recount([], [], used(30), NOTHING)


# --- counting anew --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("posted", "found"),
    [
        ([], [stretch(0, 60, "3.60")]),
        ([(0, 30, "1.80")], [stretch(30, 60, "1.80")]),
        ([(0, 60, "3.60")], []),
        ([(0, 15, "0.90"), (15, 30, "1.90"), (30, 60, "1.80")], [stretch(15, 30, "-1.00")]),
        ([(0, 120, "7.20")], [stretch(60, 120, "-3.60")]),  # by a clock that was ahead
    ],
)
def test_what_differs_from_all_that_was_posted_is_posted_where_it_differs(
    posted: Sequence[tuple[float, float, str]], found: list[CostStretch]
) -> None:
    spans = [(at(first), at(after), Money.usd(dollars)) for first, after, dollars in posted]
    meter, stretches = recount(spans, [(T, RATE)], used(60), Money.usd(5))
    assert stretches == found
    assert meter == Meter(Money.usd("3.60"), at(60), T, RATE, moved=Money.usd(5))


def test_the_rest_of_a_step_is_counted_in_the_last_quarter() -> None:
    meter, found = recount([], [(T, RATE)], used(30, Metering.ENDED, Billing(granularity=HOUR)), NOTHING)
    assert found == [stretch(0, 15, "0.90"), stretch(15, 30, "2.70")]
    assert meter == Meter(Money.usd("3.60"), at(30), T, RATE, ended=True)


def test_what_turned_out_to_be_free_is_given_back_and_begins_anew() -> None:
    usage = used(30, Metering.INTERRUPTED, Billing(free_if_interrupted_within=HOUR))
    rates = [(T, RATE), (at(10), Money.usd(9))]
    meter, found = recount([(T, at(30), Money.usd("1.80"))], rates, usage, NOTHING)
    assert found == [stretch(0, 30, "-1.80")]
    assert meter == Meter(NOTHING, at(30), T, NOTHING, cost=0, ended=True)


def test_the_exact_cost_before_the_latest_price_is_kept() -> None:
    meter, _ = recount([], [(T, RATE), (at(20), Money.usd(9))], used(60), NOTHING)
    assert meter == Meter(Money.usd("7.20"), at(60), at(20), Money.usd(9), cost=1_200_000 * HOUR_IN_MICROSECONDS)


@pytest.mark.parametrize(
    ("micros", "runs"),
    [
        ([10, 11, 10], [(0, 45, 31)]),
        ([10, 6], [(0, 30, 16)]),  # by two micro-dollars at the edge, and no more
        ([10, 5], [(0, 15, 10), (15, 30, 5)]),
        ([10, 14], [(0, 30, 24)]),
        ([10, 15, 10], [(0, 15, 10), (15, 30, 15), (30, 45, 10)]),
        ([2], [(0, 15, 2)]),
        ([10, 0, 0, 10], [(0, 15, 10), (45, 60, 10)]),
        ([100, 0, -100], [(0, 15, 100), (30, 45, -100)]),
        ([0, 0], []),
    ],
)  # fmt: skip
def test_quarters_are_taken_together_as_far_as_no_edge_is_off_by_more_than_rounding(
    micros: list[int], runs: list[tuple[float, float, int]]
) -> None:
    assert lacking(*micros) == runs
