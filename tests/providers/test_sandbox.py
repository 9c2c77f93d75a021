"""The simulated market as a provider."""

from datetime import timedelta

import pytest

from broker.core.market.offers import MoneyKind
from broker.core.values.clock import ManualClock
from broker.engines.sandbox.market import DEFAULT_START
from providers.sandbox import SandboxProvider, SandboxSettings
from tests.contracts.provider_contract import NOW, ProviderContract, poll


class TestSandboxIsAProvider(ProviderContract):
    plugin = "sandbox"

    @pytest.fixture
    def provider(self, clock: ManualClock) -> SandboxProvider:
        return SandboxProvider(clock=clock)


class TestTheDemoMarketIsAProvider(ProviderContract):
    plugin = "sandbox"

    @pytest.fixture
    def provider(self, clock: ManualClock) -> SandboxProvider:
        clock.time = DEFAULT_START + timedelta(hours=1)  # some pools are sold out by then
        return SandboxProvider(clock=clock, settings=SandboxSettings(scenario="demo", seed=3))


def test_everything_says_that_it_is_pretend() -> None:
    for offer in poll(SandboxProvider(clock=ManualClock(NOW))):
        assert {offer.provider, offer.source} == {"sandbox"}
        assert offer.engine == (None if offer.term_months else "sandbox")
        assert offer.money is MoneyKind.SANDBOX
        assert offer.max_age is not None
        for name in (offer.region, offer.zone or "", offer.instance_type):
            assert name.startswith("sandbox-")
