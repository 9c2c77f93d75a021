"""A subscription behind TLS on loopback, prices beside it, and an environment in which nobody is logged in to Azure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from providers.azure.login import AzureLogin
from providers.azure.provider import Azure
from providers.azure.settings import AzureSettings
from tests.contracts.provider_contract import NOW
from tests.fakes.azure_retail import FakeRetailPrices, RetailItem
from tests.fakes.server import FakeServer

if TYPE_CHECKING:
    from tests.fakes.azure_cloud import AzureCloud

H100, T4 = "Standard_ND96isr_H100_v5", "Standard_NC4as_T4_v3"
_VARIABLES = (
    "AZURE_SUBSCRIPTION_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_AUTHORITY_HOST",
    "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_FEDERATED_TOKEN_FILE", "AZURE_USERNAME", "AZURE_PASSWORD",
    "IDENTITY_ENDPOINT", "MSI_ENDPOINT", "AZURE_TOKEN_CREDENTIALS",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in _VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AZURE_CONFIG_DIR", str(tmp_path / "no-azure"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def meters() -> list[RetailItem]:
    """H100 machines in two regions on demand, as spot and for a year; a T4 in one of them."""
    found = []
    h100s = partial(RetailItem, armSkuName=H100, productName="Virtual Machines NDsr H100 v5 Series")
    for region in ("eastus", "westeurope"):
        h100 = partial(h100s, armRegionName=region)
        plain, spot = "ND96isrH100v5", "ND96isrH100v5 Spot"
        found += [
            h100(meterName=plain, skuName=plain, retailPrice=Decimal("98.32")),
            h100(meterName=spot, skuName=spot, retailPrice=Decimal("18.169536")),
            h100(
                meterName=plain, skuName=plain, retailPrice=Decimal("551155.0"), type="Reservation",
                reservationTerm="1 Year",
            ),
        ]  # fmt: skip
    t4 = RetailItem(
        armSkuName=T4, productName="Virtual Machines NCasT4_v3 Series", armRegionName="eastus",
        meterName="NC4as T4 v3", skuName="NC4as T4 v3", retailPrice=Decimal("0.526"),
    )  # fmt: skip
    return [*found, t4]


@pytest.fixture(scope="session")
def _prices() -> Iterator[FakeServer]:
    with FakeServer(FakeRetailPrices()) as server:
        yield server


@pytest.fixture
def prices(_prices: FakeServer) -> FakeServer:
    """The price list, with the small market of `meters` in it."""
    _prices.reset()
    _prices.market = FakeRetailPrices(*meters())
    return _prices


@pytest.fixture(scope="session")
def _tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeServer, Path]]:
    pytest.importorskip("azure.mgmt.compute", reason="Azure's SDK is not installed (the extra `azure`)")
    pytest.importorskip("trustme", reason="trustme is not installed (the extra `dev`)")
    from tests.fakes.azure_cloud import AzureCloud, serve_tls

    with serve_tls(AzureCloud(), tmp_path_factory.mktemp("tls")) as running:
        yield running


@pytest.fixture
def server(_tls: tuple[FakeServer, Path]) -> FakeServer:
    """Azure Resource Manager's server; the world behind it is the fixture `cloud`."""
    _tls[0].reset()
    return _tls[0]


@pytest.fixture
def cloud(server: FakeServer) -> AzureCloud:
    """A subscription in which everything can be had and nothing is used."""
    from tests.fakes.azure_cloud import AzureCloud, sku, usage

    made = AzureCloud(zones={"eastus": {"1": "eastus-az3", "2": "eastus-az1"}, "westeurope": {"1": "westeurope-az1"}})
    for region in made.zones:
        made.skus.append(sku(H100, region, "standardNDSH100v5Family", zones=("1", "2", "3")))
        made.skus.append(sku("Standard_D2_v3", region, "standardDv3Family"))
        made.usages[region] = [
            usage("availabilitySets", 0, 2500),
            usage("cores", 10, 1000),
            usage("lowPriorityCores", 0, 500),
            usage("standardNDSH100v5Family", 96, 300),
            usage("standardDv3Family", 2, 10),
        ]
    made.skus.append(sku(T4, "eastus", "Standard NCASv3_T4 Family"))
    made.usages["eastus"].append(usage("Standard NCASv3_T4 Family", 0, 8))
    server.market = made
    return made


@pytest.fixture
def settings(_tls: tuple[FakeServer, Path], prices: FakeServer) -> Callable[..., AzureSettings]:
    """Settings that name the fakes, and others by keyword."""

    def made(**more: Any) -> AzureSettings:
        known = {
            "retail_prices_url": f"{prices.url}/api/retail/prices",
            "management_url": _tls[0].url,
            "ca_bundle": _tls[1],
            "attempts": 1,
            "timeout_seconds": 60,
        }
        return AzureSettings(**{**known, **more})

    return made


@pytest.fixture
def make(cloud: AzureCloud, settings: Callable[..., AzureSettings], clock: ManualClock) -> Callable[..., Azure]:
    """An Azure provider with a login to the fake subscription; settings by keyword. ``credential``: one's own."""
    from tests.fakes.azure_cloud import SUBSCRIPTION, Credential

    def made(credential: Any = None, **more: Any) -> Azure:
        known = settings(**more)
        login = AzureLogin(credential or Credential(), SUBSCRIPTION, known, clock)
        # Prices come in the clear from loopback: the bundle is for the other endpoint only.
        return Azure(clock=clock, settings=known, login=login)

    return made


@pytest.fixture
def azure(make: Callable[..., Azure]) -> Azure:
    return make()


def rows_of(provider: Azure, query: OfferQuery | None = None) -> list[Offer | SkippedRow]:
    return list(provider.offers(query or OfferQuery()))


def offers_in(rows: list[Offer | SkippedRow]) -> dict[tuple[str, str, str], Offer]:
    """By region, instance type and how they are had; of terms and what is held only one each."""
    return {(row.region, row.instance_type, row.capacity_type.value): row for row in rows if isinstance(row, Offer)}
