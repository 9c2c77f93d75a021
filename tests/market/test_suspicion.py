"""Which answers and which prices are not believed."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.market.accelerators import accelerator_names
from broker.core.market.market_judge import AnswerCounts, GroupCount, OddPrice, PriceContext, PriceLevels
from broker.core.market.offers import CapacityType, Doubt, MoneyKind, Offer
from broker.core.values.money import Money
from broker.market.suspicion import Suspicion
from tests.market.hostile import is_refused

NOW = datetime(2026, 11, 23, tzinfo=UTC)
JUDGE = Suspicion()
Groups = Mapping[tuple[str, str], GroupCount]


def answer(known: int, told: int, groups: Groups | None = None, **more: object) -> AnswerCounts:
    counts: dict[str, object] = {"told": told, "all": GroupCount(known, told), "groups": groups or {}}
    return AnswerCounts(**{**counts, **more})  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("known", "told", "suspect"),
    [
        (310, 1, True),  # a list that was cut short
        (310, 155, True),  # half of it
        (310, 300, False),
        (3, 2, False),
        (1, 0, True),  # nothing at all
        (0, 0, True),
        (0, 5, False),  # the first poll
    ],
)
def test_far_fewer_offers_than_before_are_suspect(known: int, told: int, suspect: bool) -> None:
    assert bool(JUDGE.incomplete(answer(known, told))) is suspect


def test_an_empty_answer_that_was_believed_before_is_believed_again() -> None:
    assert not JUDGE.incomplete(answer(0, 0, was_empty=True))


def test_a_region_that_vanishes_is_suspect_and_named() -> None:
    groups = {("region", "aws us-east-1"): GroupCount(8, 0), ("region", "aws us-west-2"): GroupCount(302, 302)}
    assert "region aws us-east-1: 0 of 8" in JUDGE.incomplete(answer(310, 302, groups))


@pytest.mark.parametrize(
    ("known", "told", "polls", "suspect"),
    [
        (8, 4, 0, True),  # half of a small group, also before there is a history
        (7, 3, 0, True),
        (4, 1, 0, True),
        (4, 2, 0, False),  # one in seventy groups of four, at one end in 20
        (4, 2, 20, True),  # none has ended in 20 polls
        (2, 0, 0, False),
        (2, 0, 20, True),
        (1, 0, 200, False),  # one offer may always go
        (8, 5, 200, False),  # less than half
    ],
)
def test_half_of_a_small_group_is_judged_exactly(known: int, told: int, polls: int, suspect: bool) -> None:
    groups = {("region", "r"): GroupCount(known, told), ("region", "rest"): GroupCount(300, 300)}
    assert bool(JUDGE.incomplete(answer(300 + known, 300 + told, groups, polls=polls))) is suspect


def test_a_small_group_whose_offers_come_and_go_may_lose_half() -> None:
    def judged(ended: int) -> str:
        groups = {("region", "lambda us"): GroupCount(4, 2, ended), ("region", "rest"): GroupCount(300, 300)}
        return JUDGE.incomplete(answer(304, 302, groups, polls=200))

    assert "region lambda us: 2 of 4" in judged(0)
    assert not judged(30)  # an offer of it ended in every seventh poll


def test_a_marketplace_whose_listings_come_and_go_is_believed() -> None:
    groups = {("region", "vast US"): GroupCount(8, 2)}
    assert JUDGE.incomplete(answer(400, 300, groups))
    assert not JUDGE.incomplete(answer(400, 300, groups, churn=(0.1, 0.3)))
    assert JUDGE.incomplete(answer(400, 100, groups, churn=(0.1, 0.3)))


@given(st.integers(0, 5000), st.lists(st.floats(0, 1), max_size=20))
def test_an_answer_with_all_that_was_known_is_never_suspect(known: int, churn: list[float]) -> None:
    assert not JUDGE.incomplete(answer(known, known + 1, churn=tuple(churn), all=GroupCount(known, known)))


@given(st.integers(1, 5000), st.lists(st.floats(0, 1), max_size=20))
def test_an_answer_without_anything_is_always_suspect(known: int, churn: list[float]) -> None:
    assert JUDGE.incomplete(answer(known, 0, churn=tuple(churn)))


def offer(price: str, kind: CapacityType = CapacityType.ON_DEMAND, **more: object) -> Offer:
    about = {"provider": "cloud", "region": "r", "zone": None, "instance_type": "m", "accelerator": "H100", "count": 8}
    return Offer(**{**about, **more}, capacity_type=kind, price=Money.usd(price), as_of=NOW, source="api")  # type: ignore[arg-type]  # fields by name


LEVELS = {
    "on_demand": PriceLevels(Money.usd("2"), Money.usd("10")),
    "reserved": PriceLevels(Money.usd("2"), Money.usd("4")),
}


def judged(one: Offer, before: str | None = None, on_demand: str | None = None) -> Doubt | None:
    context = PriceContext(Money.usd(before) if before else None, LEVELS, Money.usd(on_demand) if on_demand else None)
    found = JUDGE.odd_price(one, context)
    assert found is None or isinstance(found, OddPrice)
    return found.doubt if found else None


def test_a_price_far_from_what_such_gpus_cost_is_odd() -> None:
    assert judged(offer("0.605", CapacityType.RESERVED)) is Doubt.TOO_LOW
    assert judged(offer("20", CapacityType.RESERVED)) is None
    assert judged(offer("24")) is None
    assert judged(offer("2400")) is Doubt.TOO_HIGH  # cents for dollars
    assert judged(offer("0.9", CapacityType.SPOT)) is Doubt.TOO_LOW  # no level of its own: by that on demand
    assert judged(offer("8", CapacityType.SPOT)) is None


@pytest.mark.parametrize(("memory", "doubt"), [(None, Doubt.TOO_HIGH), (3200, Doubt.TOO_HIGH), (6400, None)])
def test_memory_beyond_32_gib_a_vcpu_is_paid_for_too(memory: float | None, doubt: Doubt | None) -> None:
    large = offer("6400", accelerator=None, count=0, cpus=100.0, memory_gib=memory)
    assert judged(large) is doubt


def test_a_price_that_jumps_is_odd_and_one_that_was_accepted_may_move_on() -> None:
    assert judged(offer("24"), before="22") is None
    assert judged(offer("24"), before="4.9") is Doubt.SUDDEN
    assert judged(offer("24"), before="100") is Doubt.SUDDEN
    assert judged(offer("0.61", CapacityType.RESERVED), before="0.605") is None
    assert judged(offer("3.9"), before="12") is Doubt.TOO_LOW  # no jump, and yet out of the range


def test_spot_above_on_demand_is_odd() -> None:
    assert judged(offer("24.1", CapacityType.SPOT), on_demand="24") is None
    assert judged(offer("25", CapacityType.SPOT), on_demand="24") is Doubt.ABOVE_ON_DEMAND


def test_the_figures_of_an_odd_price_are_prices() -> None:
    def detail(one: Offer, before: str | None = None, on_demand: str | None = None) -> str:
        known = [Money.usd(price) if price else None for price in (before, on_demand)]
        found = JUDGE.odd_price(one, PriceContext(known[0], LEVELS, known[1]))
        assert found is not None
        return found.detail

    assert detail(offer("24"), before="4.9") == "$24.00/h after $4.90/h"
    assert detail(offer("25", CapacityType.SPOT), on_demand="24") == "$25.00/h; on demand $24.00/h"
    assert detail(offer("2400")) == "$300.00 per GPU-hour; prices from $0.50 to $40.00 are believed"


def test_capacity_that_is_held_costs_what_it_costs() -> None:
    assert judged(offer("0", CapacityType.RESERVED, money=MoneyKind.AMORTISED)) is None


KINDS = st.sampled_from([CapacityType.ON_DEMAND, CapacityType.SPOT, CapacityType.RESERVED])


@given(st.sampled_from([*accelerator_names(), "tpu-v6e-8", "A10-1of6", None]), KINDS, st.integers(1, 300_000_000))
def test_no_price_that_nothing_compares_with_is_launched_unasked(
    model: str | None, kind: CapacityType, micros: int
) -> None:
    more = {"accelerator": model, "count": 1 if model else 0, "cpus": 8.0, "price": Money(micros)}
    one = replace(offer("1", kind), **more)  # type: ignore[arg-type]  # fields by name
    found = JUDGE.odd_price(one, PriceContext(None, {}, None))
    assert found is not None
    assert found.doubt is Doubt.UNCOMPARED
    assert is_refused(replace(one, doubt=found.doubt), NOW)
