"""One machine at one provider, in every way to rent it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from broker.app.advise.same_machine import cheapest_elsewhere, same_machine
from broker.core.errors import InvalidInput
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.money import Money

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def offer(provider: str, usd: str, kind: CapacityType = CapacityType.ON_DEMAND, **more: Any) -> Offer:
    return Offer(
        **{
            "provider": provider, "region": "r1", "zone": None, "accelerator": "H100", "count": 8,
            "instance_type": "big", "capacity_type": kind, "price": Money.usd(usd), "as_of": NOW,
            "source": "test", **more,
        }
    )  # fmt: skip


OFFERS = [
    offer("aye", "60"),
    offer("aye", "30", CapacityType.RESERVED, term_months=12),
    offer("aye", "20", CapacityType.RESERVED, term_months=36),
    offer("aye", "25", CapacityType.SPOT),
    offer("aye", "8", count=1),
    offer("bee", "16"),
]


def test_the_provider_with_the_most_ways_is_taken_and_a_cheaper_one_is_told() -> None:
    found = same_machine(OFFERS, "H100", 8)
    assert found.provider == "aye"
    assert {way: price.usd_per_hour for way, price in found.prices.items()} == {
        CapacityType.ON_DEMAND: 60, CapacityType.RESERVED: 20, CapacityType.SPOT: 25,
    }  # fmt: skip
    assert cheapest_elsewhere(OFFERS, found) == ("bee", 16)


def test_a_named_provider_and_a_term_no_longer_than_the_need() -> None:
    assert same_machine(OFFERS, "H100", 8, provider="bee").prices.keys() == {CapacityType.ON_DEMAND}
    short = same_machine(OFFERS, "H100", 8, most_term_months=24)
    assert short.prices[CapacityType.RESERVED].term_months == 12
    with pytest.raises(InvalidInput, match="at cee"):
        same_machine(OFFERS, "H100", 8, provider="cee")
