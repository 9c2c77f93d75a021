"""Forgetting old history: what must stay, and that nothing after the cut-off answers differently."""

from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from typing import Unpack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.job.jobs import Job
from broker.core.job.placements import Placement
from broker.core.market.offers import Offer, OfferQuery
from broker.core.values.money import Money
from broker.store import Store
from broker.store.jobs.journal import StoreWriter
from broker.store.market.retention import NeededTimes
from broker.store.records import PollDetails, PrunedPriceHistory
from tests.counts import FULL
from tests.store.fields import OfferFields, micros_of, spot_offer

T = datetime(2026, 3, 2, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def counts(pruned: PrunedPriceHistory) -> tuple[int, ...]:
    return pruned.price_changes, pruned.signal_changes, pruned.poll_runs, pruned.protected


def offer(price: int | None = 100, day: float = 0, instance_type: str = "p5", **more: Unpack[OfferFields]) -> Offer:
    return spot_offer(instance_type, None if price is None else Money(price), T + day * DAY, **more)


def poll(store: Store, day: float, *offers: Offer, provider: str = "aws", **more: Unpack[PollDetails]) -> None:
    at = T + day * DAY
    store.record_poll(provider, started=at, finished=at, offers=offers, **more)


def prices(store: Store, of: Offer | None = None) -> list[int | None]:
    points = store.market.price_series(of or offer(), T - 99 * DAY, T + 9999 * DAY)
    return [micros_of(point.price) for point in points]


def attempt(store: Store, name: str, day: float, until: float | None) -> None:
    """A launched attempt on the offer: from one day until its machine is gone, or for ever."""
    with store.writing() as journal:
        attempt_in(journal, name, day, until)


def attempt_in(journal: StoreWriter, name: str, day: float, until: float | None) -> None:
    placement = Placement(offer(1, day), 1, Money(1), Money(1), (), None, None, 1.0, 1.0, 0.0)
    job = ev.Submitted(job=Job(name=name, run="true"), user="ada", max_duration_seconds=3600)
    requested = ev.LaunchRequested(key=name, engine="local", placement=placement)
    journal.append(name, [(None, job), (1, requested), (1, ev.Launched(handle="h"))], T + day * DAY)
    if until is not None:
        over = ev.AttemptEnded(cause=Cause.COMPLETED), ev.MachineGone(gone_at=T + until * DAY)
        journal.append(name, [(1, body) for body in over], T + until * DAY)


def test_the_price_in_force_at_the_cut_off_stays(store: Store) -> None:
    for day in range(6):
        poll(store, day, offer(100 + day, day))
    before = T + 3.5 * DAY
    assert counts(store.market.prune(before, dry_run=True)) == (3, 0, 3, 0)
    assert prices(store) == [100, 101, 102, 103, 104, 105]
    assert counts(store.market.prune(before)) == (3, 0, 3, 0)
    assert prices(store) == [103, 104, 105]
    [past] = store.market.offers_at(before)
    assert (past.price, past.as_of) == (Money(103), T + 3 * DAY)
    assert counts(store.market.prune(before)) == (0, 0, 0, 0)


def test_the_last_price_stays_where_only_its_absence_is_in_force(store: Store) -> None:
    for day, price in enumerate((100, 101, None, None)):
        poll(store, day, offer(price, day, unavailable_because=str(day)))
    assert store.market.prune(T + 9 * DAY).price_changes == 1
    with store.reading() as look:  # bills go on with the last price
        assert look.price_series(offer(), T + 9 * DAY, T + 10 * DAY) == [(T + DAY, Money(101))]


def test_what_a_launched_attempt_refers_to_stays(store: Store) -> None:
    for day in range(20):
        poll(store, day, offer(100 + day, day))
    attempt(store, "old", 3.5, 5.5)
    attempt(store, "older", 4.5, 4.6)
    found = store.market.prune(T + 12.5 * DAY, dry_run=True)
    assert (found.price_changes, found.protected) == (9, 3)
    assert counts(store.market.prune(T + 12.5 * DAY)) == counts(found)
    assert prices(store) == [103, 104, 105, *range(112, 120)]
    attempt(store, "lives", 14.5, None)
    assert store.market.prune(T + 19.5 * DAY).protected == 3 + 5
    assert prices(store) == [103, 104, 105, *range(114, 120)]


@pytest.mark.system
def test_what_a_thousand_launched_attempts_refer_to_stays(store: Store) -> None:
    hour = 1 / 24
    for n in range(40):
        poll(store, n * hour, offer(100 + n, n * hour))
    with store.writing() as journal:
        for n in range(1100):  # at every fourth of the first 28 hours, again and again
            begun = (n % 7 * 4 + 0.25) * hour
            attempt_in(journal, f"job-{n}", begun, begun + 0.25 * hour)
    assert counts(store.market.prune(T + 35.5 * hour * DAY)) == (28, 0, 35, 7)
    assert prices(store) == [100, 104, 108, 112, 116, 120, 124, *range(135, 140)]


def test_a_change_without_a_price_stays_with_the_price_before_it(store: Store) -> None:
    for day, price in enumerate((100, 101, None, 103, 104)):
        poll(store, day, offer(price, day))
    attempt(store, "j", 2.5, 2.6)
    assert counts(store.market.prune(T + 9 * DAY)) == (2, 0, 4, 2)
    assert prices(store) == [101, None, 104]


@given(times=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=12))
def test_times_that_overlap_or_touch_are_one(times: list[tuple[int, int]]) -> None:
    uses = NeededTimes()
    for start, length in times:
        uses.add(start, start + length)
    found = list(uses)
    assert {n for start, end in found for n in range(2 * start, 2 * end + 1)} == {
        n for start, length in times for n in range(2 * start, 2 * (start + length) + 1)
    }
    assert all(end < start for (_, end), (start, _) in pairwise(found))


