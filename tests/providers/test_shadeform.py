"""Shadeform's machine types become offers, one a region."""

from collections.abc import Iterator
from typing import Any

import pytest

from broker.core.errors import NoLogin
from broker.core.market.offers import Availability, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.shadeform import Shadeform, ShadeformSettings
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.mutate import JsonAnswers
from tests.fakes.server import FakeServer, HttpAnswer, Market
from tests.fakes.shadeform import (
    SHADEFORM_KEY,
    ShadeformConfiguration,
    ShadeformMarket,
    ShadeformRegion,
    ShadeformType,
)


def machine(cloud: str, kind: str, gpu: str, gib: int, cents: int, gpus: int = 1, **more: Any) -> ShadeformType:
    return ShadeformType(
        cloud=cloud,
        shade_instance_type=gpu,
        cloud_instance_type=kind,
        configuration=ShadeformConfiguration(gpu_type=gpu, vram_per_gpu_in_gb=gib, num_gpus=gpus, **more),
        hourly_price=cents,
        availability=[ShadeformRegion(region="us-central-1"), ShadeformRegion(region="us-east-2", available=False)],
    )


H100S = machine("crusoe", "h100-80gb-sxm-ib.8x", "H100", 80, 3120, 8, interconnect="sxm5", nvlink=True)
A6000 = machine("hyperstack", "gpu_1x_a6000", "A6000", 48, 50)
A100 = machine("latitude", "g3.a100.large", "A100_80G", 80, 150)
PAIR = machine("massedcompute", "gpu_2x_l40s", "L40S", 48, 198, 2)
ODD = machine("acme", "voodoo", "Voodoo2", 8, 5), machine("acme", "free", "H100", 80, 0)


def shadeform(url: str, clock: ManualClock, key: str = SHADEFORM_KEY, **settings: Any) -> Shadeform:
    chosen = ShadeformSettings(base_url=url, api_key=key, **settings)
    return Shadeform(clock=clock, settings=chosen, environment={})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(ShadeformMarket(H100S, A6000, A100, PAIR, *ODD)) as running:
        yield running


class TestShadeformIsAProvider(ProviderContract):
    plugin = "shadeform"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> Shadeform:
        return shadeform(server.url, clock)


class TestFaultsOfShadeform(HttpFaults):
    logs_in = True

    def market(self) -> Market:
        return ShadeformMarket(H100S, A6000)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Shadeform:
        return shadeform(url, clock, **settings)


def rows(server: FakeServer) -> list[Offer | SkippedRow]:
    return list(shadeform(server.url, ManualClock(NOW)).offers(OfferQuery()))


def test_each_region_of_a_cloud_is_an_offer_at_the_price_of_the_machine(server: FakeServer) -> None:
    found = {(row.region, row.machine): row for row in rows(server) if isinstance(row, Offer)}
    eight = found["crusoe.us-central-1", "H100:8"]
    assert (eight.provider, eight.price) == ("shadeform", Money.usd("31.2"))
    assert (eight.availability, eight.interconnect) == (Availability.AVAILABLE, Interconnect.NVLINK)
    assert found["crusoe.us-east-2", "H100:8"].availability is Availability.UNAVAILABLE
    assert found["latitude.us-central-1", "A100-80GB:1"].price == Money.usd("1.5")
    assert found["massedcompute.us-central-1", "L40S:2"].interconnect is Interconnect.PCIE
    assert all(offer.engine is None for offer in found.values())


def test_what_cannot_be_an_offer_is_counted(server: FakeServer) -> None:
    skipped = [row.reason for row in rows(server) if isinstance(row, SkippedRow)]
    assert sorted(skipped) == ["invalid_price"] * 2 + ["unknown_accelerator"] * 2


def test_the_price_of_spot_capacity_is_not_told() -> None:
    row: dict[str, Any] = A6000.model_dump()
    row["availability"][0]["rental_type"] = "spot"
    with FakeServer(lambda _: HttpAnswer(200, {"instance_types": [row]})) as server:
        found = rows(server)
    assert [row.reason for row in found if isinstance(row, SkippedRow)] == ["price_not_told"]
    assert [row.region for row in found if isinstance(row, Offer)] == ["hyperstack.us-east-2"]


def test_without_a_key_it_says_which() -> None:
    with pytest.raises(NoLogin, match="API key") as caught:
        list(Shadeform(clock=ManualClock(NOW), environment={}).offers(OfferQuery()))
    assert "SHADEFORM_API_KEY" in caught.value.hint


def answers() -> JsonAnswers:
    body = {"instance_types": [one.model_dump() for one in (H100S, A6000, A100, PAIR)]}
    return JsonAnswers(
        lambda url, clock: shadeform(url, clock, attempts=1),
        ShadeformMarket(),
        "/v1/instances/types",
        body,
        lambda body: body["instance_types"],
        fair=r"availability\.\d+\.deleted",
    )
