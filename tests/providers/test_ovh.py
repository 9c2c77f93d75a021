"""OVHcloud's catalogue becomes offers."""

from collections.abc import Iterator
from typing import Any

import pytest

from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.ovh import Ovh, OvhSettings
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.mutate import JsonAnswers
from tests.fakes.ovh import OvhAddon, OvhMarket, OvhPricing, ovh_machine
from tests.fakes.server import FakeServer, HttpAnswer, Market

H100 = ovh_machine("h100-380", "H100", 1, 80, 2.99, "GRA11", "BHS5")
A100 = ovh_machine("a100-720", "A100", 4, 80, 12.4, "GRA11")
L4 = ovh_machine("l4-90", "L4", 1, 24, 0.83)
V100S = ovh_machine("t2-45", "Tesla V100S", 1, 32, 2.19, "GRA9")
MACHINES = (H100, A100, L4, V100S)
MONTHLY = ovh_machine("h100-380", "H100", 1, 80, 1600, planCode="h100-380.monthly.postpaid")
CPU = ovh_machine("b3-8", "", 0, 0, 0.06, blobs={"technical": {"cpu": {"cores": 2}}, "tags": ["active"]})
VOLUME = OvhAddon(
    planCode="volume.classic.consumption",
    invoiceName="volume",
    product="publiccloud-volume",
    pricings=[OvhPricing(price=5500)],
)


def changed(of: OvhAddon, **technical: Any) -> OvhAddon:
    blobs = of.blobs or {}
    return of.model_copy(update={"blobs": {**blobs, "technical": {**blobs["technical"], **technical}}})


OTHERS = (
    MONTHLY,
    CPU,
    VOLUME,
    changed(H100, os={"family": "windows"}),
    H100.model_copy(update={"blobs": {**(H100.blobs or {}), "tags": ["legacy"]}, "planCode": "old.consumption"}),
    changed(H100, gpu={"model": "X900", "number": 1}),
)


def ovh(url: str, clock: ManualClock, **settings: Any) -> Ovh:
    return Ovh(clock=clock, settings=OvhSettings(base_url=url, **settings))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(OvhMarket([*MACHINES, *OTHERS])) as running:
        yield running


class TestOvhIsAProvider(ProviderContract):
    plugin = "ovh"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> Ovh:
        return ovh(server.url, clock)


class TestFaultsOfOvh(HttpFaults):
    def market(self) -> Market:
        return OvhMarket(MACHINES)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Ovh:
        return ovh(url, clock, **settings)


def rows(server: FakeServer, **settings: Any) -> list[Offer | SkippedRow]:
    return list(ovh(server.url, ManualClock(NOW), **settings).offers(OfferQuery()))


def test_an_hourly_machine_with_gpus_is_an_offer_a_region(server: FakeServer) -> None:
    found = {(row.region, row.machine): row.price for row in rows(server) if isinstance(row, Offer)}
    assert found == {
        ("GRA11", "H100-PCIe:1"): Money.usd("2.99"),
        ("BHS5", "H100-PCIe:1"): Money.usd("2.99"),
        ("GRA11", "A100-80GB:4"): Money.usd("12.4"),
        ("worldwide", "L4:1"): Money.usd("0.83"),
        ("GRA9", "V100S:1"): Money.usd("2.19"),
    }


def test_what_is_no_offer_is_counted_and_what_has_no_gpu_is_not(server: FakeServer) -> None:
    reasons = sorted(row.reason for row in rows(server) if isinstance(row, SkippedRow))
    assert reasons == ["not_sold", "other_product", "unknown_accelerator"]


def test_a_subsidiary_with_another_currency_brings_no_offer(server: FakeServer) -> None:
    found = rows(server, subsidiary="FR")
    assert not [row for row in found if isinstance(row, Offer)]
    assert {row.reason for row in found if isinstance(row, SkippedRow)} >= {"foreign_currency"}


def test_two_prices_of_an_hour_are_none() -> None:
    twice = H100.model_copy(update={"pricings": [*H100.pricings, OvhPricing(price=1)]})
    with FakeServer(lambda _: HttpAnswer(200, OvhMarket([twice]).body())) as server:
        assert [row.reason for row in rows(server) if isinstance(row, SkippedRow)] == ["no_price"]


def answers() -> JsonAnswers:
    market = OvhMarket(MACHINES)
    return JsonAnswers(
        lambda url, clock: ovh(url, clock, attempts=1),
        market,
        "/order/catalog/public/cloud",
        market.body(),
        lambda body: body["addons"],
        # A plan of another product or without `.consumption` is another thing; regions may go one by one.
        fair=r"product\.= |planCode\.= |values\.\d+\.deleted",
        prices=r"(?i)pric|interval|number|row \d+: (= |$)",
    )