def test_each_provider_keeps_its_newest_polls(store: Store) -> None:
    poll(store, 0, offer())
    poll(store, 1, offer(day=1))
    poll(store, 2, complete=False, error="HTTP 503")
    poll(store, 3, complete=False, error="HTTP 503")
    poll(store, 0, provider="gcp")
    poll(store, 9, provider="azure")
    assert store.market.prune(T + 5 * DAY).poll_runs == 2
    runs = store.market.poll_runs()
    assert [(run.provider, (run.started - T) / DAY) for run in runs] == [
        ("azure", 9),
        ("gcp", 0),
        ("aws", 3),
        ("aws", 1),
    ]


def test_scores_and_rates_are_forgotten_too(store: Store) -> None:
    for day in range(4):
        poll(store, day, offer(day=day, score=day / 10))
    assert store.market.prune(T + 2.5 * DAY).signal_changes == 2
    points = store.market.signal_series(offer(), T, T + 9 * DAY)
    assert [point.score for point in points] == [0.2, 0.3]


_sources = count()


@settings(max_examples=15 if FULL else 8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    history=st.lists(st.dictionaries(st.sampled_from("abc"), st.none() | st.integers(1, 3)), max_size=8),
    cut=st.integers(-1, 9),
)
def test_nothing_after_the_cut_off_answers_differently(
    store: Store, history: list[dict[str, int | None]], cut: int
) -> None:
    source = f"s{next(_sources)}"
    for day, told in enumerate(history):
        offers = [offer(price, day, instance_type=name, source=source) for name, price in told.items()]
        poll(store, day, *offers, provider=source)

    def answers() -> list[object]:
        query = OfferQuery()
        moments = [T + (cut + half / 2) * DAY for half in range(8)]
        return [
            [past for past in store.market.offers_at(moment, query) if past.source == source] for moment in moments
        ] + [
            store.market.price_series(offer(1, instance_type=n, source=source), moments[0], moments[-1]) for n in "abc"
        ]

    before = answers()
    store.market.prune(T + cut * DAY)
    assert answers() == before
