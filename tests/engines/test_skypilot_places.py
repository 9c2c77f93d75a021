"""Which offers the engine can place, and under which names."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from broker.core.market.offers import Offer, OfferQuery
from broker.core.values.clock import ManualClock
from broker.engines.skypilot.places import CLOUDS, infra
from providers.pricebook import Pricebook
from tests.engines.skypilot_bench import offer


@pytest.mark.parametrize(
    ("provider", "region", "place"),
    [
        ("lambda", "us-east-1", "lambda/us-east-1"),
        ("lambda", "global", "lambda"),
        ("nebius", "global", "nebius"),
        ("oci", "global", "oci"),
        ("runpod", "secure", "runpod"),
    ],
)
def test_a_price_for_all_regions_leaves_the_region_to_skypilot(provider: str, region: str, place: str) -> None:
    assert infra(offer(provider, region=region, zone=None), provider, lambda region: {}) == place


def test_list_prices_name_this_engine_only_where_it_can_rent_the_machine() -> None:
    listed = Pricebook(clock=ManualClock(datetime(2026, 11, 23, tzinfo=UTC))).offers(OfferQuery())
    ours = [one for one in listed if isinstance(one, Offer) and one.engine == "skypilot"]
    assert ours
    assert {one.provider for one in ours} <= CLOUDS.keys()
    assert "community" not in {one.region for one in ours}
