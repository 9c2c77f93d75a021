"""The GCP provider as a whole: the contract, faults, settings, and what it does not import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.core.clock import ManualClock
from providers.gcp.provider import Gcp
from tests.contracts.http_faults import HttpFaults
from tests.contracts.provider_contract import ProviderContract
from tests.fakes.gcp_cloud import GcpCloud
from tests.fakes.gcp_rows import small_market
from tests.fakes.server import Market
from tests.providers.gcp.conftest import gcp


class TestGcpIsAProvider(ProviderContract):
    plugin = "gcp"

    @pytest.fixture
    def provider(self, make: Callable[..., Gcp], market: GcpCloud) -> Gcp:
        return make()


class TestFaultsOfGcp(HttpFaults):
    logs_in = True

    def market(self) -> Market:
        return small_market(GcpCloud())

    def make(self, url: str, clock: ManualClock, **settings: Any) -> Gcp:
        return gcp(url, clock, **settings)
