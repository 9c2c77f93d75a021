"""What a job would have cost on the history in the store, and how that history becomes ticks."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from broker.app.market.strategy_backtest import NothingServes, job_backtest
from broker.app.market.strategy_history import record
from broker.app.results.backtests import PlacementBacktest
from broker.app.wiring import Broker
from broker.backtest.placement.run import PlacementReplay
from broker.core.errors import InvalidInput
from broker.core.job.jobs import CheckpointPlan, Job, MachineRequest, Work
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.store import open_store
from tests.actors import with_clock
from tests.empty_store import empty_store

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
    past = record(broker.store, [spot, offer("b", "1")], NOW, timedelta(days=30), HOUR / 2)
    assert list(past.available) == [spot.pool]
    assert past.ticks == 240
    bits, prices = past.available[spot.pool], past.price[spot.pool]
    assert list(bits[:10]) == [False, False, True, True, True, True, True, True, False, False]
    assert (prices[0], prices[119], prices[121], prices[-1]) == (16, 16, 20, 20)
    assert past.at(2) == {spot.pool: 16}
    assert past.at(0) == {}


def test_a_job_on_five_days(broker: Broker) -> None:
    found = job_backtest(broker, JOB, PlacementReplay([], starts=5), days=3, deadline=None)
    document = PlacementBacktest.of(found.report, found).document()
    (family,) = {cell.family for cell in found.report.cells}
    assert family == "recorded"
    assert all(cell.missed == 0 and len(cell.windows) == 5 for cell in found.report.cells)
    costs = {cell.policy: cell.windows[0].cost for cell in found.report.cells}
    # Half a minute of writing every five; then start-up 5 min, restore 2 min, and 5.5 min that a loss may cost.
    assert costs["on-demand"] == pytest.approx(90 * (4 * 1.1 + 12.5 / 60), rel=0.001)
    assert costs["omniscient"] <= costs["gpubroker"] <= costs["on-demand"]
    assert NOW - timedelta(days=3) <= found.since <= found.until <= NOW - 6 * HOUR
    assert found.report.cells[0].pool == offer("a", None).pool
    assert document["job"]["on_demand_pool"].endswith("/on_demand")


def test_the_answer_is_the_same_for_an_hour(broker: Broker) -> None:
    """Whatever the second is, for a deadline that is a moment, too; and windows start at full hours."""
    later = NOW + HOUR * 0.98
    offers = [offer("a", "1", as_of=later), offer("a", "90", CapacityType.ON_DEMAND, as_of=later)]
    broker.store.record_poll("aws", started=later, finished=later, offers=offers)
    often = JOB.model_copy(update={"checkpoint": CheckpointPlan(restart=HOUR / 30)})  # as the hazard wants it
    moment = often.model_copy(update={"deadline": NOW + 7 * HOUR})
    found: dict[object, list[dict[str, Any]]] = {}
    for minutes in (1, 59.9):
        broker = with_clock(broker, ManualClock(NOW + timedelta(minutes=minutes)))
        for job in (often, moment):
            done = job_backtest(
                broker, job, PlacementReplay([], starts=4, policies=("gpubroker",)), days=3, deadline=None
            )
            assert (done.as_of, done.since.minute, done.until.second) == (NOW, 0, 0)
            about = PlacementBacktest.of(done.report, done, per_window=True)
            found.setdefault(job.deadline, []).append(about.document())
    assert all(first == second for first, second in found.values())
    assert [cells[0]["deadline_s"] for (first, _) in found.values() if (cells := first["cells"])] == [21600, 25200]


def test_windows_start_at_full_hours_whenever_the_record_began(broker: Broker) -> None:
    began = NOW - timedelta(days=7, minutes=35)
    broker.store.record_poll("new", started=began, finished=began, offers=[offer("z", "5", as_of=began)])
    done = job_backtest(broker, JOB, PlacementReplay([], starts=500, policies=("on-demand",)), days=30, deadline=None)
    assert (done.since, done.until) == (NOW - timedelta(days=7), NOW - 6 * HOUR)
    assert len(done.report.cells[0].windows) == 7 * 24 - 6 + 1


def test_pools_that_are_gone_by_now_take_part(broker: Broker) -> None:
    last = NOW + timedelta(minutes=1)
    broker.store.record_poll("aws", started=last, finished=last, offers=[offer("a", "90", CapacityType.ON_DEMAND)])
    broker = with_clock(broker, ManualClock(NOW + 2 * HOUR))
    request = PlacementReplay([], starts=5, policies=("omniscient",))
    found = job_backtest(broker, JOB, request, days=3, deadline=None)
    assert found.report.cells[0].pool == offer("a", None).pool
    broker = with_clock(broker, ManualClock(NOW + timedelta(days=4)))  # nobody started a job there within three days
    with pytest.raises(NothingServes, match="no spot offer"):
        job_backtest(broker, JOB, request, days=3, deadline=None)


def test_a_gang_of_nodes_pays_for_all_of_them_and_what_is_taken_for_granted_is_said(broker: Broker) -> None:
    request = PlacementReplay([], starts=2, policies=("on-demand", "omniscient"))
    one = job_backtest(broker, JOB, request, days=3, deadline=None).report
    two = job_backtest(broker, JOB.model_copy(update={"num_nodes": 2}), request, days=3, deadline=None).report
    assert (one.gang, two.gang) == (1, 2)
    assert all(b.windows[0].cost > 1.9 * a.windows[0].cost for a, b in zip(one.cells, two.cells, strict=True))
    taken = "recorded: a pool with one machine is assumed to have all 2"
    assert (taken in one.notes, taken in two.notes) == (False, True)


def test_several_pools_and_what_was_left_out_is_said(broker: Broker) -> None:
    offers = [offer("a", "90", CapacityType.ON_DEMAND), *(offer(zone, "16") for zone in "abcdefghij")]
    broker.store.record_poll("aws", started=NOW, finished=NOW, offers=offers)
    broker = with_clock(broker, ManualClock(NOW + 12 * HOUR))
    done = job_backtest(broker, JOB, PlacementReplay([], starts=99, policies=("greedy",)), days=1, deadline=None)
    (family,) = done.report.families()
    assert (family.pool, done.report.cells[0].pool) == ("8 pools together", "8 pools together")
    assert "recorded: the cheapest 8 of 10 pools that serve the job" in done.report.notes
    assert any(note.startswith("recorded: room for 1") for note in done.report.notes)


def test_what_cannot_be_replayed(broker: Broker, tmp_path: Path) -> None:
    request = PlacementReplay([], starts=5)
    with pytest.raises(InvalidInput, match="how much work"):
        job_backtest(broker, JOB.model_copy(update={"work": None}), request, days=3, deadline=None)
    with pytest.raises(InvalidInput, match="names a deadline"):
        job_backtest(broker, JOB.model_copy(update={"deadline": None}), request, days=3, deadline=None)
    with pytest.raises(InvalidInput, match=r"the store has 120\.0 h"):
        job_backtest(broker, JOB, request, days=3, deadline=200 * 3600)
    with pytest.raises(
        InvalidInput, match=r"j: 4\.5 h until the deadline, but aws.*/on_demand takes 4\.4 h .* 0\.2 h to"
    ):
        job_backtest(broker, JOB, request, days=3, deadline=4.5 * 3600)
    other = (MachineRequest(accelerator="A100", count=8),)
    with pytest.raises(NothingServes, match="no on-demand offer"):
        job_backtest(broker, JOB.model_copy(update={"resources": other}), request, days=3, deadline=None)
