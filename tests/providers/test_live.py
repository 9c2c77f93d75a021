"""Real services, asked for real, never written to: `pytest --live runpod --live aws`. Not part of any other run.

Logins come from where the providers take them (`gpubroker doctor` tells). What comes back is held to what any poll has
to be; read the summary that is printed as well (``-s``): nobody else has seen this service on this day.
"""

from collections import Counter

import pytest

from broker.core.market.accelerators import canonical
from broker.core.market.offers import Offer, OfferQuery, SkippedRow
from broker.core.values.clock import SystemClock
from providers.registry import PROVIDERS, build

# A service may sell what the GPU table does not know; when most of it is odd, the adapter no longer fits the service.
MOST_SKIPPED = 0.2


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("name", metafunc.config.getoption("live"))


@pytest.mark.timeout(1800)
def test_a_live_poll_is_sane(name: str) -> None:
    assert name in PROVIDERS, f"there are {', '.join(PROVIDERS)}"
    rows = list(build(name, clock=SystemClock()).offers(OfferQuery()))
    offers = [row for row in rows if isinstance(row, Offer)]
    skipped = Counter(row.reason for row in rows if isinstance(row, SkippedRow))
    kinds = Counter((offer.provider, offer.capacity_type.value) for offer in offers)
    print(f"{name}: {len(offers)} offers {dict(kinds)}, skipped {dict(skipped)}")
    assert offers, "the service answered, and nothing of it is an offer"
    assert skipped.total() <= MOST_SKIPPED * len(rows)
    assert len({(offer.pool, offer.source) for offer in offers}) == len(offers), "one offer told twice"
    now = SystemClock().now()
    for offer in offers:
        assert offer.price is None or offer.has_valid_price(), offer
        assert offer.accelerator is None or canonical(offer.accelerator) == offer.accelerator, offer
        assert offer.as_of <= now, offer
        assert not offer.reference, offer
