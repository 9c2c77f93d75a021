"""The GCP provider as a whole: the contract, faults, settings, what it does not import, and a sweep."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.core.values.clock import ManualClock
from providers.gcp.provider import Gcp
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import ProviderContract
from tests.contracts.sweeping import LONG_AGO, check_a_sweep
from tests.fakes.gcp_cloud import GcpCloud
from tests.fakes.gcp_rows import IOWA, advice, quota, region, reservation, small_market
from tests.fakes.server import Market
from tests.providers.gcp.conftest import gcp


class TestGcpIsAProvider(ProviderContract):
    plugin = "gcp"

    @pytest.fixture
    def provider(self, make: Callable[..., Gcp], market: GcpCloud) -> Gcp:
        return make()


class TestGcpWithAllThatAnAccountHas(ProviderContract):
    plugin = "gcp"

    @pytest.fixture
    def provider(self, make: Callable[..., Gcp], market: GcpCloud) -> Gcp:
        zone = f"{IOWA}-a"
        market.page = 7
        market.advice = advice({"g2-standard-4": 0.9, "a3-highgpu-8g": 0.1}, "86400s")
        market.project["quotas"] = [quota("GPUS_ALL_REGIONS", 8)]
        market.regions = [region(IOWA, quota("NVIDIA_L4_GPUS", 8, 1), quota("PREEMPTIBLE_NVIDIA_T4_GPUS", 1))]
        market.reservations[zone] = [
            reservation("ours", "a3-highgpu-8g", 4, 1),
            reservation("full", "g2-standard-4", 1, 1),
            reservation("t4s", "n1-standard-8", 3, 0, card="nvidia-tesla-t4", cards=2),
        ]
        return make()


class TestFaultsOfGcp(HttpFaults):
    logs_in = True

    def market(self) -> Market:
        return small_market(GcpCloud())

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Gcp:
        return gcp(url, clock, **settings)


ZONE = "us-central1-a"


def test_a_sweep_ends_orphans_and_nothing_else(make: Callable[..., Gcp], cloud: GcpCloud, tmp_path: Path) -> None:
    cloud.instances[ZONE] = []

    def start(labels: Mapping[str, str]) -> None:
        name = f"machine-{len(cloud.instances[ZONE])}"
        cloud.instances[ZONE].append(
            {
                "kind": "compute#instance",
                "name": name,
                "status": "RUNNING",
                "labels": dict(labels),
                "machineType": f"zones/{ZONE}/machineTypes/a3-highgpu-8g",
                "creationTimestamp": LONG_AGO.isoformat(),
                "scheduling": {"provisioningModel": "SPOT", "preemptible": True},
            }
        )

    check_a_sweep(make(), tmp_path, start, just_started=False)
    assert [row["labels"] for row in cloud.instances[ZONE]][-1] == {"team": "somebody-elses"}
