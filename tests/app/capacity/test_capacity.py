"""Capacity and the demand for it, as store and providers know them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from broker.app.capacity.capacity import capacity
from broker.app.capacity.plan import demand_of_files, demand_of_history
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, NoLogin, Unreachable
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.job.file import parse_job
from broker.core.job.placements import Placement
from broker.core.market.capacity import Reservation
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.values.money import Money

HOUR = timedelta(hours=1)


def ran(
    broker: Broker,
    job_id: str,
    start: datetime,
    end: datetime | None,
    *,
    accelerator: str | None = "H100",
    gpus: int = 8,
    money: MoneyKind = MoneyKind.CASH,
    had_as: CapacityType = CapacityType.ON_DEMAND,
) -> None:
    """Put an attempt on record that was up in that time; still is, without an end."""
    offer = Offer(
        "aws", "us-east-1", None, "p5", accelerator, gpus, had_as, Money.usd(8), start, "test",
        money=money,
    )  # fmt: skip
    place = Placement(offer, 1, Money.usd(8), Money.usd(8), (), None, None, 1.0, 1.0, 0.0)
    job = parse_job("name: a\nrun: 'true'\nresources: {cpus: 1}\n", file="job.yaml", now=start)
    items: list[tuple[int | None, ev.EventBody]] = [
        (None, ev.Submitted(job=job, user="ada", max_duration_seconds=36_000)),
        (1, ev.LaunchRequested(key=f"{job_id}-1", engine="local", placement=place)),
        (1, ev.Launched(handle="x")),
        (1, ev.MachineUp(since=start)),
    ]
    if end is not None:
        items += [(1, ev.AttemptEnded(cause=Cause.COMPLETED)), (1, ev.MachineGone(gone_at=end))]
    with broker.store.writing() as journal:
        journal.append(job_id, items, start)


def this_hour(broker: Broker) -> datetime:
    return broker.clock.now().replace(minute=0, second=0, microsecond=0)


def test_gpus_at_work_hour_by_hour_up_to_now(broker: Broker) -> None:
    until = this_hour(broker)
    ran(broker, "a", until - 5 * HOUR, until - 3 * HOUR)
    ran(
        broker, "b", until - 3.5 * HOUR, until - 2 * HOUR, had_as=CapacityType.SPOT
    )  # half of its first hour: 4 of 8 GPUs on average
    ran(broker, "c", until - 2 * HOUR, None, accelerator="L4", gpus=1)
    ran(broker, "d", until - 5 * HOUR, None, money=MoneyKind.SANDBOX)
    ran(broker, "e", until - 5 * HOUR, None, accelerator=None, gpus=0)
    found = demand_of_history(broker, until - 100 * HOUR)
    assert found.demand == {"H100": [8, 12, 8, 0, 0], "L4": [1, 1]}
    assert found.attempts == 3
    assert found.spot_share["H100"] == pytest.approx(1.5 / 3.5)
    assert found.spot_share["L4"] == 0


def test_what_was_before_the_time_asked_about_does_not_count(broker: Broker) -> None:
    until = this_hour(broker)
    ran(broker, "a", until - 50 * HOUR, until - 40 * HOUR)
    ran(broker, "b", until - 20 * HOUR, None)
    found = demand_of_history(broker, until - 2 * HOUR)
    assert (found.demand, found.attempts) == ({"H100": [8, 8]}, 1)
    with pytest.raises(InvalidInput, match="no GPU job ran"):
        demand_of_history(broker, broker.clock.now() - timedelta(seconds=1))


class ReservingProvider:
    """A provider that knows reservations, or fails in a way."""

    name = "cloud"

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem

    def reservations(self) -> Iterator[Reservation]:
        yield Reservation("r-1", "cloud", "eu", None, "h100x8", 2, "reservation", free=1)
        if self.problem is not None:
            raise self.problem


class PlainProvider:
    """A provider that knows nothing of reservations."""

    name = "plain"


@pytest.mark.parametrize(
    ("problem", "asked", "problems"),
    [
        (None, ("cloud",), ()),
        (NoLogin("no login"), (), ()),
        (Unreachable("no way through"), (), (("cloud", "no way through"),)),
    ],
)
def test_providers_that_fail_are_named_and_what_they_told_before_counts(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception | None,
    asked: tuple[str, ...],
    problems: tuple[tuple[str, str], ...],
) -> None:
    known = {"cloud": ReservingProvider(problem), "plain": PlainProvider()}
    monkeypatch.setattr("broker.app.market.market.freshen", lambda broker: [])
    monkeypatch.setattr(broker, "provider", known.__getitem__)
    broker.registries = replace(broker.registries, providers=dict.fromkeys(known, ""))
    found = capacity(broker)
    assert [reservation.id for reservation in found.reported] == ["r-1"]
    assert (found.asked, found.problems) == (asked, problems)
    assert capacity(broker, ask=False).reported == ()


def test_demand_of_files_is_named_as_accelerators_are(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text("time,h100,ours\n2026-03-01T00:00Z,5,1\n2026-03-01T01:00Z,6,0\n")
    found, notes = demand_of_files([("", path)])
    assert found == {"H100": [5, 6], "ours": [1, 0]}
    assert any("2026-03-01" in note for note in notes)
    one = tmp_path / "usage.csv"
    one.write_text("time,NVIDIA H100 80GB HBM3\n2026-03-01T00:00Z,5\n")
    assert list(demand_of_files([("", one)])[0]) == ["H100"]
    one.write_text("time,demand\n2026-03-01T00:00Z,5\n")
    assert list(demand_of_files([("", one)])[0]) == ["usage"]
    with pytest.raises(InvalidInput, match="two series"):
        demand_of_files([("", path), ("H100", path)])
