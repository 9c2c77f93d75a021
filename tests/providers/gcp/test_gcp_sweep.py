"""A sweep over Google Cloud: machines are found by their labels and ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from providers.gcp.provider import Gcp
from tests.contracts.sweeping import LONG_AGO, check_a_sweep
from tests.fakes.gcp_cloud import GcpCloud

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
