"""SF Compute's quotes as offers, and its contracts."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from broker.core.errors import LoginMissing, Malformed
from broker.core.market.offers import OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.sfcompute import Sfcompute, SfcomputeSettings
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract, poll
from tests.fakes.mutate import JsonAnswers
from tests.fakes.server import FakeServer, Market
from tests.fakes.sfcompute import SfcomputeMarket

CLOCK = ManualClock(NOW)


def sfcompute(url: str, clock: ManualClock, **settings: Any) -> Sfcompute:
    chosen = SfcomputeSettings(**{"base_url": url, "api_key": "sk_live_test", **settings})
    return Sfcompute(clock=clock, settings=chosen, environment={})


@pytest.fixture
def market() -> SfcomputeMarket:
    return SfcomputeMarket(now=lambda: NOW)


@pytest.fixture
def server(market: SfcomputeMarket) -> Iterator[FakeServer]:
    with FakeServer(market) as running:
        yield running


class TestSfcomputeIsAProvider(ProviderContract):
    plugin = "sfcompute"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> Sfcompute:
        return sfcompute(server.url, clock)


class TestFaultsOfSfcompute(HttpFaults):
    logs_in = True

    def market(self) -> Market:
        return SfcomputeMarket(now=lambda: NOW)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Sfcompute:
        return sfcompute(url, clock, **settings)


def test_a_node_costs_an_hour_what_a_day_is_quoted_at(server: FakeServer) -> None:
    [offer] = poll(sfcompute(server.url, CLOCK))
    assert (offer.accelerator, offer.count, offer.price, offer.engine) == ("H100", 8, Money.usd("16"), None)


def test_what_nobody_sells_and_unknown_types_are_told(server: FakeServer, market: SfcomputeMarket) -> None:
    del market.cents["h100i"]
    provider = sfcompute(server.url, CLOCK, instance_types=("h100i", "voodoo2"))
    rows = [row.reason for row in provider.offers(OfferQuery()) if isinstance(row, SkippedRow)]
    assert rows == ["sold_out", "unknown_machine"]


def test_without_a_token_nobody_is_asked() -> None:
    with pytest.raises(LoginMissing, match="SF Compute's prices need"):
        list(Sfcompute(clock=CLOCK, environment={}).offers(OfferQuery()))


def test_contracts_are_held_capacity_and_those_that_cannot_be_read_are_counted(
    server: FakeServer, market: SfcomputeMarket
) -> None:
    ends = NOW + timedelta(days=2)
    shape: dict[str, list[Any]] = {"intervals": [NOW.isoformat(), ends.isoformat()], "quantities": [2, 0]}
    good = {"object": "contract", "id": "cont_1", "instance_type": "h100i", "shape": shape}
    backwards = {**shape, "intervals": shape["intervals"][::-1]}
    none = {**shape, "quantities": [0]}
    market.contracts = [{"id": 3}, good, 7, {**good, "shape": backwards}, {**good, "shape": none}]  # type: ignore[list-item]  # what no contract is
    found = sfcompute(server.url, CLOCK).reservations()
    held = next(found)
    assert (held.id, held.machines, held.starts, held.ends) == ("cont_1", 2, NOW, ends)
    with pytest.raises(Malformed, match="4 of 5 contracts cannot be read: contract is not a name: 3"):
        next(found)


def answers() -> JsonAnswers:
    times = {"start_at": NOW.isoformat(), "end_at": (NOW + timedelta(days=1)).isoformat()}
    quote = {"price": 38_400, "quantity": 1, **times, "instance_type": "h100i"}
    return JsonAnswers(
        lambda url, clock: sfcompute(url, clock, instance_types=("h100i",)),
        SfcomputeMarket(now=lambda: NOW),
        "/v0/quote",
        {"quote": quote},
        lambda body: body,
        fair=r"quote = None",
        prices=r"(?i)price|start_at|end_at|quote: (= |$)",
    )
