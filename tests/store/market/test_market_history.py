"""What the market was at a moment, what was known then, and series of prices, availability and signals."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Unpack

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.market.offers import Availability, Offer, OfferQuery
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.store import Store, open_store
from broker.store.records import PollDetails, PollStatus
from tests.counts import FULL
from tests.store.fields import OfferFields, micros_of, spot_offer

T = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EVERYTHING = OfferQuery()


def offer(name: str = "p5", price: int | None = 100, minute: float = 0, **more: Unpack[OfferFields]) -> Offer:
    return spot_offer(name, None if price is None else Money(price), T + minute * MINUTE, **more)


def poll(store: Store, minute: float, *offers: Offer, provider: str = "aws", **more: Unpack[PollDetails]) -> None:
    at = T + minute * MINUTE
    store.record_poll(provider, started=at, finished=at + MINUTE, offers=offers, **more)


def at(store: Store, minute: float, query: OfferQuery = EVERYTHING) -> dict[str, int | None]:
    """The prices in force so many minutes after noon, by instance type."""
    found = store.market.offers_at(T + minute * MINUTE, query)
    return {offer.instance_type: micros_of(offer.price) for offer in found}


def test_a_moment_has_the_offers_of_then(store: Store) -> None:
    poll(store, 0, offer("a"), offer("b", 50))
    poll(store, 10, offer("a", 110, 10), offer("b", 50, 10))
    poll(store, 20, offer("a", 110, 20), offer("c", None, 20))
    assert at(store, -1) == {}
    assert at(store, 0) == {"a": 100, "b": 50}
    assert at(store, 9.99) == {"a": 100, "b": 50}
    assert at(store, 10) == {"a": 110, "b": 50}
    assert at(store, 20) == {"a": 110, "c": None}
    assert at(store, 0, query=OfferQuery(max_price=Money(99))) == {"b": 50}
    assert at(store, 0, query=OfferQuery(accelerators=("L4",))) == {}


def test_what_had_ended_is_back_only_once_it_is_told_of_again(store: Store) -> None:
    """A date of its own from before the end does not undo that it was looked for, and not found."""
    poll(store, 0, offer("a"), offer("b"))
    poll(store, 50, offer("c", minute=20), speaks_of=T + 20 * MINUTE)
    poll(store, 60, offer("a", minute=10), offer("b", 90, 30), speaks_of=T + 40 * MINUTE)
    assert at(store, 19) == {"a": 100, "b": 100}
    assert at(store, 25) == {"c": 100}
    assert at(store, 35) == {"b": 90, "c": 100}
    assert at(store, 45) == {"a": 100, "b": 90}
    points = store.market.price_series(offer("a"), T, T + 99 * MINUTE)
    assert [(p.at - T) / MINUTE for p in points] == [0, 20, 40]


def test_an_end_in_the_past_was_not_known_before_it_was_learned(store: Store) -> None:
    poll(store, 0, offer("a"))
    poll(store, 50, speaks_of=T + 20 * MINUTE)
    assert at(store, 30) == {}
    (_, end) = store.market.price_series(offer("a"), T, T + 99 * MINUTE)
    assert (end.at, end.price, end.learned) == (T + 20 * MINUTE, None, T + 51 * MINUTE)


def test_an_offer_ends_after_the_moment_at_which_it_was_said_to_hold(store: Store) -> None:
    poll(store, 0, offer("a"))
    poll(store, 50, offer("a", minute=30), speaks_of=T + 10 * MINUTE)
    poll(store, 60, speaks_of=T + 20 * MINUTE)
    assert at(store, 30) == {"a": 100}
    assert at(store, 31) == {}
    [series] = store.market.series()
    assert series.ended is not None
    assert series.ended - T == 30 * MINUTE + timedelta(microseconds=1)


def test_in_an_outage_the_last_word_holds_and_says_how_old_it_is(store: Store) -> None:
    poll(store, 0, offer("a"))
    poll(store, 10, complete=False, error="HTTP 503")
    [past] = store.market.offers_at(T + 15 * MINUTE)
    assert (past.price, past.as_of) == (Money(100), T + MINUTE)


def test_series_of_price_availability_and_signals(store: Store) -> None:
    poll(store, 0, offer(score=0.9, interruption_rate=0.01))
    poll(store, 10, offer(price=120, minute=10, score=0.9, interruption_rate=0.01))
    sold_out = offer(
        price=120, minute=20, score=0.2, interruption_rate=0.01, availability=Availability.UNAVAILABLE,
        unavailable_because="sold out",
    )  # fmt: skip
    poll(store, 20, sold_out)
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
    assert (past.score, past.availability) == (0.2, Availability.UNAVAILABLE)
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


@dataclass
class Poll:
    """What one poll told, and what became of it."""

    told: dict[str, tuple[int | None, float]]  # instance type → price, and minutes before the poll it is dated
    complete: bool  # not: an outage in the middle of it
    restart: bool  # of the poller, before it


@dataclass
class Snapshots:
    """The simplest model there is: the market as it is believed to be after the last poll, and every claim."""

    current: dict[str, int | None] = field(default_factory=dict)
    claims: dict[str, list[tuple[float, tuple[int | None] | None]]] = field(default_factory=dict)

    def poll(self, minute: float, poll: Poll) -> None:
        told = {name: price for name, (price, _) in poll.told.items()}
        before = self.current
        self.current = told if poll.complete else before | told
        for name in {*before, *told}:
            if name not in self.current:
                self._claim(name, minute, None)
            elif name in told and (name not in before or before[name] != told[name]):
                dated, claims = minute - poll.told[name][1], self.claims.get(name)
                back = claims is not None and claims[-1][1] is None and dated <= claims[-1][0]
                self._claim(name, minute if back else dated, (told[name],))

    def _claim(self, name: str, minute: float, state: tuple[int | None] | None) -> None:
        mine = self.claims.setdefault(name, [])
        # A claim about the time before an earlier claim corrects it: it holds from there on, not before.
        mine.append((max(minute, mine[-1][0] if mine else minute), state))

    def was(self, minute: float) -> dict[str, int | None]:
        found = {}
        for name, claims in self.claims.items():
            past = [state for at, state in claims if at <= minute]
            if past and past[-1] is not None:
                found[name] = past[-1][0]
        return found


POLLS = st.lists(
    st.builds(
        Poll,
        told=st.dictionaries(
            st.sampled_from("abc"), st.tuples(st.none() | st.integers(1, 3), st.sampled_from([0, 0, 0, 7, 25]))
        ),
        complete=st.booleans(),
        restart=st.sampled_from([False, False, False, True]),
    ),
    max_size=10,
)
_sources = count()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(polls=POLLS)
def test_every_past_moment_answers_as_full_snapshots_would(
    store: Store, url: str, clock: ManualClock, polls: list[Poll]
) -> None:
    """Price changes, late news, outages, recoveries and restarts of the poller in between."""
    source = f"s{next(_sources)}"  # series of its own in a store that is kept from example to example
    query = OfferQuery(providers=(source,))
    model, opened = Snapshots(), store
    try:
        for number, one in enumerate(polls):
            minute = 10.0 * number
            if one.restart:
                opened = store if opened is not store else open_store(url, clock=clock)
            error = "" if one.complete else "HTTP 503"
            offers = [offer(n, price, minute - ago, provider=source) for n, (price, ago) in one.told.items()]
            poll(opened, minute, *offers, provider=source, complete=one.complete, error=error)
            model.poll(minute, one)
        its_own = OfferQuery(providers=(source,))
        for minute in (*range(-28, 10 * len(polls) + 15, 10), 10**6):  # never in the middle of a poll
            assert at(store, minute, query=its_own) == model.was(minute)
        for name in "abc":
            points = store.market.price_series(offer(name, provider=source), T - 99 * MINUTE, T + 999 * MINUTE)
            for minute in range(-28, 10 * len(polls) + 15, 5):
                past = [point.price for point in points if point.at <= T + minute * MINUTE]
                found = past[-1].micros if past and past[-1] else None
                assert found == model.was(minute).get(name)
        now = {o.instance_type: o.price and o.price.micros for o in store.offers(query)}
        assert now == model.current
    finally:
        if opened is not store:
            opened.close()


@settings(max_examples=15 if FULL else 8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    polls=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("ab"), st.integers(1, 3)),
            st.sampled_from([10, 10, 10, -600, 900]),  # minutes until this poll, by a clock that is set
            st.sampled_from([0, 0, 5000]),  # minutes that the offers are dated ahead
            st.booleans(),
        ),
        max_size=8,
    )
)
def test_after_a_clock_was_set_back_history_and_the_current_offers_agree(
    store: Store, polls: list[tuple[dict[str, int], int, int, bool]]
) -> None:
    source, minute = f"s{next(_sources)}", 0.0
    query = OfferQuery(providers=(source,))
    for told, later, ahead, complete in polls:
        minute += later
        offers = [offer(name, price, minute + ahead, provider=source) for name, price in told.items()]
        poll(store, minute, *offers, provider=source, complete=complete)
        now = T + (minute + 1) * MINUTE
        found = store.market.offers_at(now, query=query)
        current = store.offers(query)
        assert {o.instance_type: o.price for o in found} == {o.instance_type: o.price for o in current}
        assert all(o.as_of <= now for o in current)
        later_on = store.market.offers_at(now + timedelta(days=999), query=query)
        assert [o.price for o in later_on] == [o.price for o in found]


def test_freshness_tells_of_each_provider(store: Store) -> None:
    hour = timedelta(hours=1)
    poll(store, 0, offer("a", max_age=hour), offer("b", max_age=2 * hour))
    poll(store, 30, offer("a", 90, 30, max_age=hour), complete=False, error="HTTP 503", hint="wait")
    poll(store, 0, error="no login", complete=False, provider="verda", status=PollStatus.LOGIN_MISSING)
    found = store.market.freshness(T + 95 * MINUTE)
    assert set(found) == {"aws", "verda"}
    aws = found["aws"]
    assert (aws.offers, aws.stale, aws.oldest, aws.newest, aws.limit) == (2, 1, T, T + 30 * MINUTE, hour)
    assert aws.last is not None
    assert (aws.last.error, aws.last_success) == ("HTTP 503", T + MINUTE)
    assert (found["verda"].offers, found["verda"].last_success, found["verda"].oldest) == (0, None, None)
