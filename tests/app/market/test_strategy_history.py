"""How the history in the store becomes ticks."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.app.market.strategy_history import record_market
from broker.app.wiring import Broker
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.store import open_store
from tests.actors import with_clock
from tests.empty_store import empty_store

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def offer(zone: str, price: str | None, capacity: CapacityType = CapacityType.SPOT, **changed: Any) -> Offer:
    fields: dict[str, Any] = {
        "provider": "aws", "region": "us-east-1", "zone": zone, "instance_type": "p5", "accelerator": "H100",
        "count": 8, "capacity_type": capacity, "price": None if price is None else Money.usd(price),
        "as_of": NOW, "source": "api", "availability": Availability.AVAILABLE,
    }  # fmt: skip
    return Offer(**(fields | changed))


@pytest.fixture(scope="module")
def polled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five days of polls, an hour apart: spot capacity goes for an hour in every four."""
    file = tmp_path_factory.mktemp("polled") / "store.db"
    store = open_store(empty_store(file), clock=ManualClock(NOW))
    for hours_ago in range(120, -1, -1):
        at = NOW - hours_ago * HOUR
        gone = Availability.UNAVAILABLE if hours_ago % 4 == 0 else Availability.AVAILABLE
        offers = [
            offer("a", "16" if hours_ago > 60 else "20", availability=gone, as_of=at),
            offer("a", "90", CapacityType.ON_DEMAND, as_of=at),
        ]
        store.record_poll("aws", started=at, finished=at, offers=offers)
    store.close()
    return file


@pytest.fixture
def broker(polled: Path, broker: Broker, tmp_path: Path) -> Broker:
    """A broker over a copy of that store."""
    shutil.copyfile(polled, tmp_path / "store.db")
    return with_clock(broker, ManualClock(NOW))


def test_history_becomes_ticks(broker: Broker) -> None:
    spot = offer("a", "16")
    past = record_market(broker.store, [spot, offer("b", "1")], NOW, timedelta(days=30), HOUR / 2)
    assert list(past.available) == [spot.pool]
    assert past.ticks == 240
    bits, prices = past.available[spot.pool], past.price[spot.pool]
    assert list(bits[:10]) == [False, False, True, True, True, True, True, True, False, False]
    assert (prices[0], prices[119], prices[121], prices[-1]) == (16, 16, 20, 20)
    assert past.at(2) == {spot.pool: 16}
    assert past.at(0) == {}
