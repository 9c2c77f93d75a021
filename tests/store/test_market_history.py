"""What the market was at a moment, what was known then, and series of prices, availability and signals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from broker.core.money import Money
from broker.core.offers import Availability, CapacityType, Offer, OfferQuery
from broker.store import Store

T = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def offer(name: str = "p5", price: int | None = 100, minute: float = 0, **more: object) -> Offer:
    about = {"zone": None, "accelerator": "H100", "count": 8, "capacity_type": CapacityType.SPOT, "source": "api"}
    about |= {"availability": Availability.AVAILABLE, "provider": "aws", "region": "us-east-1"}
    about |= {"as_of": T + minute * MINUTE, "price": None if price is None else Money(price)}
    return Offer(instance_type=name, **{**about, **more})


def poll(store: Store, minute: float, *offers: Offer, provider: str = "aws", **more: object) -> int:
    at = T + minute * MINUTE
    return store.record_poll(provider, started=at, finished=at + MINUTE, offers=offers, **more)


def at(store: Store, minute: float, known: float | None = None, **query: object) -> dict[str, int | None]:
    """The prices in force so many minutes after noon, by instance type."""
    known_at = None if known is None else T + known * MINUTE
    found = store.market.offers_at(T + minute * MINUTE, known_at, OfferQuery(**query))
    return {past.offer.instance_type: past.offer.price and past.offer.price.micros for past in found}


def test_a_moment_has_the_offers_of_then(store: Store) -> None:
    poll(store, 0, offer("a"), offer("b", 50))
    poll(store, 10, offer("a", 110, 10), offer("b", 50, 10))
    poll(store, 20, offer("a", 110, 20), offer("c", None, 20))
    assert at(store, -1) == {}
    assert at(store, 0) == {"a": 100, "b": 50}
    assert at(store, 9.99) == {"a": 100, "b": 50}
    assert at(store, 10) == {"a": 110, "b": 50}
    assert at(store, 20) == {"a": 110, "c": None}
    assert at(store, 0, max_price=Money(99)) == {"b": 50}
    assert at(store, 0, accelerators=("L4",)) == {}


def test_what_was_known_then_is_not_what_is_known_now(store: Store) -> None:
    poll(store, 0, offer("a"))
    poll(store, 30, offer("a", 120, 10))  # dated 12:10, learned with the poll that ended at 12:31
    assert at(store, 15) == {"a": 120}
    assert at(store, 15, known=15) == {"a": 100}
    assert at(store, 15, known=31) == {"a": 120}
    [past] = store.market.offers_at(T + 15 * MINUTE)
    assert (past.since, past.learned, past.seen) == (T + 10 * MINUTE, T + 31 * MINUTE, T + MINUTE)


def test_in_an_outage_the_last_word_holds_and_says_how_old_it_is(store: Store) -> None:
    poll(store, 0, offer("a"))
    poll(store, 10, complete=False, error="HTTP 503")
    [past] = store.market.offers_at(T + 15 * MINUTE)
    assert (past.offer.price, past.offer.as_of, past.seen) == (Money(100), T + MINUTE, T + MINUTE)


def test_series_of_price_availability_and_signals(store: Store) -> None:
    sold_out = {"availability": Availability.UNAVAILABLE, "unavailable_because": "sold out"}
    poll(store, 0, offer(score=0.9, interruption_rate=0.01))
    poll(store, 10, offer(price=120, minute=10, score=0.9, interruption_rate=0.01))
    poll(store, 20, offer(price=120, minute=20, score=0.2, interruption_rate=0.01, **sold_out))
    poll(store, 30)
    poll(store, 40, offer(price=90, minute=40))
    start, end = T + 5 * MINUTE, T + 60 * MINUTE

    def minute(moment: datetime) -> float:
        return (moment - T) / MINUTE

    prices = store.market.price_series(offer(), start, end)
    assert [(minute(p.at), p.price and p.price.micros) for p in prices] == [(0, 100), (10, 120), (30, None), (40, 90)]
    found = store.market.availability_series(offer(), start, end)
    assert [(minute(p.at), p.availability) for p in found] == [
        (0, Availability.AVAILABLE),
        (20, Availability.UNAVAILABLE),
        (30, None),
        (40, Availability.AVAILABLE),
    ]
    signals = store.market.signal_series(offer(), start, end)
    assert [(minute(p.at), p.score, p.interruption_rate) for p in signals] == [
        (0, 0.9, 0.01),
        (20, 0.2, 0.01),
        (40, None, None),
    ]
    [past] = store.market.offers_at(T + 25 * MINUTE)
    assert (past.offer.score, past.offer.availability) == (0.2, Availability.UNAVAILABLE)
    [one] = store.market.series()
    assert (one.offer.price, one.polled_by, one.ended) == (Money(90), "aws", None)
    assert store.market.price_series_of([offer()], start, end) == {offer().id: prices}


def test_polls_are_told_newest_first(store: Store) -> None:
    poll(store, 0, offer())
    poll(store, 10, complete=False, error="HTTP 503", hint="wait")
    newest, first = store.market.poll_runs("aws")
    assert (newest.status, newest.error, newest.hint, first.status) == ("failed", "HTTP 503", "wait", "ok")
    assert store.market.poll_runs(since=T + 5 * MINUTE) == [newest]
    assert store.market.poll_runs(limit=1) == [newest]
    assert store.market.poll_runs("gcp") == []


def test_local_sources_leave_no_trail_of_polls_that_changed_nothing(store: Store) -> None:
    for minute in range(20):
        poll(store, minute, offer(price=100 + minute // 10, minute=minute), keep_unchanged=False)
    assert [run.changed for run in store.market.poll_runs()] == [0, 1, 1]
