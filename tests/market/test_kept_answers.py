"""A document that its server calls unchanged is not read again, by whichever process polls next; its prices hold."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any
from zlib import crc32

import pytest
from sqlalchemy import text

from broker.core.market.offers import Offer, OfferQuery
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.market.poller import PollRequest, PollResult, PollSession
from broker.market.suspicion import Suspicion
from broker.store import Store
from broker.store.market import polls
from broker.store.records import PollStatus
from providers.aws.provider import Aws
from providers.aws.settings import AwsSettings
from tests.fakes.aws_files import Files, advisor, on_demand, product, reserved, serve_files
from tests.fakes.server import FakeServer, HttpAnswer, HttpRequest, encode

SIZES = ("xlarge", "2xlarge", "4xlarge", "8xlarge")
TYPES = ("p5.48xlarge", "p4d.24xlarge", *(f"{family}.{size}" for family in ("g5", "g6") for size in SIZES))
Poll = Callable[[], PollResult]


@pytest.fixture(autouse=True)
def _without_login(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("providers.aws.provider.login_source", lambda settings: "")
    monkeypatch.setattr("providers.aws.provider.AwsLogin.find", lambda settings: None)


@pytest.fixture
def files() -> Iterator[Files]:
    with serve_files() as served:
        yield served


@pytest.fixture
def poll(files: Files, store: Store, clock: ManualClock) -> Poll:
    """One poll of AWS by a provider that knows nothing but the store, as in a process of its own."""

    def polled() -> PollResult:
        settings: dict[str, Any] = {"price_list_url": files.url, "spot_advisor_url": files.url, "attempts": 1}
        aws = Aws(clock=clock, settings=AwsSettings(regions=("us-east-1",), **settings))
        kept = store.market.kept_answers("aws", clock.now())
        session = PollSession(PollRequest("aws", lambda: aws, timeout=60, judge=Suspicion(), kept=kept), clock)
        session.listen()
        result = session.record(store)
        clock.advance(timedelta(minutes=1))
        return result

    return polled


def put(files: Files, usd: str, version: str, types: tuple[str, ...] = TYPES, since: str = "2026-01-01") -> None:
    rows = [on_demand(product(name, "us-east-1"), usd, EffectiveDate=since) for name in types]
    rows += reserved(product(types[0], "us-east-1"), 1, "Partial Upfront", "0.1234567891", "77777")
    files.put_list("us-east-1", rows, etag=f'"{version}"')
    files.put_advisor(advisor({"us-east-1": dict.fromkeys(types, (60, 1))}), modified="Thu, 12 Nov 2026 22:53:08 GMT")


def told(store: Store) -> dict[str, Offer]:
    return {offer.id: offer for offer in store.offers(OfferQuery())}


def test_the_next_process_reads_nothing_and_the_prices_hold_as_of_now(
    files: Files, store: Store, clock: ManualClock, poll: Poll
) -> None:
    put(files, "5.04", "v1")
    first, before = poll(), told(store)
    assert (first.ok, first.offers_seen) == (True, len(TYPES) * 2 + 1), first
    assert files.bodies == 2
    clock.advance(timedelta(days=6))
    asked, second, after = clock.now(), poll(), told(store)
    assert (second.status, second.offers_seen, second.offers_changed) == (PollStatus.OK, first.offers_seen, 0)
    assert files.bodies == 2, "nothing was read again"
    assert second.rows_skipped == first.rows_skipped
    assert {offer.as_of for offer in after.values()} == {asked}
    assert {id: offer.price for id, offer in after.items()} == {id: offer.price for id, offer in before.items()}
    assert store.market.freshness(clock.now())["aws"].stale == 0


def test_a_document_that_changed_is_read(files: Files, store: Store, poll: Poll) -> None:
    put(files, "5.04", "v1")
    poll()
    put(files, "4.5", "v2")
    assert poll().offers_changed == len(TYPES)
    assert Money.usd("4.5") in {offer.price for offer in store.offers(OfferQuery())}


def another_version(store: Store, clock: ManualClock, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(polls, "own_version", lambda: "another")


def too_long_ago(store: Store, clock: ManualClock, patch: pytest.MonkeyPatch) -> None:
    clock.advance(timedelta(days=8))


def damaged(store: Store, clock: ManualClock, patch: pytest.MonkeyPatch) -> None:
    with store._database.writing() as connection:
        connection.execute(text("UPDATE kept_answer SET digest = 'other'"))


@pytest.mark.parametrize("spoil", [another_version, too_long_ago, damaged])
def test_what_was_kept_in_doubt_is_read_anew(
    spoil: Callable[[Store, ManualClock, pytest.MonkeyPatch], None],
    files: Files,
    store: Store,
    clock: ManualClock,
    poll: Poll,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put(files, "5.04", "v1")
    poll()
    before = files.bodies
    spoil(store, clock, monkeypatch)
    poll()
    assert files.bodies == 2 * before


def test_a_suspect_answer_is_not_kept(files: Files, poll: Poll) -> None:
    put(files, "5.04", "v1")
    poll()
    put(files, "5.04", "half", TYPES[:2])
    half = poll()
    assert half.status is PollStatus.SUSPECT
    before = files.bodies
    poll()
    assert files.bodies > before


def test_a_list_with_prices_of_later_is_read_again_because_they_come_into_force(
    files: Files, store: Store, clock: ManualClock, poll: Poll
) -> None:
    put(files, "5.04", "v1", since="2026-03-04")
    assert poll().rows_skipped == {"not_yet_in_force": len(TYPES)}
    clock.advance(timedelta(days=3))
    assert poll().rows_skipped == {}
    assert Money.usd("5.04") in {offer.price for offer in store.offers(OfferQuery())}


@pytest.mark.parametrize(("name", "module"), [("vultr", "test_vultr"), ("azure", "azure.test_retail")])
def test_every_public_list_is_asked_for_by_the_version_that_it_had(
    name: str, module: str, store: Store, clock: ManualClock
) -> None:
    answers, statuses = import_module(f"tests.providers.{module}").answers(), Counter[int]()
    market = answers.hijacked()
    market.body = encode(answers.body)

    def versioned(request: HttpRequest) -> HttpAnswer:
        found: HttpAnswer = market(request)
        version = f'"{crc32(found.payload())}"'
        if found.status == 200:
            found = HttpAnswer(304, b"") if request.headers.get("if-none-match") == version else found
            found = HttpAnswer(found.status, found.body, {"ETag": version})
        statuses[found.status] += 1
        return found

    with FakeServer(versioned) as server:
        for _ in range(2):
            kept = store.market.kept_answers(name, clock.now())
            make = partial(answers.make, server.url, clock)
            session = PollSession(PollRequest(name, make, timeout=60, judge=Suspicion(), kept=kept), clock)
            session.listen()
            result = session.record(store)
            assert (result.status, bool(result.offers_seen)) == (PollStatus.OK, True), result
            clock.advance(timedelta(minutes=1))
    assert statuses[304] >= 1
    assert result.offers_changed == 0
