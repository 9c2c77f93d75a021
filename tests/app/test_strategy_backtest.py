"""What a job would have cost on the history in the store, and how that history becomes ticks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.app.strategy_backtest import NothingServes, job_backtest
from broker.app.strategy_history import record
from broker.app.wiring import Broker
from broker.backtest.run import Request
from broker.core.clock import ManualClock
from broker.core.errors import InvalidInput
from broker.core.jobs import CheckpointPlan, Job, MachineRequest, Work
from broker.core.money import Money
from broker.core.offers import Availability, CapacityType, Offer

pytest.importorskip("numpy", reason="a backtest needs the extra 'backtest'")

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
JOB = Job(
    name="j",
    run="x",
    resources=(MachineRequest(accelerator="H100", count=8),),
    work=Work(duration=4 * HOUR),
    deadline=6 * HOUR,
    checkpoint=CheckpointPlan(every=HOUR / 12, restart=HOUR / 30),
)


def offer(zone: str, price: str | None, capacity: CapacityType = CapacityType.SPOT, **changed: Any) -> Offer:
    fields: dict[str, Any] = {
        "provider": "aws", "region": "us-east-1", "zone": zone, "instance_type": "p5", "accelerator": "H100",
        "count": 8, "capacity_type": capacity, "price": None if price is None else Money.usd(price),
        "as_of": NOW, "source": "api", "availability": Availability.AVAILABLE,
    }  # fmt: skip
    return Offer(**(fields | changed))


@pytest.fixture
def broker(broker: Broker) -> Broker:
    """Five days of polls, an hour apart: spot capacity goes for an hour in every four."""
    broker.__dict__["clock"] = ManualClock(NOW)
    for hours_ago in range(120, -1, -1):
        at = NOW - hours_ago * HOUR
        gone = Availability.UNAVAILABLE if hours_ago % 4 == 0 else Availability.AVAILABLE
        offers = [
            offer("a", "16" if hours_ago > 60 else "20", availability=gone, as_of=at),
            offer("a", "90", CapacityType.ON_DEMAND, as_of=at),
        ]
        broker.store.record_poll("aws", started=at, finished=at, offers=offers)
    return broker


def test_history_becomes_ticks(broker: Broker) -> None:
    spot = offer("a", "16")
    past = record(broker.store, [spot, offer("b", "1")], NOW, timedelta(days=30), HOUR / 2)
    assert list(past.available) == [spot.pool]
    assert past.ticks == 240
    bits, prices = past.available[spot.pool], past.price[spot.pool]
    assert list(bits[:10]) == [False, False, True, True, True, True, True, True, False, False]
    assert (prices[0], prices[119], prices[121], prices[-1]) == (16, 16, 20, 20)
    assert past.at(2) == {spot.pool: 16}
    assert past.at(0) == {}


def test_a_job_on_five_days(broker: Broker) -> None:
    found = job_backtest(broker, JOB, Request([], starts=5), days=3, deadline=None)
    document = found.as_dict()
    (family,) = {cell.family for cell in found.report.cells}
    assert family == "recorded"
    assert all(cell.missed == 0 and len(cell.windows) == 5 for cell in found.report.cells)
    costs = {cell.policy: cell.windows[0].cost for cell in found.report.cells}
    # Half a minute of writing every five; then start-up 5 min, restore 2 min, and 5.5 min that a loss may cost.
    assert costs["on-demand"] == pytest.approx(90 * (4 * 1.1 + 12.5 / 60), rel=0.001)
    assert costs["omniscient"] <= costs["gpubroker"] <= costs["on-demand"]
    assert NOW - timedelta(days=3) <= found.since <= found.until <= NOW - 6 * HOUR
    assert document["job"]["on_demand_pool"].endswith("/on_demand")  # type: ignore[index]  # a document


def test_what_cannot_be_replayed(broker: Broker, tmp_path: Path) -> None:
    request = Request([], starts=5)
    with pytest.raises(InvalidInput, match="how much work"):
        job_backtest(broker, JOB.model_copy(update={"work": None}), request, days=3, deadline=None)
    with pytest.raises(InvalidInput, match="names a deadline"):
        job_backtest(broker, JOB.model_copy(update={"deadline": None}), request, days=3, deadline=None)
    with pytest.raises(InvalidInput, match=r"the store knows 120\.0 h"):
        job_backtest(broker, JOB, request, days=3, deadline=200 * 3600)
    other = (MachineRequest(accelerator="A100", count=8),)
    with pytest.raises(NothingServes, match="no on-demand offer"):
        job_backtest(broker, JOB.model_copy(update={"resources": other}), request, days=3, deadline=None)
