"""What prices were, over a period and at a moment."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.market.offer_rows import OfferFilter
from broker.app.market.price_history import PriceHistory, price_histories
from broker.app.wiring import Broker
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.store.records import AvailabilityPoint, PricePoint
from tests.actors import with_clock
from tests.empty_store import empty_store

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return empty_store(tmp_path / "store.db")


def offer(price: str | None = "16", hours_ago: float = 0, **changed: Any) -> Offer:
    fields: dict[str, Any] = {
        "provider": "aws", "region": "us-east-1", "zone": None, "instance_type": "p5", "accelerator": "H100",
        "count": 8, "capacity_type": CapacityType.SPOT, "price": None if price is None else Money.usd(price),
        "as_of": NOW - hours_ago * HOUR, "source": "api", "availability": Availability.AVAILABLE,
    }  # fmt: skip
    return Offer(**(fields | changed))


def poll(broker: Broker, hours_ago: float, *offers: Offer, provider: str = "aws", **more: Any) -> None:
    when = NOW - hours_ago * HOUR
    broker.store.record_poll(provider, started=when, finished=when, offers=offers, **more)


@pytest.fixture
def broker(broker: Broker) -> Broker:
    return with_clock(broker, ManualClock(NOW))


def test_a_series_is_cut_at_each_change(broker: Broker) -> None:
    poll(broker, 10, offer("16", 10))
    poll(broker, 8, offer("20", 8))
    poll(broker, 6)
    poll(broker, 4, offer("12", 4))
    poll(broker, 2, offer("12", 2))
    period = price_histories(broker, OfferFilter(), NOW - 9 * HOUR, NOW)
    (one,) = period.histories
    cut = [((NOW - s.start) / HOUR, (NOW - s.end) / HOUR, s.price and str(s.price.dollars)) for s in one.stretches]
    assert cut == [(9, 8, "16"), (8, 6, "20"), (6, 4, None), (4, 2, "12")]
    assert one.changes == 2
    assert one.mean == Money.usd("16")  # (1 h × 16 + 2 h × 20 + 2 h × 12) / 5 h
    assert one.known_until == NOW - 2 * HOUR  # nobody has asked since
    assert one.available_part == 1.0


def test_what_the_last_poll_was_the_first_to_tell_is_part_of_it(broker: Broker) -> None:
    poll(broker, 2, offer("16", 2))
    (one,) = price_histories(broker, OfferFilter(), NOW - 9 * HOUR, NOW).histories
    assert (one.known, one.mean, one.changes) == ([Money.usd("16")], Money.usd("16"), 0)
    poll(broker, 1, offer("20", 1))
    (one,) = price_histories(broker, OfferFilter(), NOW - 9 * HOUR, NOW).histories
    assert (one.known, one.mean, one.changes) == ([Money.usd("16"), Money.usd("20")], Money.usd("16"), 1)
    poll(broker, 0)
    (one,) = price_histories(broker, OfferFilter(), NOW - 9 * HOUR, NOW).histories
    assert [stretch.price for stretch in one.stretches] == [Money.usd("16"), Money.usd("20")]  # and then no more


def test_the_cheapest_come_first_and_unfit_ones_not_at_all(broker: Broker) -> None:
    poll(broker, 5, offer("16", 5), offer("8", 5, region="us-west-2"), offer("1", 5, count=1, instance_type="x"))
    poll(broker, 5, offer("9", 5, provider="gcp", count=0, accelerator=None), provider="gcp")
    poll(broker, 5, offer("9", 5, provider="sandbox"), provider="sandbox")
    period = price_histories(broker, OfferFilter(counts={"H100": {8}, "cpu": set()}), NOW - 9 * HOUR, NOW)
    found = [(one.offer.provider, one.offer.region) for one in period.histories]
    assert found == [("aws", "us-west-2"), ("aws", "us-east-1"), ("gcp", "us-east-1")]
    period = price_histories(broker, OfferFilter(), NOW - 9 * HOUR, NOW, limit=1)
    assert (len(period.histories), period.matching) == (1, 4)
    simulated = price_histories(broker, OfferFilter(providers=("sandbox",)), NOW - 9 * HOUR, NOW)
    assert [one.offer.provider for one in simulated.histories] == ["sandbox"]


def test_reference_prices_stand_back_where_there_are_live_ones(broker: Broker) -> None:
    poll(broker, 9, offer("30", 9, source="book", reference=True), provider="book")
    assert len(price_histories(broker, OfferFilter(), NOW - 9 * HOUR, NOW).histories) == 1
    poll(broker, 5, offer("16", 5))
    (one,) = price_histories(broker, OfferFilter(), NOW - 9 * HOUR, NOW).histories
    assert one.offer.source == "api"


def test_what_ended_before_the_period_is_not_in_it(broker: Broker) -> None:
    poll(broker, 9, offer("16", 9))
    poll(broker, 7)
    assert not price_histories(broker, OfferFilter(), NOW - 5 * HOUR, NOW).matching
    (one,) = price_histories(broker, OfferFilter(), NOW - 8 * HOUR, NOW).histories
    assert one.ended == one.known_until == NOW - 7 * HOUR


def test_an_empty_history_says_when_it_began(broker: Broker) -> None:
    period = price_histories(broker, OfferFilter(), NOW - 9 * HOUR, NOW)
    assert (period.histories, period.matching, period.began) == ((), 0, None)
    poll(broker, 5, offer(None, 5))
    period = price_histories(broker, OfferFilter(), NOW - 9 * HOUR, NOW)
    assert (period.histories, period.unpriced, period.began) == ((), 1, NOW - 5 * HOUR)


def test_a_period_ends_now_at_the_latest(broker: Broker) -> None:
    assert price_histories(broker, OfferFilter(providers=("owned",)), NOW - HOUR, NOW + HOUR).end == NOW


MICROS = st.integers(1, 10**9)


@given(st.lists(st.tuples(st.integers(0, 100), st.one_of(st.none(), MICROS)), max_size=12), st.integers(1, 100))
def test_stretches_cover_what_is_known_without_overlap(changes: list[tuple[int, int | None]], end: int) -> None:
    points = tuple(
        PricePoint(NOW + hour * HOUR, None if micros is None else Money(micros), NOW)
        for hour, micros in sorted(dict(changes).items())
    )
    start, until = NOW, NOW + end * HOUR
    one = PriceHistory(offer(), start, until, until, None, points, (), ())
    found = one.stretches
    assert all(a.end == b.start for a, b in pairwise(found))
    assert all(start <= stretch.start < stretch.end <= until for stretch in found[:-1])
    assert all(start <= stretch.start <= stretch.end <= until for stretch in found[-1:])
    if found:
        assert found[-1].end == until
    if one.known:
        assert one.mean is not None
        assert min(one.known) <= one.mean <= max(one.known)
    else:
        assert one.mean is None


def test_the_time_in_which_nobody_told_counts_neither_way() -> None:
    kinds = [Availability.AVAILABLE, Availability.UNKNOWN, Availability.UNAVAILABLE, None]
    points = tuple(AvailabilityPoint(NOW + n * HOUR, kind) for n, kind in enumerate(kinds))
    end = NOW + 6 * HOUR
    assert PriceHistory(offer(), NOW, end, end, None, (), points, ()).available_part == 0.5
    assert PriceHistory(offer(), NOW, end, end, None, (), (), ()).available_part is None
