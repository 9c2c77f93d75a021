"""Suspect polls keep what was known, odd prices are kept as suspicious, and a person's acceptance is on record."""

import json
from datetime import UTC, datetime, timedelta
from typing import Unpack

import pytest
from sqlalchemy import text

from broker.core.errors import InvalidInput
from broker.core.market.market_judge import PriceLevels
from broker.core.market.offers import Doubt, Offer
from broker.core.values.money import Money
from broker.market.suspicion import Suspicion
from broker.store import PollRun, Store
from broker.store.records import PollDetails, PollStatus
from tests.store.fields import OfferFields, spot_offer

T = datetime(2026, 3, 2, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BOOK = {"H100": {"spot": PriceLevels(Money.usd("2"), Money.usd("3"))}}


def offer(name: str, usd: str = "20", at: int = 0, **more: Unpack[OfferFields]) -> Offer:
    return spot_offer(name, Money.usd(usd), T + at * MINUTE, **more)


def poll(store: Store, at: int, *offers: Offer, provider: str = "aws", **more: Unpack[PollDetails]) -> PollRun:
    start = T + at * MINUTE
    more.setdefault("judge", Suspicion(BOOK))
    return store.record_poll(
        provider,
        started=start,
        finished=start + MINUTE / 2,
        offers=offers,
        **more,
    )


def doubts(store: Store) -> dict[str, Doubt | None]:
    return {one.instance_type: one.doubt for one in store.offers()}


NAMES = [f"m{number}" for number in range(10)]


def test_a_suspect_poll_keeps_what_it_did_not_bring_in_doubt(store: Store) -> None:
    assert poll(store, 0, *(offer(name) for name in NAMES)).status is PollStatus.OK
    run = poll(store, 10, offer("m0", at=10), skipped={"no_price": 9})
    assert (run.status, run.complete, run.gone) == (PollStatus.SUSPECT, False, 0)
    assert "1 of 10" in run.error
    assert "9 rows were skipped" in run.error
    assert doubts(store) == {"m0": None, **dict.fromkeys(NAMES[1:], Doubt.UNTOLD)}
    fresh = store.market.freshness(T + 20 * MINUTE)["aws"]
    assert (fresh.offers, fresh.suspicious, fresh.last_success) == (10, 9, T + MINUTE / 2)
    assert poll(store, 20).status is PollStatus.SUSPECT, "an empty one is, too, and what is suspicious still counts"
    assert poll(store, 30, *(offer(name, at=30) for name in NAMES)).status is PollStatus.OK
    assert set(doubts(store).values()) == {None}


def test_expected_churn_is_learned_from_believed_polls(store: Store) -> None:
    poll(store, 0, *(offer(name) for name in NAMES))
    assert poll(store, 10, *(offer(name, at=10) for name in NAMES[3:])).gone == 3
    assert poll(store, 20, *(offer(name, at=20) for name in NAMES[6:])).status is PollStatus.OK


def test_a_person_says_that_what_is_missing_is_gone(store: Store) -> None:
    poll(store, 0, *(offer(name) for name in NAMES))
    poll(store, 10, offer("m0", at=10))
    done = store.accept_doubts("aws", by="olga", note="their page says so")
    assert (done.missing_removed, done.prices_believed, done.accepted_by) == (9, 0, "olga")
    assert doubts(store) == {"m0": None}
    assert store.last_polls()["aws"].status is PollStatus.ACCEPTED
    with pytest.raises(InvalidInput, match="no suspicious offer"):
        store.accept_doubts("aws", by="olga")
    assert poll(store, 20, offer("m0", at=20)).status is PollStatus.OK
    with store._database.reading() as connection:
        [row] = connection.execute(text("SELECT accepted_by, provider, ended, what, note FROM price_acceptance")).all()
    assert (row.accepted_by, row.provider, row.ended, row.note) == ("olga", "aws", 9, "their page says so")
    assert len(json.loads(row.what)) == 9


def test_an_empty_first_poll_is_suspect_until_a_person_says_that_it_is_right(store: Store) -> None:
    assert poll(store, 0).status is PollStatus.SUSPECT
    store.accept_doubts("aws", by="olga")
    assert poll(store, 10).status is PollStatus.OK


def test_an_odd_price_is_in_doubt_until_it_is_as_before_or_accepted(store: Store) -> None:
    poll(store, 0, *(offer(name) for name in NAMES))
    poll(store, 10, *(offer(name, "2.4" if name == "m1" else "20", 10) for name in NAMES))
    assert doubts(store)["m1"] is Doubt.SUDDEN
    [odd] = [one for one in store.offers() if one.doubt]
    assert odd.price == Money.usd("2.4")
    poll(store, 20, *(offer(name, "2.4" if name == "m1" else "20", 20) for name in NAMES))
    assert doubts(store)["m1"] is Doubt.SUDDEN, "said again it is as odd"
    poll(store, 30, *(offer(name, "20.5", 30) for name in NAMES))
    assert doubts(store)["m1"] is None
    poll(store, 40, *(offer(name, "2.4" if name == "m1" else "20", 40) for name in NAMES))
    with pytest.raises(InvalidInput, match="m7"):
        store.accept_doubts("aws", ["aws/us-east-1/m7/H100:8/spot"], by="olga")
    assert store.accept_doubts("aws", [odd.pool], by="olga").prices_believed == 1
    poll(store, 50, *(offer(name, "2.5" if name == "m1" else "20", 50) for name in NAMES))
    assert doubts(store)["m1"] is None


def test_what_other_providers_ask_says_what_is_odd(store: Store) -> None:
    poll(store, 0, *(offer(name) for name in NAMES))
    cheap: OfferFields = {"provider": "gcp", "region": "us-central1"}
    poll(store, 10, offer("a", "0.605", 10, **cheap), offer("b", "9", 10, **cheap), provider="gcp")
    assert doubts(store)["a"] is Doubt.TOO_LOW
    assert doubts(store)["b"] is None


def test_who_has_no_judge_is_believed(store: Store) -> None:
    poll(store, 0, *(offer(name) for name in NAMES))
    store.record_poll("aws", started=T + MINUTE, finished=T + MINUTE, offers=[])
    assert not store.offers()


def test_a_small_group_is_judged_by_its_own_history(store: Store) -> None:
    """Two of four offers of a region: suspect where none ever ended, believed where they come and go."""
    rest = [f"n{number}" for number in range(110)]
    four = ["a", "b", "c", "d"]

    def told(at: int, *names: str, region: str) -> PollRun:
        everything = [*(offer(name, at=at) for name in rest), *(offer(name, at=at, region=region) for name in names)]
        return poll(store, at, *everything, provider=region)

    for at in range(0, 160, 10):
        away = four[at // 10 % 4] if at < 150 else ""
        assert told(at, *four, region="calm").status is PollStatus.OK
        assert told(at, *(name for name in four if name != away), region="busy").status is PollStatus.OK
    assert told(160, "a", "b", region="busy").status is PollStatus.OK
    suspect = told(160, "a", "b", region="calm")
    assert suspect.status is PollStatus.SUSPECT
    assert "calm: 2 of 4" in suspect.error
