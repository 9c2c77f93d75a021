"""Watches over a store that is polled: looks, notices, several processes, restarts."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from broker.app.alerts import notify
from broker.app.market import watches
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, UnknownName
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.market.watches import Trigger, Watch
from broker.core.notices import Notice
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from tests.actors import with_clock
from tests.empty_store import empty_store

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return empty_store(tmp_path / "store.db")


def offer(price: str, at: datetime, **changed: Any) -> Offer:
    fields: dict[str, Any] = {
        "provider": "aws", "region": "us-east-1", "zone": None, "instance_type": "p5", "accelerator": "H100",
        "count": 8, "capacity_type": CapacityType.SPOT, "price": Money.usd(price), "as_of": at, "source": "api",
        "availability": Availability.AVAILABLE, "max_age": 2 * HOUR,
    }  # fmt: skip
    return Offer(**(fields | changed))


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The titles of what was sent; nothing leaves this process."""
    found: list[str] = []

    def send(notice: Notice, address: str) -> str:
        found.append(notice.title)
        return "" if address == "up://" else "the service answered 503"

    monkeypatch.setattr(notify, "_send", send)
    return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def restarted(new_broker: Callable[[], Broker], clock: ManualClock) -> Callable[..., Broker]:
    """A broker over the same store, as another process has it."""

    def new(**targets: str) -> Broker:
        broker = new_broker()
        broker = with_clock(broker, clock)
        secrets = {name: SecretStr(address) for name, address in (targets or {"ops": "up://"}).items()}
        broker.settings = broker.settings.model_copy(update={"notify": secrets})
        return broker

    return new


@pytest.fixture
def broker(restarted: Callable[..., Broker]) -> Broker:
    return restarted()


def poll(broker: Broker, *offers: Offer, **more: Any) -> None:
    now = broker.clock.now()
    broker.store.record_poll("aws", started=now, finished=now, offers=offers, **more)


def below(price: str = "2", **more: Any) -> Watch:
    fields: dict[str, Any] = {"machines": ("H100:8",), "price": Money.usd(price), "pause": timedelta(minutes=1)}
    return Watch("cheap", Trigger.BELOW, NOW, "ada", **(fields | more))


def test_a_drop_is_told_once_through_restarts(
    broker: Broker, restarted: Callable[..., Broker], clock: ManualClock, sent: list[str]
) -> None:
    poll(broker, offer("20", clock.now()))
    assert watches.add(broker, below()).seen.words == "cheapest: $2.50 per GPU-hour, aws us-east-1 p5 H100:8 spot"
    for price, told in (("20", 0), ("15", 1), ("14", 1), ("17", 1), ("15", 2)):
        clock.advance(HOUR)
        poll(broker, offer(price, clock.now()))
        for _ in range(2):
            watches.check(restarted())
        assert len(sent) == told
    assert sent[0] == "gpubroker: H100:8 below $2.00 per GPU-hour"


def test_a_notice_draws_the_price_since_it_is_known(broker: Broker, clock: ManualClock, sent: list[str]) -> None:
    watches.add(broker, below())
    for price in ("32", "24", "12"):
        poll(broker, offer(price, clock.now()))
        clock.advance(24 * HOUR)
    poll(broker, offer("12", clock.now()))
    (looked,) = watches.check(broker).looked
    assert looked.notice is not None
    (drawn,) = [text for text in looked.notice.body.splitlines() if text.startswith("lowest, last 3 d: ")]
    assert drawn.endswith("$1.50 to $4.00 per GPU-hour")
    assert "█" in drawn
    assert "▁" in drawn


def test_a_failed_poll_and_old_prices_tell_nothing(broker: Broker, clock: ManualClock, sent: list[str]) -> None:
    watches.add(broker, below())
    poll(broker, offer("15", clock.now()))
    watches.check(broker)
    clock.advance(3 * HOUR)  # the price is too old to count
    poll(broker, complete=False, error="HTTP 503")
    (looked,) = watches.check(broker).looked
    assert not looked.state.known
    poll(broker, offer("15", clock.now()))
    watches.check(broker)
    assert len(sent) == 1


def test_a_rise_is_against_what_it_cost_then(broker: Broker, clock: ManualClock, sent: list[str]) -> None:
    watch = Watch("rise", Trigger.RISES, NOW, "ada", part=0.2, within=24 * HOUR)
    watches.add(broker, watch)
    for hour, price in enumerate(["10"] * 25 + ["11.9", "12"]):
        clock.time = NOW + hour * HOUR
        poll(broker, offer(price, clock.now()))
        watches.check(broker)
        assert len(sent) == (1 if price == "12" else 0)


