"""The simulated market as a provider."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.core.errors import InvalidInput
from broker.core.market.offers import Availability, MoneyKind, Offer, OfferQuery
from broker.core.values.clock import ManualClock
from broker.simulation.market import DEFAULT_START
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


def test_it_is_asked_anew_before_each_decision() -> None:
    sandbox = SandboxProvider(clock=ManualClock(NOW))
    assert sandbox.refresh_before_deciding


def test_everything_says_that_it_is_pretend() -> None:
    for offer in poll(SandboxProvider(clock=ManualClock(NOW))):
        assert {offer.provider, offer.source} == {"sandbox"}
        assert offer.engine == (None if offer.term_months else "sandbox")
        assert offer.money is MoneyKind.SANDBOX
        assert offer.max_age is not None
        for name in (offer.region, offer.zone or "", offer.instance_type):
            assert name.startswith("sandbox-")


def test_prices_are_those_of_the_clock() -> None:
    clock = ManualClock(NOW)
    sandbox = SandboxProvider(clock=clock)
    before = {offer.pool: offer.price for offer in poll(sandbox)}
    clock.advance(timedelta(hours=6))
    after = {offer.pool: offer.price for offer in poll(sandbox)}
    assert before.keys() == after.keys()
    assert before != after
    assert all(offer.as_of == clock.now() for offer in poll(sandbox))


def test_the_same_three_settings_are_the_same_market() -> None:
    settings = SandboxSettings(scenario="demo", seed=11, starts_at=datetime(2026, 5, 1, tzinfo=UTC))
    first, second = (SandboxProvider(clock=ManualClock(NOW), settings=settings) for _ in range(2))
    assert poll(first) == poll(second)


def test_a_pool_sold_out_on_command_is_shown_with_its_reason() -> None:
    sandbox = SandboxProvider(clock=ManualClock(NOW))
    pool = poll(sandbox)[0].pool
    sandbox.world.faults.sold_out.add(pool)
    offer = next(offer for offer in poll(sandbox) if offer.pool == pool)
    assert (offer.availability, offer.slots) == (Availability.UNAVAILABLE, 0)
    assert offer.unavailable_because
    sandbox.world.faults.sold_out.clear()
    sandbox.world.faults.failing_launches.clear()
    assert isinstance(next(iter(sandbox.offers(OfferQuery()))), Offer)
    assert next(offer for offer in poll(sandbox) if offer.pool == pool).slots != 0


def test_a_scenario_that_is_not_there_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read the sandbox scenario"):
        SandboxProvider(clock=ManualClock(NOW), settings=SandboxSettings(scenario=str(tmp_path / "none.toml")))
