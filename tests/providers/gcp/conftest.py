"""A Google Cloud on loopback, and an environment in which nobody is logged in to the real one."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from providers.gcp.login import GcpLogin
from providers.gcp.provider import Gcp
from providers.gcp.settings import GcpSettings
from tests.contracts.provider_contract import NOW
from tests.fakes.gcp_cloud import GcpCloud
from tests.fakes.gcp_rows import IOWA, machine_type, parts, put_machines, small_market
from tests.fakes.server import FakeServer


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("googleapiclient", reason="the discovery documents are not installed (the extra `dev`)")
    pytest.importorskip("google.cloud.compute_v1", reason="Google's SDKs are not installed (the extra `gcp`)")
    for variable in [name for name in os.environ if name.startswith(("GOOGLE_", "GCLOUD_", "CLOUDSDK_", "GCE_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "no-gcloud"))
    # google-auth asks Google, beside each call of a service account, from where it may be used: not from here.
    from google.oauth2.service_account import Credentials as ServiceAccount

    monkeypatch.setattr(ServiceAccount, "_is_regional_access_boundary_lookup_required", lambda self: False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def cloud() -> GcpCloud:
    """Google Cloud, empty."""
    return GcpCloud()


@pytest.fixture
def market(cloud: GcpCloud) -> GcpCloud:
    """Google Cloud with a small market in it."""
    return small_market(cloud)


@pytest.fixture
def l4(cloud: GcpCloud) -> GcpCloud:
    """One G2 machine with its parts on demand, at $0.706832 an hour."""
    zone = f"{IOWA}-a"
    put_machines(cloud, zone, machine_type("g2-standard-4", zone, 4, "16", "nvidia-l4", 1))
    cloud.skus += parts("G2", "Nvidia L4 GPU", "0.024988", "0.002927", "0.560040")
    return cloud


@pytest.fixture
def server(cloud: GcpCloud) -> Iterator[FakeServer]:
    with FakeServer(cloud) as running:
        yield running


def gcp(url: str, clock: ManualClock, login: GcpLogin | None = None, **settings: Any) -> Gcp:
    """A provider that asks the fake at ``url``, with google-auth's own anonymous credentials."""
    known = {"compute_url": url, "billing_url": url, "project": "team-ml", "anonymous": True, "attempts": 1}
    return Gcp(clock=clock, settings=GcpSettings(**{**known, "timeout_seconds": 60, **settings}), login=login)


@pytest.fixture
def make(server: FakeServer, clock: ManualClock) -> Callable[..., Gcp]:
    """Makes a provider that asks the fake; settings by keyword."""
    return lambda **settings: gcp(server.url, clock, **settings)


def rows_of(provider: Gcp, query: OfferQuery | None = None) -> list[Offer | SkippedRow]:
    return list(provider.offers(query or OfferQuery()))


def offers_of(provider: Gcp, query: OfferQuery | None = None) -> dict[str, Offer]:
    return {row.pool: row for row in rows_of(provider, query) if isinstance(row, Offer)}


def skipped_by(provider: Gcp) -> list[SkippedRow]:
    return [row for row in rows_of(provider) if isinstance(row, SkippedRow)]


def reasons(provider: Gcp, of: str = "") -> list[str]:
    return [row.reason for row in skipped_by(provider) if of in row.detail]


def price_of(provider: Gcp, pool: str) -> Money | None:
    offer = offers_of(provider).get(pool)
    return offer.price if offer else None