def test_becoming_available(broker: Broker, clock: ManualClock, sent: list[str]) -> None:
    watches.add(broker, Watch("there", Trigger.AVAILABLE, NOW, "ada", providers=("a*",)))
    for hour, there in enumerate([False, True, True, False, True]):
        clock.time = NOW + hour * HOUR
        kind = Availability.AVAILABLE if there else Availability.UNAVAILABLE
        poll(broker, offer("10", clock.now(), availability=kind))
        watches.check(broker)
    assert len(sent) == 2


def test_a_source_that_gets_stale(broker: Broker, clock: ManualClock, sent: list[str]) -> None:
    poll(broker, offer("10", clock.now()))
    watches.add(broker, Watch("late", Trigger.STALE, NOW, "ada", age=2 * HOUR))
    for hour, error in enumerate(["", "HTTP 503", "HTTP 503", "HTTP 503", "HTTP 503", ""]):
        clock.time = NOW + hour * HOUR
        poll(broker, *([] if error else [offer("10", clock.now())]), complete=not error, error=error)
        watches.check(broker)
        assert len(sent) == (1 if hour >= 3 else 0)


def test_simulated_offers_tell_nothing_unless_asked_for(broker: Broker, clock: ManualClock, sent: list[str]) -> None:
    watches.add(broker, below())
    watches.add(broker, replace(below(providers=("sandbox",)), name="pretend"))
    now = clock.now()
    broker.store.record_poll("sandbox", started=now, finished=now, offers=[offer("8", now, provider="sandbox")])
    noticed = {one.watch.name for one in watches.check(broker).looked if one.notice}
    assert noticed == {"pretend"}


def test_of_many_that_look_at_once_one_tells(
    broker: Broker, restarted: Callable[..., Broker], clock: ManualClock, sent: list[str]
) -> None:
    watches.add(broker, below())
    poll(broker, offer("15", clock.now()))
    brokers = [restarted() for _ in range(4)]
    threads = [threading.Thread(target=watches.check, args=(one,)) for one in brokers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sent) == 1


def test_who_is_told_and_what_became_of_it(
    restarted: Callable[..., Broker], clock: ManualClock, sent: list[str]
) -> None:
    broker = restarted(ops="up://", mail="down://", other="up://")
    watches.add(broker, below(targets=("ops", "mail")))
    poll(broker, offer("15", clock.now()))
    checked = watches.check(broker)
    assert {(one.target, one.ok) for one in checked.deliveries} == {("ops", True), ("mail", False)}
    (one,) = watches.list_watches(broker).watches
    assert {(it.target, it.error, it.tries) for it in one.deliveries} == {
        ("ops", "", 1),
        ("mail", "the service answered 503", 1),
    }
    assert watches.check(broker).deliveries == ()
    clock.advance(timedelta(seconds=30))
    assert [it.target for it in watches.check(restarted(mail="up://")).deliveries] == ["mail"]


def test_names_are_checked_and_made(broker: Broker, clock: ManualClock) -> None:
    poll(broker, offer("15", clock.now()))
    assert watches.default_name(broker, below()) == "h100-8-below-2.00"
    watches.add(broker, below())
    with pytest.raises(InvalidInput, match="exists already"):
        watches.add(broker, below())
    with pytest.raises(UnknownName, match="did you mean 'aws'"):
        watches.add(broker, replace(below(providers=("awss",)), name="other"))
    with pytest.raises(UnknownName, match="did you mean 'ops'"):
        watches.add(broker, replace(below(targets=("opps",)), name="other"))
    with pytest.raises(UnknownName, match="provider"):
        watches.add(broker, Watch("late", Trigger.STALE, NOW, "ada", providers=("nobody",), age=HOUR))
    with pytest.raises(UnknownName, match="did you mean 'cheap'"):
        watches.remove(broker, "cheep")
    watches.remove(broker, "cheap")
    assert watches.list_watches(broker).watches == []


def test_a_watch_that_was_made_anew_tells_anew(broker: Broker, clock: ManualClock, sent: list[str]) -> None:
    poll(broker, offer("15", clock.now()))
    for n in range(2):
        clock.advance(timedelta(minutes=1))
        watches.add(broker, replace(below(), made_at=clock.now()))
        watches.check(broker)
        assert len(sent) == n + 1
        watches.remove(broker, "cheap")


def test_the_duty_of_a_service(
    broker: Broker, clock: ManualClock, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "_CHECK_SECONDS", 0.0)
    watches.add(broker, below())
    poll(broker, offer("15", clock.now()))
    stop, told = threading.Event(), []

    def tell(what: object) -> None:
        told.append(what)
        if len(told) == 2:
            stop.set()

    watches.WatchDuty(broker, tell=tell, say=told.append).run(stop)
    assert [type(one).__name__ for one in told] == ["WatchEvaluation", "Delivery"]
    assert len(sent) == 1
