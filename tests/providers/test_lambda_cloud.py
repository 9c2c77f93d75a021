"""Lambda's instance types."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from broker.core.errors import LoginMissing
from broker.core.market.offers import Availability, Interconnect, Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.lambda_cloud import LambdaCloud, LambdaCloudSettings
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import NOW, ProviderContract
from tests.fakes.lambda_cloud import KEY, Item, LambdaInstanceType, LambdaMarket, Region, Specs
from tests.fakes.mutate import JsonAnswers
from tests.fakes.server import FakeServer, HttpAnswer, Market


def item(name: str, described: str, cents: int, gpus: int, *regions: str) -> Item:
    specs = Specs(vcpus=26 * gpus or 4, memory_gib=225 * (gpus or 1), gpus=gpus)
    kind = LambdaInstanceType(name=name, gpu_description=described, price_cents_per_hour=cents, specs=specs)
    return Item(instance_type=kind, regions_with_capacity_available=[Region(name=region) for region in regions])


H100S = item("gpu_8x_h100_sxm5", "H100 (80 GB SXM5)", 3192, 8, "us-east-1", "us-west-2")
PCIE = item("gpu_2x_h100_pcie", "H100 (80 GB PCIe)", 658, 2, "us-west-3")
GONE = item("gpu_1x_gh200", "GH200 (96 GB)", 229, 1)
CPU = item("cpu_4x_general", "N/A", 20, 0, "us-east-1")
ODD = [item("gpu_1x_voodoo2", "Voodoo2 (8 GB)", 5, 1, "us-east-1"), item("gpu_1x_a10", "A10 (24 GB PCIe)", 0, 1, "x")]


def lambda_cloud(url: str, clock: ManualClock, key: str = KEY, **settings: Any) -> LambdaCloud:
    chosen = LambdaCloudSettings(base_url=url, api_key=key, **settings)
    return LambdaCloud(clock=clock, settings=chosen, environment={})


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(LambdaMarket(H100S, PCIE, GONE, CPU, *ODD)) as running:
        yield running


class TestLambdaCloudIsAProvider(ProviderContract):
    plugin = "lambda"

    @pytest.fixture
    def provider(self, clock: ManualClock, server: FakeServer) -> LambdaCloud:
        return lambda_cloud(server.url, clock)


class TestFaultsOfLambdaCloud(HttpFaults):
    logs_in = True

    def market(self) -> Market:
        return LambdaMarket(H100S, GONE)

    def make(self, url: str, clock: ManualClock, **settings: Any) -> LambdaCloud:
        return lambda_cloud(url, clock, **settings)


def rows(server: FakeServer) -> list[Offer | SkippedRow]:
    return list(lambda_cloud(server.url, ManualClock(NOW)).offers(OfferQuery()))


def offers(server: FakeServer) -> dict[tuple[str, str], Offer]:
    return {(row.instance_type, row.region): row for row in rows(server) if isinstance(row, Offer)}


def test_cents_become_dollars(server: FakeServer) -> None:
    found = offers(server)
    assert found["gpu_8x_h100_sxm5", "us-east-1"].price == Money.usd("31.92")
    assert found["gpu_8x_h100_sxm5", "us-east-1"].price_per_gpu == Money.usd("3.99")
    assert found["cpu_4x_general", "us-east-1"].machine == "cpu"


def test_there_is_an_offer_for_every_region_with_capacity(server: FakeServer) -> None:
    found = offers(server)
    assert {region for name, region in found if name == "gpu_8x_h100_sxm5"} == {"us-east-1", "us-west-2"}
    eight, two = found["gpu_8x_h100_sxm5", "us-east-1"], found["gpu_2x_h100_pcie", "us-west-3"]
    assert (eight.machine, eight.interconnect, eight.cpus, eight.memory_gib) == (
        "H100:8",
        Interconnect.NVLINK,
        208,
        1800,
    )
    assert (two.machine, two.interconnect) == ("H100-PCIe:2", Interconnect.PCIE)


def test_what_is_sold_out_is_kept_with_its_reason(server: FakeServer) -> None:
    gone = offers(server)["gpu_1x_gh200", "global"]
    assert (gone.availability, gone.unavailable_because) == (Availability.UNAVAILABLE, "no region has any")


def test_what_cannot_be_an_offer_is_counted(server: FakeServer) -> None:
    skipped = Counter(row.reason for row in rows(server) if isinstance(row, SkippedRow))
    assert skipped == {"unknown_accelerator": 1, "invalid_price": 1}


@pytest.mark.parametrize(
    ("described", "name", "card"),
    [
        ("A100 (40 GB SXM4)", "gpu_1x_a100_sxm4", "A100"),
        ("A100 (80 GB SXM4)", "gpu_8x_a100_80gb_sxm4", "A100-80GB"),
        ("A6000 (48 GB)", "gpu_4x_a6000", "A6000"),
        ("RTX A6000 (48 GB)", "gpu_1x_a6000", "A6000"),
        ("Quadro RTX 6000 (24 GB)", "gpu_1x_rtx6000", "RTX6000"),
        ("Tesla V100 (16 GB)", "gpu_8x_v100", "V100"),
        ("B200 (180 GB SXM6)", "gpu_8x_b200_sxm6", "B200"),
        ("", "gpu_1x_h100_pcie", "H100-PCIe"),
    ],
)
def test_cards_are_known_by_what_lambda_calls_them(described: str, name: str, card: str) -> None:
    with FakeServer(LambdaMarket(item(name, described, 129, 1, "us-east-1"))) as server:
        assert [row.accelerator for row in rows(server) if isinstance(row, Offer)] == [card]


def test_without_a_key_nobody_is_asked_and_the_variable_is_named(server: FakeServer) -> None:
    settings = LambdaCloudSettings(base_url=server.url)
    provider = LambdaCloud(clock=ManualClock(NOW), settings=settings, environment={})
    with pytest.raises(LoginMissing) as caught:
        list(provider.offers(OfferQuery()))
    assert "LAMBDA_API_KEY" in caught.value.hint
    assert "GPUBROKER_PROVIDERS__LAMBDA__API_KEY" in caught.value.hint
    assert server.requests == []
    found = LambdaCloud(clock=ManualClock(NOW), settings=settings, environment={"LAMBDA_API_KEY": KEY})
    assert list(found.offers(OfferQuery()))


def test_a_wrong_key_is_a_missing_login_and_is_not_shown(server: FakeServer) -> None:
    with pytest.raises(LoginMissing) as caught:
        list(lambda_cloud(server.url, ManualClock(NOW), "wr0ng").offers(OfferQuery()))
    assert "wr0ng" not in f"{caught.value!r} {caught.value} {caught.value.hint}"
    assert "wr0ng" not in repr(LambdaCloudSettings(api_key="wr0ng"))


def test_one_region_that_makes_no_sense_leaves_the_others() -> None:
    row: dict[str, Any] = H100S.model_dump()
    row["regions_with_capacity_available"][0] = None
    with FakeServer(lambda _: HttpAnswer(200, {"data": {"gpu_8x_h100_sxm5": row}})) as server:
        found = rows(server)
    assert [row.region for row in found if isinstance(row, Offer)] == ["us-west-2"]
    assert [row.reason for row in found if isinstance(row, SkippedRow)] == ["malformed_row"]


def answers() -> JsonAnswers:
    items = [H100S, PCIE, GONE, CPU]
    return JsonAnswers(
        lambda_cloud,
        LambdaMarket(),
        "/api/v1/instance-types",
        {"data": {item.instance_type.name: item.model_dump() for item in items}},
        lambda body: body["data"],
        fair=r"regions_with_capacity_available\.(\d+\.deleted|= \[\])",
    )
