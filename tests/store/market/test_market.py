"""Polls into offers and price series, and the questions asked of them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Unpack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.job.reasons import Reason
from broker.core.market.offers import CapacityType, MoneyKind, Offer, OfferQuery
from broker.core.values.money import Money
from broker.store import Store
from broker.store.records import PollDetails
from tests import strategies
from tests.counts import FULL
from tests.store.fields import OfferFields, spot_offer

T = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LATE = T + timedelta(days=999)  # after everything that is drawn
SHARED = settings(
    max_examples=20 if FULL else 8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def offer(name: str = "p5", price: int | None = 100, at: datetime = T, **more: Unpack[OfferFields]) -> Offer:
    return spot_offer(name, None if price is None else Money(price), at, **more)


def poll(store: Store, *offers: Offer, at: datetime = T, provider: str = "aws", **more: Unpack[PollDetails]) -> int:
    return store.record_poll(provider, started=at, finished=at + MINUTE, offers=offers, **more).changed


def series(store: Store, of: Offer, start: datetime, end: datetime) -> list[tuple[float, int]]:
    """(minutes since T, micros), without prices that were told again."""
    with store.reading() as journal:
        told = [((at - T) / MINUTE, price.micros) for at, price in journal.price_series(of, start, end)]
    return [next(same) for _, same in groupby(told, key=lambda at_price: at_price[1])]


@SHARED
@given(told=st.lists(strategies.offers(), max_size=8, unique_by=lambda o: o.id))
def test_offers_come_back_as_they_were_told(store: Store, told: list[Offer]) -> None:
    told = [replace(o, reference=False) for o in told]
    poll(store, *told, at=LATE)
    assert sorted(store.offers(), key=lambda o: o.id) == sorted(told, key=lambda o: o.id)
    assert store.count_offers() == len(told)


def test_the_prices_of_an_offer_as_a_job_has_it_contain_its_disk(store: Store) -> None:
    poll(store, offer())
    poll(store, offer(price=120, at=T + 10 * MINUTE), at=T + 10 * MINUTE)
    placed = replace(offer(price=107), disk=Money(7))
    assert series(store, placed, T, T + 20 * MINUTE) == [(0, 107), (10, 127)]
    assert series(store, offer(), T, T + 20 * MINUTE) == [(0, 100), (10, 120)]


def test_a_poll_counts_what_changed(store: Store) -> None:
    assert poll(store, offer("a"), offer("b")) == 2
    assert poll(store, offer("a", at=T + MINUTE), offer("b", at=T + MINUTE), at=T + MINUTE) == 0
    assert poll(store, offer("a", 101, T + 2 * MINUTE), offer("b", at=T + 2 * MINUTE), at=T + 2 * MINUTE) == 1
    assert {(o.instance_type, o.price, o.as_of) for o in store.offers()} == {
        ("a", Money(101), T + 2 * MINUTE),
        ("b", Money(100), T + 2 * MINUTE),
    }
    run = store.last_polls()["aws"]
    assert (run.started, run.finished, run.seen, run.changed, run.complete) == (
        T + 2 * MINUTE,
        T + 3 * MINUTE,
        2,
        1,
        True,
    )


def test_what_a_complete_poll_does_not_tell_of_is_no_longer_current(store: Store) -> None:
    poll(store, offer("a"), offer("b"))
    poll(store, offer("other", provider="gcp"), provider="gcp")
    assert poll(store, offer("b", at=T + MINUTE), at=T + MINUTE) == 1
    assert {o.instance_type for o in store.offers()} == {"b", "other"}
    assert store.count_offers() == 2
    # Its series stays, and goes on when it returns.
    poll(store, offer("a", 90, T + 5 * MINUTE), offer("b"), at=T + 5 * MINUTE)
    assert {o.instance_type for o in store.offers()} == {"a", "b", "other"}
    assert series(store, offer("a"), T, T + 9 * MINUTE) == [(0, 100), (5, 90)]


def test_a_partial_poll_ends_nothing_and_says_why(store: Store) -> None:
    poll(store, offer("a"), offer("b"))
    poll(store, offer("a", 99, T + MINUTE), at=T + MINUTE, complete=False, error="timed out", skipped={"no_sku": 2})
    assert {(o.instance_type, o.as_of) for o in store.offers()} == {("a", T + MINUTE), ("b", T)}
    run = store.last_polls()["aws"]
    assert (run.error, run.skipped, run.complete) == ("timed out", {"no_sku": 2}, False)


def test_one_bad_row_harms_no_other(store: Store) -> None:
    poll(store, offer("a"), offer("a", 50), offer("zero", 0), offer("minus", -1))
    assert store.last_polls()["aws"].skipped == {"duplicate": 1, "invalid_price": 2}
    assert {(o.instance_type, o.price) for o in store.offers()} == {("a", Money(100)), ("zero", None), ("minus", None)}


def test_an_older_date_told_later_is_what_holds_now(store: Store) -> None:
    poll(store, offer("a"))
    poll(store, offer("a", 7, T - 60 * MINUTE), at=T + MINUTE)
    assert [(o.price, o.as_of) for o in store.offers()] == [(Money(7), T - 60 * MINUTE)]
    assert [price for _, price in series(store, offer("a"), T - 99 * MINUTE, T + 9 * MINUTE)] == [100, 7]


def test_a_date_that_has_not_come_yet_is_not_believed(store: Store) -> None:
    poll(store, offer("a", at=T + timedelta(days=365)))
    assert store.last_polls()["aws"].skipped == {"dated_ahead": 1}
    assert [o.as_of for o in store.offers()] == [T + MINUTE]


def test_a_poll_overtaken_by_a_later_one_changes_nothing(store: Store) -> None:
    store.record_poll("aws", started=T + MINUTE, finished=T + 2 * MINUTE, offers=[offer("a", 2, T + MINUTE)])
    slow = [offer("a", 1), offer("b")]
    assert store.record_poll("aws", started=T, finished=T + 9 * MINUTE, offers=slow).changed == 0
    assert [(o.instance_type, o.price) for o in store.offers()] == [("a", Money(2))]
    assert store.last_polls()["aws"].skipped == {"overtaken": 2}


def test_a_clock_that_was_set_back_does_not_block_polls(store: Store) -> None:
    poll(store, offer("a", 1, LATE), at=LATE)
    assert poll(store, offer("a", 2), at=T) == 1
    assert [o.price for o in store.offers()] == [Money(2)]


def test_what_costs_nothing_by_right_may_be_free(store: Store) -> None:
    poll(store, offer("mine", 0, capacity_type=CapacityType.OWNED, money=MoneyKind.AMORTISED))
    assert [o.price for o in store.offers()] == [Money(0)]


def test_a_poll_that_breaks_leaves_nothing(store: Store) -> None:
    def breaks() -> Iterator[Offer]:
        yield offer("a")
        raise RuntimeError("the network")

    with pytest.raises(RuntimeError):
        store.record_poll("aws", started=T, finished=T, offers=breaks())
    with pytest.raises(ValueError, match="time zone"):
        poll(store, offer("a"), offer("b", at=T.replace(tzinfo=None)))
    assert store.offers() == []
    assert store.last_polls() == {}


def test_a_reference_price_stands_back_for_a_live_one_and_returns(store: Store) -> None:
    listed = offer("p5", 300, source="pricebook", reference=True)
    poll(store, listed, provider="pricebook")
    assert store.offers() == [listed]
    live = offer("p5", 200, zone="us-east-1a")
    poll(store, live)
    assert store.offers() == [live]
    assert store.count_offers() == 1
    poll(store, at=T + MINUTE)
    assert store.offers() == [listed]


def test_of_two_lists_of_the_same_machine_the_newer_one_counts(store: Store) -> None:
    listed = offer("p5", 300, source="pricebook", reference=True)
    poll(store, listed, provider="pricebook")
    newer = offer("p5", 290, T + MINUTE, source="quote", reference=True)
    poll(store, newer, at=T + MINUTE, provider="quote")
    assert store.offers() == [newer]
    poll(store, at=T + 2 * MINUTE, provider="quote")
    assert store.offers() == [listed]


def test_a_reference_price_does_not_stand_back_for_one_without_a_price(store: Store) -> None:
    listed = offer("p5", 300, source="pricebook", reference=True)
    poll(store, listed, provider="pricebook")
    poll(store, offer("p5", None))
    assert listed in store.offers()


def test_a_correction_at_the_same_date_is_a_later_change(store: Store) -> None:
    poll(store, offer("a", 100))
    poll(store, offer("a", 110), at=T + MINUTE)
    [(start, first), (just_after, second)] = series(store, offer("a"), T, T + MINUTE)
    assert (start, first, second) == (0, 100, 110)
    assert 0 < just_after < 0.001


def test_a_series_begins_with_the_price_in_force(store: Store) -> None:
    for minute, price in [(0, 100), (10, 110), (20, None), (30, 110), (40, 120)]:
        poll(store, offer("a", price, T + minute * MINUTE), at=T + minute * MINUTE)
    of = offer("a")
    assert series(store, of, T, T + 60 * MINUTE) == [(0, 100), (10, 110), (40, 120)]
    assert series(store, of, T + 5 * MINUTE, T + 10 * MINUTE) == [(0, 100), (10, 110)]
    assert series(store, of, T + 11 * MINUTE, T + 39 * MINUTE) == [(10, 110)]
    assert series(store, of, T - 9 * MINUTE, T - MINUTE) == []
    assert series(store, replace(of, source="elsewhere"), T, T + MINUTE) == []


@SHARED
@given(
    told=st.lists(strategies.offers(), max_size=12, unique_by=lambda o: o.id),
    accelerators=st.sets(st.sampled_from(["H100", "L4", "cpu"])).map(tuple),
    count=st.none() | st.sampled_from([1, 4, 8]),
    kinds=st.sets(st.sampled_from(CapacityType), max_size=2).map(tuple),
    providers=st.sampled_from([(), ("aws",), ("a*", "gcp")]),
    regions=st.sampled_from([(), ("us-*",), ("us-east-1", "europe-west?"), ("nowhere",)]),
)
def test_a_query_keeps_what_matches_and_counts_the_rest(
    store: Store,
    told: list[Offer],
    accelerators: tuple[str, ...],
    count: int | None,
    kinds: tuple[CapacityType, ...],
    providers: tuple[str, ...],
    regions: tuple[str, ...],
) -> None:
    told = [replace(o, reference=False) for o in told]
    poll(store, *told, at=LATE)
    query = OfferQuery(accelerators, count, kinds, providers, regions)

    def matches(o: Offer) -> bool:
        def any_of(value: str, patterns: tuple[str, ...]) -> bool:
            return not patterns or any(fnmatchcase(value, pattern) for pattern in patterns)

        return (
            any_of(o.provider, query.providers)
            and any_of(o.region, query.regions)
            and (not query.capacity_types or o.capacity_type in query.capacity_types)
            and (not query.accelerators or (o.accelerator or "cpu") in query.accelerators)
            and (
                query.count is None or o.count >= query.count or (o.accelerator is None and "cpu" in query.accelerators)
            )
        )

    found = store.offers(query)
    assert {o.id for o in found} == {o.id for o in told if matches(o)}
    assert sum(store.rejected_in_sql(query).values()) + len(found) == store.count_offers()


def test_each_rejection_has_the_reason_of_the_first_condition_that_failed(store: Store) -> None:
    poll(
        store,
        offer("right"),
        offer("there", provider="gcp", accelerator="L4"),
        offer("place", region="eu-1", accelerator="L4"),
        offer("kind", capacity_type=CapacityType.ON_DEMAND, count=4),
        offer("gpu", accelerator="L4", count=1),
        offer("few", count=4),
        offer("cpu", accelerator=None, count=0),
        offer("pretend", accelerator="L4", provider="sandbox", money=MoneyKind.SANDBOX),
    )
    query = OfferQuery(("H100",), 8, (CapacityType.SPOT,), ("aws",), ("us-*",), max_price=Money(1))
    assert store.rejected_in_sql(query) == {
        Reason.WRONG_ACCELERATOR: 2,
        Reason.WRONG_PROVIDER: 1,
        Reason.WRONG_REGION: 1,
        Reason.WRONG_CAPACITY_TYPE: 1,
        Reason.TOO_FEW_ACCELERATORS: 1,
        Reason.SANDBOX_NOT_ASKED_FOR: 1,
    }
    simulated = {**store.rejected_in_sql(query, simulated=True)}
    assert Reason.SANDBOX_NOT_ASKED_FOR not in simulated
    assert simulated[Reason.WRONG_PROVIDER] == 2
    assert store.offers(query) == []
    assert [o.instance_type for o in store.offers(replace(query, max_price=Money(100)))] == ["right"]
    assert store.rejected_in_sql(OfferQuery()) == {}
    assert store.rejected_in_sql(OfferQuery(accelerators=("cpu",), providers=("sandbox", "aws", "gcp"))) == {
        Reason.NOT_A_CPU_OFFER: 7
    }
    assert [o.instance_type for o in store.offers(OfferQuery(accelerators=("cpu",), count=8))] == ["cpu"]


@settings(max_examples=15 if FULL else 8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    history=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(1, 3), max_size=3),
            st.booleans(),
        ),
        max_size=10,
    )
)
def test_history_answers_as_full_snapshots_would(
    store: Store, history: list[tuple[dict[str, int | None], bool]]
) -> None:
    """Against the simplest model there is: every poll remembered whole."""
    source = f"s{next(_sources)}"  # series of its own in a store that is kept from example to example
    current: dict[str, int | None] = {}
    priced: dict[str, list[tuple[float, int]]] = {name: [] for name in "abc"}
    for minute, (told, complete) in enumerate(history):
        at = T + minute * MINUTE
        offers = [offer(name, price, at, source=source) for name, price in told.items()]
        poll(store, *offers, at=at, provider=source, complete=complete)
        current = dict(told) if complete else current | told
        for name, price in told.items():
            if price is not None:
                priced[name].append((minute, price))
        assert {o.instance_type: o.price and o.price.micros for o in store.offers() if o.source == source} == current
    for name, seen in priced.items():
        changes = [next(same) for _, same in groupby(seen, key=lambda at_price: at_price[1])]
        assert series(store, offer(name, source=source), T, T + timedelta(days=1)) == changes
        for minute in range(len(history)):
            before = [price for at, price in seen if at <= minute]
            found = series(store, offer(name, source=source), T + minute * MINUTE, T + minute * MINUTE)
            assert [price for _, price in found] == before[-1:]


_sources = iter(range(10**6))


def test_an_offer_belongs_to_the_provider_that_told_of_it_first(store: Store) -> None:
    poll(store, offer("a"), provider="aws")
    poll(store, offer("a", 1), offer("b"), provider="copycat")
    assert {(o.instance_type, o.price) for o in store.offers()} == {("a", Money(100)), ("b", Money(100))}
    assert store.last_polls()["copycat"].skipped == {"told_by_another_provider": 1}


def test_polls_of_two_providers_do_not_meet(store: Store) -> None:
    poll(store, offer("a"), provider="aws")
    poll(store, offer("a", source="mirror"), provider="mirror")
    poll(store, provider="mirror", at=T + MINUTE)
    assert Counter(o.source for o in store.offers()) == {"api": 1}
    assert set(store.last_polls()) == {"aws", "mirror"}
