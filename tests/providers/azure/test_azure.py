"""The Azure provider as a whole: the contract with and without a login, its settings, what it does not import, and a
sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.errors import BrokerError, InvalidInput
from broker.core.values.clock import ManualClock
from providers.azure.provider import Azure
from providers.registry import build
from tests.contracts.provider_contract import ProviderContract
from tests.contracts.sweeping import LONG_AGO, check_a_sweep
from tests.fakes.server import FakeServer
from tests.providers.azure.conftest import H100, rows_of

if TYPE_CHECKING:
    from tests.fakes.azure_cloud import AzureCloud


class TestAzureWithALogin(ProviderContract):
    plugin = "azure"

    @pytest.fixture
    def provider(self, make: Callable[..., Azure], cloud: AzureCloud) -> Azure:
        from tests.fakes.azure_cloud import closed, reservation

        cloud.groups = {"open": "Open", "named": None}
        cloud.reservations = {
            "open": [reservation("open", "one", H100, 2, 1)],
            "named": [reservation("named", "two", H100, 1, 1)],
        }
        cloud.scores = {("eastus", H100): ("High", True), ("westeurope", H100): ("Low", False)}
        cloud.evictions = [{"id": "1", "skuName": H100.lower(), "location": "eastus", "spotEvictionRate": "5-10"}]
        cloud.skus[2]["restrictions"] = [closed("westeurope")]
        return make()


@pytest.mark.parametrize(
    "settings",
    [
        {"management_url": "http://management.example"},
        {"retail_prices_url": "ftp://x"},
        {"subscription_id": "mine"},
        {"regions": "east us"},
        {"colour": "red"},
    ],
)
def test_settings_that_make_no_sense_are_named(clock: ManualClock, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(settings))):
        build("azure", clock=clock, settings=settings)


def test_several_failures_are_told_as_one(make: Callable[..., Azure], cloud: AzureCloud, prices: FakeServer) -> None:
    from tests.fakes.server import HttpAnswer

    cloud.answers = {
        "usages": HttpAnswer(500, b""),
        "placementScores": HttpAnswer(403, {"error": {"code": "Forbidden"}}),
    }
    with pytest.raises(BrokerError) as caught:
        rows_of(make())
    for part in ("eastus: usages", "westeurope: usages", "spot placement scores"):
        assert part in str(caught.value)


def test_a_sweep_ends_orphans_and_nothing_else(azure: Azure, cloud: AzureCloud, tmp_path: Path) -> None:
    from tests.fakes.azure_cloud import machine

    def start(tags: Mapping[str, str]) -> None:
        made = {"timeCreated": LONG_AGO.isoformat()}
        cloud.machines.append(machine(f"machine-{len(cloud.machines)}", tags=dict(tags), properties=made))

    check_a_sweep(azure, tmp_path, start, just_started=False)
    assert cloud.machines[-1]["tags"] == {"team": "somebody-elses"}
