"""The Azure provider as a whole: the contract with and without a login, its settings, what it does not import, and a
sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.errors import BrokerError, InvalidInput
from broker.core.market.offers import OfferQuery
from broker.core.ports import HasCharges, HasReservations, RunsInstances
from broker.core.values.clock import ManualClock
from providers.azure.provider import Azure
from providers.registry import build
from tests.contracts.provider_contract import ProviderContract
from tests.contracts.sweeping import LONG_AGO, check_a_sweep
from tests.fakes.server import FakeServer
from tests.providers.azure.conftest import H100, offers_in, rows_of

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


def test_it_has_every_ability_that_azure_gives(azure: Azure) -> None:
    for ability in (HasReservations, RunsInstances, HasCharges):
        assert isinstance(azure, ability)


def test_the_addresses_are_settings(prices: FakeServer, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    from broker.settings import read_settings

    monkeypatch.setenv("GPUBROKER_PROVIDERS__AZURE__RETAIL_PRICES_URL", f"{prices.url}/api/retail/prices")
    monkeypatch.setenv("GPUBROKER_PROVIDERS__AZURE__MANAGEMENT_URL", "https://azure.proxy.example/arm")
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://me:pw@login.proxy.example")
    monkeypatch.setenv("GPUBROKER_PROVIDERS__AZURE__REGIONS", "eastus, westus3")
    provider = build("azure", clock=clock, settings=read_settings().providers["azure"])
    assert {row.region for row in offers_in(list(provider.offers(OfferQuery()))).values()} == {"eastus"}
    assert hasattr(provider, "describe_setup")
    told = provider.describe_setup()["endpoints"]
    assert {name: (place["url"], place["setting"]) for name, place in told.items()} == {
        "retail prices": (f"{prices.url}/api/retail/prices", "GPUBROKER_PROVIDERS__AZURE__RETAIL_PRICES_URL"),
        "management": ("https://azure.proxy.example/arm", "GPUBROKER_PROVIDERS__AZURE__MANAGEMENT_URL"),
        "authority": ("https://login.proxy.example", "AZURE_AUTHORITY_HOST"),
    }
    assert {place["tls"] for place in told.values() if "tls" in place} == {"GPUBROKER_PROVIDERS__AZURE__CA_BUNDLE"}


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


def test_only_the_regions_asked_about_are_looked_at(azure: Azure, server: FakeServer) -> None:
    assert {region for region, *_ in offers_in(rows_of(azure, OfferQuery(regions=("west*",))))} == {"westeurope"}
    assert not any("eastus" in f"{request.path} {request.query}" for request in server.requests)


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
