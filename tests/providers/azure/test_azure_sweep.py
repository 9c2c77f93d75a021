"""A sweep over Azure: machines are found by their tags and ended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from providers.azure.provider import Azure
from tests.contracts.sweeping import LONG_AGO, check_a_sweep

if TYPE_CHECKING:
    from tests.fakes.azure_cloud import AzureCloud


def test_a_sweep_ends_orphans_and_nothing_else(azure: Azure, cloud: AzureCloud, tmp_path: Path) -> None:
    from tests.fakes.azure_cloud import machine

    def start(tags: Mapping[str, str]) -> None:
        made = {"timeCreated": LONG_AGO.isoformat()}
        cloud.machines.append(machine(f"machine-{len(cloud.machines)}", tags=dict(tags), properties=made))

    check_a_sweep(azure, tmp_path, start, just_started=False)
    assert cloud.machines[-1]["tags"] == {"team": "somebody-elses"}
