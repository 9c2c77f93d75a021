"""The AWS provider as a whole: the contract, its settings, and what it does not import."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.core.errors import InvalidInput
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


@pytest.mark.parametrize(
    "settings",
    [{"price_list_url": "ftp://x"}, {"regions": "us east"}, {"prices": "guess"}, {"colour": "red"}, {"attempts": 0}],
)
def test_settings_that_make_no_sense_are_named(clock: ManualClock, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(settings))):
        build("aws", clock=clock, settings=settings)
