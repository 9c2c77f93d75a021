from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.job.placements import Placement
from broker.core.market.offers import Billing, CapacityType, MoneyKind, Offer
from broker.core.values.money import Money, in_microseconds
from broker.ledger.holds import (
    Exposure,
    Metering,
    cost_of,
    exposures,
    hold_needed,
    ledger_rate,
    longest_billing_step,
    paid_until,
    shortfall,
)

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
CASH = MoneyKind.CASH

spans = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=40))
rates = st.integers(min_value=1, max_value=500_000_000).map(Money)
billings = st.builds(
    Billing,
    minimum=st.timedeltas(min_value=timedelta(0), max_value=2 * HOUR),
    granularity=st.sampled_from([timedelta(seconds=1), timedelta(minutes=1), HOUR]),
    free_if_interrupted_within=st.sampled_from([timedelta(0), HOUR]),
)


@st.composite
def series(draw: st.DrawFn) -> list[tuple[datetime, Money]]:
    """Spot prices, the first of them some time before or after the start."""
    first = START + draw(st.timedeltas(min_value=timedelta(hours=-5), max_value=timedelta(hours=1)))
    gaps = draw(st.lists(st.timedeltas(min_value=timedelta(0), max_value=timedelta(hours=9)), max_size=6))
    prices, at = [(first, draw(rates))], first
    for gap in gaps:
        at += gap
        prices.append((at, draw(rates)))
    return prices


def placement(kind: MoneyKind, price: str, *, nodes: int = 1, **more: object) -> Placement:
    values: dict[str, object] = {
        "provider": "aws",
        "region": "us-east-1",
        "zone": None,
        "instance_type": "p5.48xlarge",
        "accelerator": "H100",
        "count": 8,
        "capacity_type": CapacityType.ON_DEMAND if kind is CASH else CapacityType.OWNED,
        "price": Money.usd(price),
        "as_of": START,
        "source": "test",
        "money": kind,
    }
    offer = Offer(**values | more)  # type: ignore[arg-type] # a dictionary so that any field can be overridden
    return Placement(offer, nodes, (offer.price or Money.ZERO) * nodes, Money.ZERO, (), None, None, 1.0, 1.0, 0.0)


# --- what must be held ----------------------------------------------------------------------------------------------


def test_the_hold_is_the_dearest_rate_for_all_the_time_plus_egress_minimum_and_grace() -> None:
    exposed = {CASH: Exposure(Money.usd(60), egress=Money.usd("4.50"), minimum=timedelta(minutes=1))}

    needed = hold_needed(exposed, max_duration=timedelta(hours=10), max_cost=None, stop_grace=timedelta(minutes=5))

    assert needed == {CASH: Money.usd("610.50")}  # 60 × 10 h + 60 × 6 min + 4.50


def test_max_cost_means_everything() -> None:
    exposed = {CASH: Exposure(Money.usd(60), egress=Money.usd(50), minimum=HOUR)}

    needed = hold_needed(exposed, max_duration=10 * HOUR, max_cost=Money.usd(100), stop_grace=HOUR)

    assert needed == {CASH: Money.usd(100)}


def test_owned_and_prepaid_capacity_holds_no_cash() -> None:
    paid = exposures([placement(MoneyKind.AMORTISED, "0")])

    assert hold_needed(paid, max_duration=HOUR, max_cost=None, stop_grace=timedelta(0)) == {}


def test_bought_capacity_holds_its_value_beside_the_cash_of_the_fallback() -> None:
    bought = placement(MoneyKind.AMORTISED, "0.50", amortised=Money.usd("1.50"), capacity_type=CapacityType.RESERVED)
    burst = placement(CASH, "40", nodes=2)
    spot = placement(CASH, "9", nodes=2, billing=Billing(minimum=timedelta(minutes=10)))

    needed = hold_needed(
        exposures([bought, spot, burst], egress={CASH: Money.usd(3)}),
        max_duration=6 * HOUR,
        max_cost=None,
        stop_grace=timedelta(0),
    )

    # One second of 2.00/h more: even by-the-second billing is in whole seconds.
    assert needed == {
        CASH: Money.usd(80) * 6 + Money.usd(80).for_duration(timedelta(minutes=10)) + Money.usd(3),
        MoneyKind.AMORTISED: Money.usd(2).for_duration(6 * HOUR + timedelta(seconds=1)),
    }


