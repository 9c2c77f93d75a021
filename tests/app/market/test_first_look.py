"""The first look at the market: who is asked before prices are shown first, and when nobody is."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from broker.app.market.polling import RETRY_AFTER, first_sources, has_network, poll_first_sources, tell_no_network
from broker.app.wiring import Broker
from broker.core.errors import HostUnknown
from broker.core.market.offers import CapacityType, Offer, OfferQuery
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.settings import Settings
from cli import registries
from tests.actors import EVERYBODYS
from tests.contracts.provider_contract import NOW
from tests.empty_store import empty_store


class QuickCloud:
    """One price, or no network."""

    network = True

    def __init__(self, name: str, clock: ManualClock) -> None:
        self.name = name
        self._clock = clock

    def offers(self, query: OfferQuery) -> Iterator[Offer]:
        if not QuickCloud.network:
            raise HostUnknown("no address for quick.example", where=self.name)
        about = (self.name, "here", None, "big", "H100", 8, CapacityType.SPOT, Money.usd("20"))
        yield Offer(*about, self._clock.now(), "api", max_age=timedelta(hours=1))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def newcomer(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setattr(QuickCloud, "network", True)
    settings = Settings(home=tmp_path, store=empty_store(tmp_path / "store.db"), offline=False)
    plugged = replace(
        registries(),
        providers={"quick": "-", "slow": "-"},
        build_provider=lambda name, **_: QuickCloud(name, clock),
        local_providers=(),
        quick_providers=("quick", "not-installed"),
    )
    broker = Broker(settings, plugged, EVERYBODYS, clock=clock)
    yield broker
    broker.store.close()


def asked(broker: Broker) -> tuple[str, ...]:
    names = first_sources(broker)
    assert all(result.provider in names for result in poll_first_sources(broker, names))
    return names


def test_the_first_use_asks_quick_sources_and_the_next_asks_nobody(newcomer: Broker, clock: ManualClock) -> None:
    assert asked(newcomer) == ("quick",)
    assert [offer.provider for offer in newcomer.store.offers()] == ["quick"]
    clock.advance(timedelta(days=30))
    assert asked(newcomer) == ()


def test_without_a_network_it_is_tried_again_after_a_while(newcomer: Broker, clock: ManualClock) -> None:
    QuickCloud.network = False
    assert asked(newcomer) == ("quick",)
    assert newcomer.store.offers() == []
    assert asked(newcomer) == ()
    clock.advance(RETRY_AFTER)
    QuickCloud.network = True
    assert asked(newcomer) == ("quick",)


def test_offline_nobody_is_asked(newcomer: Broker) -> None:
    newcomer.settings.offline = True
    assert asked(newcomer) == ()


def test_that_there_is_no_network_is_said_once_in_a_while(newcomer: Broker, clock: ManualClock) -> None:
    assert [tell_no_network(newcomer), tell_no_network(newcomer)] == [True, False]
    clock.advance(RETRY_AFTER)
    assert tell_no_network(newcomer)


def test_a_machine_without_a_route_has_no_network_unless_it_has_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr("broker.app.market.polling.socket.socket.connect", refuse)
    assert not has_network({})
    assert has_network({"HTTPS_PROXY": "http://proxy:3128"})
