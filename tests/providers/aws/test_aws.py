"""The AWS provider as a whole: the contract, its settings, and what it does not import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.core.errors import BrokerError, InvalidInput
from broker.core.market.offers import OfferQuery
from broker.core.values.clock import ManualClock
from providers.aws.provider import Aws
from providers.registry import build
from tests.contracts.provider_contract import ProviderContract
from tests.fakes.aws_files import Files


class TestAwsWithoutALogin(ProviderContract):
    plugin = "aws"

    @pytest.fixture
    def provider(self, make: Callable[..., Aws], published: Files) -> Aws:
        return make()


def test_the_addresses_are_settings(published: Files, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    from broker.settings import read_settings

    monkeypatch.setenv("GPUBROKER_PROVIDERS__AWS__PRICE_LIST_URL", published.url)
    monkeypatch.setenv("GPUBROKER_PROVIDERS__AWS__SPOT_ADVISOR_URL", published.url)
    monkeypatch.setenv("GPUBROKER_PROVIDERS__AWS__REGIONS", "us-east-1")
    provider = build("aws", clock=clock, settings=read_settings().providers["aws"])
    assert list(provider.offers(OfferQuery()))
    assert all(path.startswith(("/offers", "/spot")) for path in published.asked)


@pytest.mark.parametrize(
    "settings",
    [{"price_list_url": "ftp://x"}, {"regions": "us east"}, {"prices": "guess"}, {"colour": "red"}, {"attempts": 0}],
)
def test_settings_that_make_no_sense_are_named(clock: ManualClock, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(settings))):
        build("aws", clock=clock, settings=settings)


def test_of_many_failures_some_are_told_and_the_rest_counted(make: Callable[..., Aws], files: Files) -> None:
    regions = tuple(f"xx-test-{number}" for number in range(9))
    with pytest.raises(BrokerError, match="and 4 more failures"):
        list(make(regions=regions).offers(OfferQuery()))