def test_max_cost_limits_no_use_of_owned_machines() -> None:
    exposed = exposures([placement(MoneyKind.AMORTISED, "2"), placement(CASH, "40")])
    needed = hold_needed(exposed, max_duration=HOUR, max_cost=Money.usd(1), stop_grace=timedelta(0))
    assert needed == {CASH: Money.usd(1), MoneyKind.AMORTISED: Money.usd(2).for_duration(HOUR + timedelta(seconds=1))}


def test_egress_alone_is_held_too() -> None:
    exposed = exposures([placement(MoneyKind.AMORTISED, "0")], egress={CASH: Money.usd(7)})

    assert hold_needed(exposed, max_duration=HOUR, max_cost=None, stop_grace=HOUR) == {CASH: Money.usd(7)}


def test_nothing_is_held_on_an_unknown_price() -> None:
    with pytest.raises(ValueError, match="no valid price"):
        ledger_rate(replace(placement(CASH, "1").offer, price=None))
    with pytest.raises(ValueError, match="no valid price"):
        exposures([placement(CASH, "0")])


@pytest.mark.parametrize(
    ("duration", "cost", "rate"), [(timedelta(0), None, 1), (HOUR, Money(-1), 1), (HOUR, None, -1)]
)
def test_senseless_figures_are_refused(duration: timedelta, cost: Money | None, rate: int) -> None:
    with pytest.raises(ValueError, match=r"sense|held"):
        hold_needed({CASH: Exposure(Money(rate))}, max_duration=duration, max_cost=cost, stop_grace=HOUR)


@given(rates, spans.filter(bool), billings, spans)
def test_a_hold_without_max_cost_pays_for_max_duration_wherever_it_ends(
    rate: Money, duration: timedelta, billing: Billing, grace: timedelta
) -> None:
    exposed = {CASH: Exposure(rate, minimum=longest_billing_step(billing))}
    held = hold_needed(exposed, max_duration=duration, max_cost=None, stop_grace=grace).get(CASH, Money.ZERO)

    worst = cost_of(rate, 1, START, START + duration + grace, billing, metering=Metering.ENDED)

    assert worst <= held


# --- until when it is paid ------------------------------------------------------------------------------------------


@given(st.integers(-(10**12), 10**13).map(Money), rates, billings, spans, st.timedeltas(timedelta(0), HOUR))
def test_shortfall_is_the_least_amount_that_pays_until_the_end(
    left: Money, rate: Money, billing: Billing, span: timedelta, grace: timedelta
) -> None:
    until = START + span
    about: dict[str, Any] = {"billing": billing, "stop_grace": grace}

    lacking = shortfall(START, left, rate, until, **about)

    lasts = paid_until(START, left + lacking, rate, **about)
    assert lasts is not None
    assert lasts >= until
    if lacking and span:
        less = paid_until(START, left + lacking - Money(1), rate, **about)
        assert less is not None
        assert less < until


def test_a_machine_without_a_price_lacks_nothing() -> None:
    end = START + HOUR
    assert shortfall(START, Money(-1), Money.ZERO, end, stop_grace=HOUR) == Money.ZERO


def test_paid_until_is_what_the_hold_lasts_less_the_grace() -> None:
    end = paid_until(START, Money.usd(30), Money.usd(10), stop_grace=timedelta(minutes=10))

    assert end == START + timedelta(hours=2, minutes=50)


def test_capacity_that_costs_nothing_needs_no_lease() -> None:
    assert paid_until(START, Money.ZERO, Money.ZERO, stop_grace=HOUR) is None


@pytest.mark.parametrize("left", ["0", "-3", "5"])
def test_a_hold_that_does_not_reach_the_billing_minimum_pays_for_nothing(left: str) -> None:
    billing = Billing(minimum=HOUR)

    assert paid_until(START, Money.usd(left), Money.usd(10), billing=billing, stop_grace=timedelta(0)) == START


def test_money_may_outlast_the_calendar() -> None:
    assert paid_until(START, Money.usd(10**6), Money(1), stop_grace=timedelta(0)) == datetime.max.replace(tzinfo=UTC)


