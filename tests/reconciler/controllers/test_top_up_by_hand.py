"""What more money is asked for, to the cent and the second: a machine at $12 an hour, that is 20 cents a minute, of a
job that may run ten hours. Two minutes are for stopping."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.core.events.wait_reasons import HoldTrigger
from broker.core.market.offers import Billing
from broker.core.values.burns import Burn
from broker.core.values.money import Money
from broker.reconciler.controllers.top_up import Need, TopUpPace, need_of
from broker.reconciler.settlement.funds import Funds
from tests.reconciler.test_admission_by_hand import JOB, life

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
RATE = Money.usd(12)
PACE = TopUpPace()


def for_minutes(minutes: float) -> Money:
    return RATE.for_duration(minutes * MINUTE)


def lives_on(minutes: float, **more: Any) -> Funds:
    """Money for so many minutes from now on."""
    return Funds(**{"start": NOW, "left": for_minutes(minutes), "rate": RATE, "billing": Billing(), **more})


def needed(
    funds: Funds,
    *,
    left: float = 360,
    committed: int = 50,
    max_cost: int | str | None = None,
    held: Money | None = None,
) -> Need | None:
    """``left``: of the job's time, in minutes; ``committed``, ``max_cost``: in dollars."""
    limit = None if max_cost is None else Money.usd(max_cost)
    view = life(JOB.model_copy(update={"max_cost": limit}))
    mine = funds.left if held is None else held
    return need_of(view, funds, mine, Money.usd(committed), 10 * HOUR - left * MINUTE, NOW, PACE)


def burning(minutes: float, rate: Money = RATE) -> Burn:
    return Burn(rate.for_duration(minutes * MINUTE), NOW, NOW + minutes * MINUTE, rate)


def test_a_sandbox_that_runs_faster_is_looked_after_in_time() -> None:
    assert PACE.scaled(1) == PACE
    twice = PACE.scaled(120)
    assert (twice.near, twice.step, twice.every) == (30 * MINUTE, 2 * HOUR, 6 * MINUTE)
    assert (twice.again, twice.last) == (20 * MINUTE, 10 * MINUTE)
    assert PACE.scaled(30) == replace(PACE, every=90 * SECOND, last=150 * SECOND)


def test_an_hour_more_is_asked_for_when_the_end_is_near() -> None:
    assert needed(lives_on(12)) == Need(for_minutes(60), burning(72), NOW + 70 * MINUTE, HoldTrigger.ENDS)


@pytest.mark.parametrize(("minutes", "asks"), [(17, True), (17.1, False), (2, True), (30, False)])
def test_near_is_a_quarter_of_an_hour_before_the_end(minutes: float, asks: bool) -> None:
    assert (needed(lives_on(minutes)) is not None) is asks


def test_no_more_is_asked_for_than_the_jobs_time_takes() -> None:
    assert needed(lives_on(12), left=40) == Need(for_minutes(30), burning(42), NOW + 40 * MINUTE, HoldTrigger.ENDS)
    assert needed(lives_on(12), left=10) is None
    assert needed(lives_on(12), left=0) is None
    assert needed(lives_on(12), left=-5) is None


def test_no_more_is_asked_for_than_the_job_may_cost() -> None:
    """Three dollars, of fifty-three, are a quarter of an hour."""
    assert needed(lives_on(12), max_cost=53) == Need(for_minutes(15), burning(27), NOW + 25 * MINUTE, HoldTrigger.ENDS)
    assert needed(lives_on(12), max_cost=50) is None
    assert needed(lives_on(12), max_cost=49) is None
    assert needed(lives_on(12), max_cost=62) == needed(lives_on(12))
    little = needed(lives_on(12), max_cost="50.1")
    assert little is not None, "ten cents are half a minute, and all that it may have"
    assert (little.amount, little.until) == (Money.usd("0.1"), NOW + 10.5 * MINUTE)


def test_what_has_run_on_without_money_is_paid_for_too() -> None:
    """An hour ago there was nothing left: that hour, another, and the time to stop."""
    late = lives_on(0, start=NOW - HOUR)
    assert needed(late) == Need(for_minutes(122), burning(122), NOW + HOUR, HoldTrigger.ENDS)
    little = needed(late, max_cost=51)
    assert little is not None
    assert (little.amount, little.until) == (Money.usd(1), NOW), "not five minutes after the end, which is over"


