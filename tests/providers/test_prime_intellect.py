"""Prime Intellect's machines become offers."""

from collections.abc import Iterator
from typing import Any

import pytest

from broker.core.errors import NoLogin
from broker.core.market.offers import Availability, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.prime_intellect import PrimeIntellect, PrimeIntellectSettings
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.mutate import JsonAnswers
from tests.fakes.prime_intellect import PRIME_KEY, PrimeMachine, PrimeMarket, PrimePrices
from tests.fakes.server import FakeServer, HttpAnswer, Market


def machine(id: str, gpu: str, gib: int, usd: float, cloud: str = "hyperstack", **more: Any) -> PrimeMachine:
    more.setdefault("prices", PrimePrices(onDemand=usd))
    return PrimeMachine(cloudId=id, gpuType=gpu, gpuMemory=gib, provider=cloud, **more)


H100 = machine("n3-H100x8", "H100_80GB", 80, 19.2, gpuCount=8, dataCenter="CANADA-1", stockStatus="Low")
PCIE = machine("n3-H100x1", "H100_80GB", 80, 1.9, socket="PCIe", dataCenter="NORWAY-1")
COMMUNITY = machine(
    "abc", "RTX4090_24GB", 24, 0, "vast", socket="PCIe", prices=PrimePrices(communityPrice=0.35, isVariable=True)
)
SPOT = machine("xyz", "A100_80GB", 80, 0.9, "runpod", isSpot=True, stockStatus="Unavailable", dataCenter="EU-1")
MACHINES = (H100, PCIE, COMMUNITY, SPOT)


def prime(url: str, clock: ManualClock, key: str = PRIME_KEY, **settings: Any) -> PrimeIntellect:
    chosen = PrimeIntellectSettings(base_url=url, api_key=key, **settings)
    return PrimeIntellect(clock=clock, settings=chosen, environment={})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(PrimeMarket(MACHINES)) as running:
        yield running


class TestPrimeIntellectIsAProvider(ProviderContract):
    plugin = "prime_intellect"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> PrimeIntellect:
        return prime(server.url, clock)


class TestFaultsOfPrimeIntellect(HttpFaults):
    logs_in = True

    def market(self) -> Market:
        return PrimeMarket(MACHINES)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> PrimeIntellect:
        return prime(url, clock, **settings)


def rows(server: FakeServer) -> list[Offer | SkippedRow]:
    return list(prime(server.url, ManualClock(NOW)).offers(OfferQuery()))


def test_each_machine_of_a_cloud_is_an_offer(server: FakeServer) -> None:
    found = {(row.region, row.machine, row.capacity_type.value): row for row in rows(server) if isinstance(row, Offer)}
    assert {key: row.price for key, row in found.items()} == {
        ("hyperstack.CANADA-1", "H100:8", "on_demand"): Money.usd("19.2"),
        ("hyperstack.NORWAY-1", "H100-PCIe:1", "on_demand"): Money.usd("1.9"),
        ("vast.US", "RTX4090:1", "on_demand"): Money.usd("0.35"),
        ("runpod.EU-1", "A100-80GB:1", "spot"): Money.usd("0.9"),
    }
    eight = found["hyperstack.CANADA-1", "H100:8", "on_demand"]
    assert (eight.availability, eight.score, eight.interconnect) == (Availability.AVAILABLE, 0.3, Interconnect.NVLINK)
    assert (eight.cpus, eight.memory_gib) == (26, 200)
    assert found["runpod.EU-1", "A100-80GB:1", "spot"].availability is Availability.UNAVAILABLE


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"prices": {"onDemand": 2.0, "currency": "EUR"}}, "foreign_currency"),
        ({"prepaidTime": 720}, "prepaid"),
        ({"stockStatus": "soon"}, "malformed_row"),
        ({"isSpot": 1}, "malformed_row"),
        ({"gpuType": "V900_80GB"}, "unknown_accelerator"),
        ({"prices": {"onDemand": None, "currency": "USD"}}, "no_price"),
    ],
)
def test_what_is_no_offer_is_counted(damage: dict[str, Any], reason: str) -> None:
    row = {**H100.model_dump(), **damage}
    with FakeServer(lambda _: HttpAnswer(200, {"items": [row], "totalCount": 1})) as server:
        assert [found.reason for found in rows(server) if isinstance(found, SkippedRow)] == [reason]


def test_all_pages_are_read_and_missing_ones_are_told() -> None:
    many = [machine(f"m{number}", "L4_24GB", 24, 0.5, socket="PCIe") for number in range(250)]
    with FakeServer(PrimeMarket(many)) as server:
        assert len(rows(server)) == 250
    with FakeServer(lambda _: HttpAnswer(200, {"items": [], "totalCount": 3})) as server:
        assert [row.reason for row in rows(server) if isinstance(row, SkippedRow)] == ["incomplete_answer"]


def test_without_a_key_it_says_which() -> None:
    with pytest.raises(NoLogin, match="API key") as caught:
        list(PrimeIntellect(clock=ManualClock(NOW), environment={}).offers(OfferQuery()))
    assert "PRIME_API_KEY" in caught.value.hint


def answers() -> JsonAnswers:
    body = {"items": [one.model_dump() for one in MACHINES], "totalCount": len(MACHINES)}
    return JsonAnswers(
        lambda url, clock: prime(url, clock, attempts=1),
        PrimeMarket(MACHINES),
        "/api/v1/availability/gpus",
        body,
        lambda body: body["items"],
    )