@given(rates, st.integers(min_value=1, max_value=10**12).map(Money), billings, st.timedeltas(timedelta(0), HOUR))
def test_a_machine_that_stops_when_told_never_costs_more_than_was_left(
    rate: Money, left: Money, billing: Billing, grace: timedelta
) -> None:
    until = paid_until(START, left, rate, billing=billing, stop_grace=grace)
    assert until is not None
    if until > START and until.year < 9999:
        assert cost_of(rate, 1, START, until + grace, billing, metering=Metering.ENDED) <= left


# --- what it has cost -----------------------------------------------------------------------------------------------


def exact_cost(prices: list[tuple[datetime, Money]], nodes: int, start: datetime, end: datetime) -> Fraction:
    """The integral of the price, in micro-dollars, from every interval between neighbouring moments of interest."""
    moments = sorted({start, end, *(at for at, _ in prices if start < at < end)})
    total = Fraction(0)
    for since, until in pairwise(moments):
        in_force = [rate for at, rate in prices if at <= since] or [prices[0][1]]
        total += Fraction(in_force[-1].micros * in_microseconds(until - since), in_microseconds(HOUR))
    return total * nodes


@given(series(), st.integers(min_value=1, max_value=16), spans)
def test_a_spot_series_integrates_exactly(prices: list[tuple[datetime, Money]], nodes: int, elapsed: timedelta) -> None:
    assert cost_of(prices, nodes, START, START + elapsed).micros == round(
        exact_cost(prices, nodes, START, START + elapsed)
    )


@given(
    st.one_of(rates, series()),
    st.integers(min_value=1, max_value=16),
    billings,
    spans,
    st.lists(st.fractions(min_value=0, max_value=1), max_size=8),
    st.sampled_from([Metering.ENDED, Metering.INTERRUPTED]),
)
def test_settling_in_any_number_of_steps_gives_the_same_total_and_never_gives_back(
    prices: Money | list[tuple[datetime, Money]],
    nodes: int,
    billing: Billing,
    elapsed: timedelta,
    steps: list[Fraction],
    ending: Metering,
) -> None:
    end = START + elapsed
    settled = Money.ZERO
    for part in sorted(steps):
        # What is known at that moment: no price change of the future.
        now = START + timedelta(microseconds=int(in_microseconds(elapsed) * part))
        known = prices if isinstance(prices, Money) else [prices[0], *(p for p in prices[1:] if p[0] <= now)]
        amount = cost_of(known, nodes, START, now, billing) - settled
        assert amount >= Money.ZERO
        settled += amount
    last = cost_of(prices, nodes, START, end, billing, metering=ending) - settled
    assert last >= Money.ZERO
    assert settled + last == cost_of(prices, nodes, START, end, billing, metering=ending)


@pytest.mark.parametrize(
    ("minutes", "billed"),
    [(0, 10), (3, 10), (10, 10), (10.5, 15), (15, 15), (16, 20)],
)
def test_the_minimum_and_whole_steps_are_billed_when_it_has_ended(minutes: float, billed: int) -> None:
    billing = Billing(minimum=timedelta(minutes=10), granularity=timedelta(minutes=5))
    end = START + timedelta(minutes=minutes)

    assert cost_of(Money.usd(60), 1, START, end, billing, metering=Metering.ENDED) == Money.usd(billed)
    assert cost_of(Money.usd(60), 1, START, end, billing) == Money.usd(60).for_duration(end - START)


def test_what_the_provider_takes_back_early_is_free_where_its_terms_say_so() -> None:
    terms = Billing(free_if_interrupted_within=HOUR)
    early, late = START + timedelta(minutes=59), START + HOUR

    def cost(end: datetime, metering: Metering) -> Money:
        return cost_of(Money.usd(6), 1, START, end, terms, metering=metering)

    assert cost(early, Metering.RUNNING) == Money.ZERO  # not certain yet
    assert cost(early, Metering.INTERRUPTED) == Money.ZERO
    assert cost(early, Metering.ENDED) == Money.usd("5.90")
    assert cost(late, Metering.RUNNING) == cost(late, Metering.INTERRUPTED) == Money.usd(6)


def test_the_rest_of_a_last_step_is_billed_at_the_price_when_the_machine_went() -> None:
    prices = [(START, Money.usd(6)), (START + timedelta(minutes=30), Money.usd(600))]
    end = START + timedelta(minutes=20)

    assert cost_of(prices, 1, START, end, Billing(granularity=HOUR), metering=Metering.ENDED) == Money.usd(6)


