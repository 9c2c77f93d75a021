"""Hyperstack's flavors become offers at the price of their GPUs."""

from collections.abc import Iterator
from typing import Any

import pytest

from broker.core.errors import NoLogin
from broker.core.market.offers import Availability, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.hyperstack import Hyperstack, HyperstackSettings
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.hyperstack import HYPERSTACK_KEY, HyperstackFlavor, HyperstackMarket, HyperstackPrice
from tests.fakes.mutate import JsonAnswers
from tests.fakes.server import FakeServer, Market

PRICES = [
    HyperstackPrice(name="H100-80G-PCIe", value=1.9, original_value=1.9),
    HyperstackPrice(name="H100-80G-PCIe-spot", value=1.52),
    HyperstackPrice(name="H100-80G-SXM5", value=2.16, original_value=2.4, discount_applied=True),
    HyperstackPrice(name="A100-80G-PCIe-NVLink", value=1.4),
    HyperstackPrice(name="RTX-A6000", value=0.5),
    HyperstackPrice(name="L40", value=0.5, end_time="2020-01-01T00:00:00"),
    HyperstackPrice(name="L40", value=1.0, start_time="2020-01-01T00:00:00"),
    HyperstackPrice(name="vCPU (cpu-only-flavors)", value=0.00347),
]
FLAVORS = [
    HyperstackFlavor(name="n3-H100x1", region_name="NORWAY-1", gpu="H100-80G-PCIe"),
    HyperstackFlavor(name="n3-H100x8", region_name="CANADA-1", gpu="H100-80G-PCIe", gpu_count=8, stock_available=False),
    HyperstackFlavor(name="n3-H100x1-spot", region_name="CANADA-1", gpu="H100-80G-PCIe-spot"),
    HyperstackFlavor(name="n3-H100-SXM5x8", region_name="CANADA-1", gpu="H100-80G-SXM5", gpu_count=8),
    HyperstackFlavor(name="n3-A100x2-NVLink", region_name="CANADA-1", gpu="A100-80G-PCIe-NVLink", gpu_count=2),
    HyperstackFlavor(name="n3-RTX-A6000x1", region_name="NORWAY-1", gpu="RTX-A6000"),
    HyperstackFlavor(name="n3-L40x1", region_name="NORWAY-1", gpu="L40"),
]
CPU = HyperstackFlavor(name="n1-cpu-small", region_name="CANADA-1", gpu="", gpu_count=0)
ODD = (
    HyperstackFlavor(name="n9", region_name="US-1", gpu="V900-80G-SXM9"),
    HyperstackFlavor(name="n3-B200x8", region_name="US-1", gpu="B200-SXM", gpu_count=8),
)


def hyperstack(url: str, clock: ManualClock, key: str = HYPERSTACK_KEY, **settings: Any) -> Hyperstack:
    chosen = HyperstackSettings(base_url=url, api_key=key, **settings)
    return Hyperstack(clock=clock, settings=chosen, environment={})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(HyperstackMarket(PRICES, [*FLAVORS, CPU, *ODD])) as running:
        yield running


class TestHyperstackIsAProvider(ProviderContract):
    plugin = "hyperstack"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> Hyperstack:
        return hyperstack(server.url, clock)


class TestFaultsOfHyperstack(HttpFaults):
    logs_in = True

    def market(self) -> Market:
        return HyperstackMarket(PRICES, FLAVORS)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Hyperstack:
        return hyperstack(url, clock, **settings)


def rows(server: FakeServer) -> list[Offer | SkippedRow]:
    return list(hyperstack(server.url, ManualClock(NOW)).offers(OfferQuery()))


def test_a_flavor_costs_its_gpus(server: FakeServer) -> None:
    found = {(row.region, row.machine, row.capacity_type.value): row for row in rows(server) if isinstance(row, Offer)}
    assert {key: row.price for key, row in found.items()} == {
        ("NORWAY-1", "H100-PCIe:1", "on_demand"): Money.usd("1.9"),
        ("CANADA-1", "H100-PCIe:8", "on_demand"): Money.usd("15.2"),
        ("CANADA-1", "H100-PCIe:1", "spot"): Money.usd("1.52"),
        ("CANADA-1", "H100:8", "on_demand"): Money.usd("17.28"),
        ("CANADA-1", "A100-80GB:2", "on_demand"): Money.usd("2.8"),
        ("NORWAY-1", "A6000:1", "on_demand"): Money.usd("0.5"),
        ("NORWAY-1", "L40:1", "on_demand"): Money.usd("1"),
    }
    assert found["CANADA-1", "H100-PCIe:8", "on_demand"].availability is Availability.UNAVAILABLE
    assert found["CANADA-1", "A100-80GB:2", "on_demand"].interconnect is Interconnect.NVLINK
    assert found["CANADA-1", "H100-PCIe:8", "on_demand"].interconnect is Interconnect.PCIE


def test_what_cannot_be_an_offer_is_counted(server: FakeServer) -> None:
    assert sorted(row.reason for row in rows(server) if isinstance(row, SkippedRow)) == [
        "no_price",
        "unknown_accelerator",
    ]


def test_two_prices_of_one_gpu_are_told() -> None:
    twice = [*PRICES, HyperstackPrice(name="L40", value=0.1)]
    with FakeServer(HyperstackMarket(twice, FLAVORS)) as server:
        assert [row.reason for row in rows(server) if isinstance(row, SkippedRow)] == ["conflicting_duplicate"]


def test_without_a_key_it_says_which() -> None:
    with pytest.raises(NoLogin, match="API key") as caught:
        list(Hyperstack(clock=ManualClock(NOW), environment={}).offers(OfferQuery()))
    assert "HYPERSTACK_API_KEY" in caught.value.hint


def answers() -> JsonAnswers:
    market = HyperstackMarket(PRICES, FLAVORS)
    body = {"status": True, "message": "Success", "data": market.groups()}
    return JsonAnswers(
        lambda url, clock: hyperstack(url, clock, attempts=1),
        market,
        "/core/flavors",
        body,
        lambda body: body["data"],
        fair=r"flavors\.\d+\.deleted|flavors\.= \[\]",
        prices=r"gpu|count|row \d+: (= |$)|flavors",
    )


def prices() -> JsonAnswers:
    """The price book damaged instead; all but its GPUs left out, so that each row is an offer."""
    market = HyperstackMarket(PRICES, FLAVORS)
    body = [one.model_dump() for one in PRICES if one.end_time is None and "vCPU" not in one.name]
    return JsonAnswers(
        lambda url, clock: hyperstack(url, clock, attempts=1), market, "/pricebook", body, lambda body: body
    )
