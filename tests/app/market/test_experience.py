"""Risks from the store: availability of spot, attempts of ours, and nothing where nothing was seen."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.app.market import experience
from broker.app.wiring import Broker
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.job.jobs import Job, MachineRequest
from broker.core.job.placements import Placement
from broker.core.market.offers import Availability, CapacityType, Offer, OfferQuery
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.placement.pricing.hazard import HazardBasis, interruption_rate
from tests.actors import with_clock

NOW = datetime(2026, 3, 22, 12, tzinfo=UTC)
H100 = OfferQuery(accelerators=("H100",))


def offer(zone: str = "a", **changed: Any) -> Offer:
    fields: dict[str, Any] = {
        "provider": "cloud", "region": "east", "zone": zone, "instance_type": "big", "accelerator": "H100",
        "count": 8, "capacity_type": CapacityType.SPOT, "price": Money.usd("10"), "as_of": NOW, "source": "api",
        "availability": Availability.AVAILABLE,
    }  # fmt: skip
    return Offer(**(fields | changed))


@pytest.fixture
def broker(new_broker: Callable[[], Broker]) -> Broker:
    return with_clock(new_broker(), ManualClock(NOW))


def told(broker: Broker, hours_ago: float, *offers: Offer) -> None:
    at = NOW - timedelta(hours=hours_ago)
    broker.store.record_poll("cloud", started=at, finished=at, offers=offers)


def ran(broker: Broker, where: Offer, hours: float, cause: Cause, name: str = "j") -> None:
    """A job submitted so long ago, on that offer ever since, and now over."""
    began = NOW - timedelta(hours=hours)
    job = Job(name=name, run="x", resources=(MachineRequest(accelerator="H100", count=8),))
    placement = Placement(where, 1, Money.usd("10"), Money.ZERO, (), None, None, 1.0, 1.0, 0.0)
    with broker.store.writing() as tx:
        submitted = ev.Submitted(job=job, user="ada", deadline=None, max_duration_seconds=1e6, work_seconds=None)
        asked = ev.LaunchRequested(key=f"{name}-1", engine="cloud", placement=placement)
        items: list[tuple[int | None, ev.EventBody]] = [
            (None, submitted),
            (1, asked),
            (1, ev.Launched(handle="h")),
            (1, ev.MachineUp(since=began)),
        ]
        tx.append(name, items, began)
        tx.append(name, [(1, ev.AttemptEnded(cause=cause))], NOW)


def test_nothing_seen_nothing_changes(broker: Broker) -> None:
    told(broker, 1, offer(availability=Availability.UNKNOWN), offer("b", interruption_rate=0.3))
    risks = experience.risks(broker, OfferQuery(accelerators=("L4",)))
    assert risks(offer()) == interruption_rate(offer())
    assert experience.risks(broker, H100)(offer("b", interruption_rate=0.3)) == pytest.approx(0.3, rel=0.1)


def test_spot_that_comes_and_goes(broker: Broker) -> None:
    for hour in range(40, 0, -1):
        gone = offer(availability=Availability.UNAVAILABLE)
        told(broker, hour, offer(), offer("b"))
        told(broker, hour - 0.5, gone, offer("b"))
    found = experience.risks(broker, H100)
    wild, calm = found.of(offer()), found.of(offer("b"))
    assert (wild.basis, wild.own.losses, round(wild.own.hours)) == (HazardBasis.OWN, 40, 20)
    assert calm.own.losses == 0
    assert round(calm.own.hours) == 40
    assert wild.interruptions_per_hour > 1 > calm.interruptions_per_hour
    assert wild.time_to_return == pytest.approx(0.5, rel=0.1)


def test_stretches_older_than_the_window_are_not_forgotten(broker: Broker) -> None:
    told(broker, 24 * 60, offer())
    told(broker, 0, offer())
    found = experience.risks(broker, H100).of(offer())
    assert round(found.own.hours) == 21 * 24


def test_what_is_no_longer_told_of_is_away(broker: Broker) -> None:
    told(broker, 10, offer(), offer("b"))
    told(broker, 6, offer("b"))
    told(broker, 0, offer("b"))
    found = experience.risks(broker, H100).of(offer())
    assert found.own.losses == 1
    assert found.own.hours == pytest.approx(4)


def test_a_sold_out_type_is_no_danger_to_what_runs_on_demand(broker: Broker) -> None:
    steady = offer(capacity_type=CapacityType.ON_DEMAND)
    told(broker, 10, steady)
    told(broker, 5, offer(capacity_type=CapacityType.ON_DEMAND, availability=Availability.UNAVAILABLE))
    assert experience.risks(broker, H100)(steady) == interruption_rate(steady)


def test_our_own_attempts_count(broker: Broker) -> None:
    owned = offer(capacity_type=CapacityType.OWNED)
    told(broker, 40, offer(availability=Availability.UNKNOWN), owned)
    ran(broker, owned, 20, Cause.MACHINE_LOST)
    ran(broker, offer(), 5, Cause.PREEMPTED, "k")
    ran(broker, offer("b"), 5, Cause.COMPLETED, "l")
    found = experience.risks(broker, H100)
    assert found(owned) > 5 * interruption_rate(owned)
    assert found.of(offer()).own.losses == 1
    assert found.of(offer()).own.hours == pytest.approx(5)
    assert found.of(offer("b")).own.losses == 0
    assert found.of(offer("b")).own.hours == pytest.approx(5)
    assert found(offer()) > found(offer("b"))
    assert experience.risks(broker, OfferQuery(accelerators=("L4",))).of(offer()).own.hours == 0


def refused(broker: Broker, where: Offer, hours_ago: float, name: str) -> None:
    at = NOW - timedelta(hours=hours_ago)
    job = Job(name=name, run="x", resources=(MachineRequest(accelerator="H100", count=8),))
    placement = Placement(where, 1, Money.usd("10"), Money.ZERO, (), None, None, 1.0, 1.0, 0.0)
    with broker.store.writing() as tx:
        submitted = ev.Submitted(job=job, user="ada", deadline=None, max_duration_seconds=1e6, work_seconds=None)
        asked = ev.LaunchRequested(key=f"{name}-1", engine="cloud", placement=placement)
        tx.append(name, [(None, submitted), (1, asked), (1, ev.AttemptEnded(cause=Cause.NO_CAPACITY))], at)


def test_refusals_show_that_a_pool_stays_away(broker: Broker) -> None:
    """On demand, too, where nobody reports availability: 40 hours without capacity, then machines again."""
    there = offer(capacity_type=CapacityType.ON_DEMAND, availability=Availability.UNKNOWN)
    told(broker, 50, there)
    before = experience.risks(broker, H100, NOW).away(there)
    for number, hours in enumerate((45, 30, 10, 5.5)):
        refused(broker, there, hours, f"r{number}")
    still = experience.risks(broker, H100, NOW).away(there)
    assert still > 3 * before
    ran(broker, there, 5, Cause.COMPLETED)
    again = experience.risks(broker, H100, NOW).away(there)
    assert before < again < still, "an absence that ended is shorter than one that may go on"


def test_one_refusal_alone_tells_no_length(broker: Broker) -> None:
    told(broker, 50, offer())
    before = experience.risks(broker, H100, NOW).away(offer())
    refused(broker, offer(), 5, "r")
    assert experience.risks(broker, H100, NOW).away(offer()) == before