@pytest.mark.parametrize(
    "prices", [[], [(START, Money(1)), (START - HOUR, Money(2))]], ids=["no prices", "not in order"]
)
def test_a_series_that_cannot_be_is_refused(prices: list[tuple[datetime, Money]]) -> None:
    with pytest.raises(ValueError, match="order"):
        cost_of(prices, 1, START, START + HOUR)


@pytest.mark.parametrize(("nodes", "end"), [(0, START + HOUR), (1, START - HOUR)])
def test_a_meter_runs_forward_for_at_least_one_machine(nodes: int, end: datetime) -> None:
    with pytest.raises(ValueError, match="cannot meter"):
        cost_of(Money(1), nodes, START, end)


def test_only_bought_capacity_is_booked_at_more_than_its_price() -> None:
    """Its payment is in the ledger; that of an owned machine is not."""
    assert ledger_rate(placement(CASH, "40", amortised=Money.usd(9)).offer) == Money.usd(40)
    bought = placement(MoneyKind.AMORTISED, "1", amortised=Money.usd(9), capacity_type=CapacityType.RESERVED)
    assert ledger_rate(bought.offer) == Money.usd(10)
    assert ledger_rate(placement(MoneyKind.AMORTISED, "1", amortised=Money.usd(9)).offer) == Money.usd(1)
    assert ledger_rate(placement(MoneyKind.AMORTISED, "0", amortised=None).offer) == Money.ZERO


@pytest.mark.parametrize(
    ("minimum", "step", "stroke"), [(0, 60, 60), (60, 60, 60), (61, 60, 120), (3600, 1, 3600), (90, 3600, 3600)]
)
def test_a_minimum_is_billed_in_whole_steps(minimum: int, step: int, stroke: int) -> None:
    billing = Billing(minimum=timedelta(seconds=minimum), granularity=timedelta(seconds=step))
    assert longest_billing_step(billing) == timedelta(seconds=stroke)


def test_the_edges_of_what_may_be_held() -> None:
    free = {CASH: Exposure(Money.ZERO, egress=Money.ZERO)}
    paid = {CASH: Exposure(Money.usd(60))}

    assert hold_needed(free, max_duration=HOUR, max_cost=None, stop_grace=timedelta(0)) == {}
    assert hold_needed(paid, max_duration=HOUR, max_cost=Money.ZERO, stop_grace=timedelta(0)) == {}
    with pytest.raises(ValueError, match="cannot be held"):
        hold_needed(paid, max_duration=HOUR, max_cost=None, stop_grace=timedelta(microseconds=-1))
    with pytest.raises(ValueError, match="exposure"):
        hold_needed({CASH: Exposure(Money.usd(1), egress=Money(-1))}, max_duration=HOUR, max_cost=None, stop_grace=HOUR)


def test_money_for_exactly_the_billing_minimum_is_enough() -> None:
    billing = Billing(minimum=HOUR, granularity=HOUR)
    assert paid_until(START, Money.usd(2), Money.usd(2), billing=billing, stop_grace=timedelta(0)) == START + HOUR
    assert paid_until(START, Money(1_999_999), Money.usd(2), billing=billing, stop_grace=timedelta(0)) == START


def test_a_cost_is_rounded_half_to_the_even_micro_dollar_once() -> None:
    """A micro-dollar an hour for half an hour is nothing, three of them are two."""
    half = START + HOUR / 2
    assert cost_of(Money(1), 1, START, half) == Money.ZERO
    assert cost_of(Money(3), 1, START, half) == Money(2)
    assert cost_of(Money(1), 3, START, half) == Money(2)


def test_prices_may_change_twice_at_one_time_and_what_changes_at_the_end_does_not_count() -> None:
    prices = [(START, Money.usd(9)), (START, Money.usd(1)), (START + HOUR, Money.usd(100))]
    billing = Billing(granularity=HOUR)

    assert cost_of(prices, 1, START, START + HOUR) == Money.usd(1)
    ended = cost_of(prices[1:], 1, START, START + HOUR, replace(billing, minimum=2 * HOUR), metering=Metering.ENDED)
    assert ended == Money.usd(2), "the rest of the minimum at the price when the machine went"