def test_what_costs_nothing_needs_nothing() -> None:
    assert needed(lives_on(12, rate=Money.ZERO)) is None


def test_a_hold_that_is_used_up_faster_than_judged_gets_new_dates() -> None:
    """$24 were judged for 2 h 24 min at $10; they last two hours, of which one lies before the end of a period."""
    slow = burning(144, Money.usd(10))
    about = {"judged": slow, "judged_until": slow.end, "edges": (NOW + HOUR,)}
    assert needed(lives_on(120, **about)) == Need(Money.ZERO, burning(120), NOW + 118 * MINUTE, HoldTrigger.FASTER)
    assert needed(lives_on(120, **{**about, "edges": (slow.end,)})) is None, "no period ends before"


def test_what_the_job_has_no_time_for_is_not_dated() -> None:
    """Of $24 an hour's worth is enough for the 58 minutes that are left, and the rest is released."""
    slow = burning(144, Money.usd(10))
    about = {"judged": slow, "judged_until": slow.end, "edges": (NOW + HOUR,)}
    funds = lives_on(120, **about)
    assert needed(funds, left=58) == Need(Money.ZERO, burning(60), NOW + 58 * MINUTE, HoldTrigger.FASTER)
    none_of_it = needed(funds, left=58, held=Money.usd(5))
    assert none_of_it is not None
    assert none_of_it.burn.amount == Money.ZERO


def test_a_hold_that_begins_later_by_the_clock_of_now_is_dated_anew() -> None:
    def begins(later: timedelta) -> Need | None:
        return needed(lives_on(120, judged=replace(burning(120), start=NOW + later)))

    assert begins(MINUTE) is None
    assert begins(MINUTE + SECOND) == Need(Money.ZERO, burning(120), NOW + 118 * MINUTE, HoldTrigger.CLOCK_REWIND)


def test_money_that_was_judged_for_less_time_is_judged_again() -> None:
    funds = lives_on(120, judged_until=NOW + 12 * MINUTE)
    assert needed(funds) == Need(Money.ZERO, burning(120), NOW + 118 * MINUTE, HoldTrigger.ENDS)


@pytest.mark.parametrize(
    ("ends", "lasts", "asks"),
    [
        (10, 11, False),  # a tenth of the ten minutes until then, and no more than one
        (10, 11.1, True),
        (5, 5.5, False),
        (5, 5.6, True),
        (14, 15, False),
        (14, 15.1, True),  # a minute at most
    ],
)
def test_next_to_nothing_is_not_asked_for(ends: float, lasts: float, asks: bool) -> None:
    """The job may cost no more; what it has lasts a little longer than was judged."""
    funds = lives_on(lasts + 2, judged_until=NOW + (ends + 2) * MINUTE)
    assert (needed(funds, max_cost=50) is not None) is asks


def test_what_a_start_moves_is_beside_the_time() -> None:
    """$3 more are held for egress than the twelve minutes take."""
    funds = lives_on(12, egress=Money.usd(3))
    found = needed(funds, held=funds.left + Money.usd(3))
    assert found is not None
    assert found.amount == for_minutes(60)
    assert found.burn == Burn(for_minutes(72) + Money.usd(3), NOW, NOW + 72 * MINUTE, RATE)
    assert found.until == NOW + 70 * MINUTE


def test_a_hold_is_dated_for_the_whole_steps_that_are_billed() -> None:
    """By the hour: ten minutes are left of an hour that is paid, and the job has no time beyond it but ten minutes."""
    hourly = lives_on(60, billing=Billing(granularity=HOUR), start=NOW - 48 * MINUTE)
    found = needed(hourly, left=20)
    assert found is not None
    assert (found.amount, found.until) == (for_minutes(60), NOW + 20 * MINUTE)
    # What it has left lasts no longer than 20 minutes, an hour at a stroke and two minutes.
    assert (found.burn.amount, found.burn.rate) == (for_minutes(120), Money(-(-24_000_000 * 60 // 82)))
    assert timedelta(0) <= NOW + 82 * MINUTE - found.burn.end < timedelta(milliseconds=1)
