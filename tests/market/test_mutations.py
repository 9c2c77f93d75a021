"""The table of mutations covers every adapter that asks somebody over a network."""

from __future__ import annotations

from providers.registry import PROVIDERS
from tests.market.mutations import ADAPTERS
from tests.providers.test_registry import WITHOUT_NETWORK, WITHOUT_NETWORK_AND_ROWS


def test_every_adapter_is_in_the_table() -> None:
    assert {name.partition(":")[0] for name in ADAPTERS} == {*PROVIDERS} - {*WITHOUT_NETWORK, *WITHOUT_NETWORK_AND_ROWS}
