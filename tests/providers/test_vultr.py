"""Vultr's plans become offers, one a region and capacity type; a part of a card is that part."""

from collections.abc import Iterator
from typing import Any

import pytest

from broker.core.market.offers import CapacityType, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.vultr import Vultr, VultrSettings
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.mutate import JsonAnswers
from tests.fakes.server import FakeServer, HttpAnswer, Market
from tests.fakes.vultr import VultrCost, VultrMarket, VultrMetal, VultrPlan, vultr_cost

L40S = VultrPlan(
    id="vcg-l40s-16c-180g-48vram",
    gpu_type="NVIDIA_L40S",
    gpu_vram_gb=48,
    locations=["ewr", "ord"],
    location_cost={"ord": VultrCost(**vultr_cost(1.8, 0.9))},
    deploy_preemptible=True,
    **vultr_cost(1.671, 0.848),
)
HALF = VultrPlan(
    id="vcg-a100-6c-60g-40vram", gpu_type="NVIDIA_A100", gpu_vram_gb=40, locations=["ewr"], **vultr_cost(1.199)
)
TWENTIETH = VultrPlan(
    id="vcg-a100-1c-6g-4vram", gpu_type="NVIDIA_A100", gpu_vram_gb=4, locations=["ewr"], **vultr_cost(0.123)
)
WHOLE = VultrPlan(
    id="vcg-a100-12c-120g-80vram", gpu_type="NVIDIA_A100", gpu_vram_gb=80, locations=["ewr"], **vultr_cost(2.397)
)
PLAIN = VultrPlan(id="vc2-1c-1gb", gpu_type="", gpu_vram_gb=0, type="vc2", locations=["ewr"], **vultr_cost(0.007))
H100 = VultrMetal(id="vbm-112c-2048gb-8-h100-gpu", locations=["ewr"], **vultr_cost(23.92))
A100S = VultrMetal(
    id="vbm-112c-2048gb-8-a100-gpu",
    locations=["ord"],
    deploy_ondemand=False,
    deploy_preemptible=True,
    **vultr_cost(22.0, 9.6),
)
GH200 = VultrMetal(id="vbm-72c-480gb-gh200-gpu", locations=["ewr"], **vultr_cost(1.99))
PLANS, METAL = [L40S, HALF, TWENTIETH, WHOLE, PLAIN], [H100, A100S, GH200]


def vultr(url: str, clock: ManualClock, **settings: Any) -> Vultr:
    return Vultr(clock=clock, settings=VultrSettings(base_url=url, **settings))


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(VultrMarket(PLANS, METAL)) as running:
        yield running


class TestVultrIsAProvider(ProviderContract):
    plugin = "vultr"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> Vultr:
        return vultr(server.url, clock)


class TestFaultsOfVultr(HttpFaults):
    def market(self) -> Market:
        return VultrMarket(PLANS, METAL)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Vultr:
        return vultr(url, clock, **settings)


def rows(server: FakeServer) -> list[Offer | SkippedRow]:
    return list(vultr(server.url, ManualClock(NOW)).offers(OfferQuery()))


def prices(found: list[Offer | SkippedRow]) -> dict[tuple[str, str, str], Money | None]:
    return {(row.region, row.machine, row.capacity_type.value): row.price for row in found if isinstance(row, Offer)}


def test_what_is_sold_is_an_offer_at_the_price_of_its_region(server: FakeServer) -> None:
    found = rows(server)
    assert prices(found) == {
        ("ewr", "L40S:1", "on_demand"): Money.usd("1.671"),
        ("ewr", "L40S:1", "spot"): Money.usd("0.848"),
        ("ord", "L40S:1", "on_demand"): Money.usd("1.8"),
        ("ord", "L40S:1", "spot"): Money.usd("0.9"),
        ("ewr", "A100-80GB-1of2:1", "on_demand"): Money.usd("1.199"),
        ("ewr", "A100-80GB-1of20:1", "on_demand"): Money.usd("0.123"),
        ("ewr", "A100-80GB:1", "on_demand"): Money.usd("2.397"),
        ("ewr", "H100:8", "on_demand"): Money.usd("23.92"),
        ("ord", "A100-80GB:8", "spot"): Money.usd("9.6"),
        ("ewr", "GH200:1", "on_demand"): Money.usd("1.99"),
    }
    assert not [row for row in found if isinstance(row, SkippedRow)]
    [whole] = [row for row in found if isinstance(row, Offer) and row.machine == "H100:8"]
    assert (whole.cpus, whole.memory_gib, whole.capacity_type) == (224, 2048, CapacityType.ON_DEMAND)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"gpu_type": "NVIDIA_X900"}, "unknown_accelerator"),
        ({"gpu_vram_gb": 60}, "part_of_an_accelerator"),
        ({"gpu_vram_gb": None}, "malformed_row"),
        ({"gpu_count": 2}, "malformed_row"),
        ({"locations": []}, "no_region"),
        ({"locations": "ewr"}, "malformed_row"),
        ({"deploy_ondemand": False}, "not_sold"),
        ({"deploy_ondemand": "yes"}, "malformed_row"),
        ({"hourly_cost": 0}, "invalid_price"),
    ],
)
def test_what_is_no_offer_is_counted(damage: dict[str, Any], reason: str) -> None:
    row = {**WHOLE.model_dump(), **damage}
    with FakeServer(lambda _: HttpAnswer(200, {"plans": [row], "plans_metal": []})) as server:
        assert [found.reason for found in rows(server) if isinstance(found, SkippedRow)] == [reason]


def test_bare_metal_that_tells_its_cards_and_not_their_memory_is_read() -> None:
    row = {**A100S.model_dump(), "id": "vbm-256c-3072gb-8-b200-gpu", "gpu_type": "NVIDIA_B200", "gpu_count": 8}
    with FakeServer(lambda _: HttpAnswer(200, {"plans": [], "plans_metal": [row]})) as server:
        assert prices(rows(server)) == {("ord", "B200:8", "spot"): Money.usd("9.6")}


def test_all_pages_are_read() -> None:
    with FakeServer(VultrMarket(PLANS, METAL, a_page=2)) as server:
        assert len(prices(rows(server))) == 10
        assert len(server.requests) == 5


def answers() -> JsonAnswers:
    body = {"plans": [one.model_dump() for one in (L40S, HALF, TWENTIETH, WHOLE)]}
    return JsonAnswers(
        lambda url, clock: vultr(url, clock, attempts=1),
        VultrMarket([], []),
        "/plans",
        body,
        lambda body: body["plans"],
        fair=r"locations\.\d+\.deleted|deploy_ondemand\.= False|deploy_preemptible\.(deleted|= False)",
        prices=r"(?i)cost|row \d+: (= |$)",
    )
