"""Capacity and the demand for it, as store and providers know them."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from broker.app.capacity.capacity import capacity_inventory
from broker.app.capacity.plan import (
    ANY_ACCELERATOR,
    StatedPrices,
    demand_from_files,
    demand_from_history,
    plan_accelerators,
)
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, NoLogin, Unreachable
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.job.file import parse_job
from broker.core.job.placements import Placement
from broker.core.market.capacity import Reservation
from broker.core.market.offers import CapacityType, MoneyKind, Offer
from broker.core.values.money import Money
from broker.economics.reserve.capacity import AcceleratorPlan
from broker.economics.reserve.holdings import Holding, HoldingKind

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
    found = demand_from_history(broker, until - 100 * HOUR)
    assert found.demand == {"H100": [8, 12, 8, 0, 0], "L4": [1, 1]}
    assert found.source == "3 attempts on record here"
    assert found.spot_share["H100"] == pytest.approx(1.5 / 3.5)
    assert found.spot_share["L4"] == 0


def test_what_was_before_the_time_asked_about_does_not_count(broker: Broker) -> None:
    until = this_hour(broker)
    ran(broker, "a", until - 50 * HOUR, until - 40 * HOUR)
    ran(broker, "b", until - 20 * HOUR, None)
    found = demand_from_history(broker, until - 2 * HOUR)
    assert (found.demand, found.source) == ({"H100": [8, 8]}, "1 attempts on record here")
    with pytest.raises(InvalidInput, match="no GPU job ran"):
        demand_from_history(broker, broker.clock.now() - timedelta(seconds=1))


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
        (None, ["cloud"], []),
        (NoLogin("no login"), [], []),
        (Unreachable("no way through"), [], [("cloud", "no way through")]),
    ],
)
def test_providers_that_fail_are_named_and_what_they_told_before_counts(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    problem: Exception | None,
    asked: list[str],
    problems: list[tuple[str, str]],
) -> None:
    known = {"cloud": ReservingProvider(problem), "plain": PlainProvider()}
    monkeypatch.setattr("broker.app.market.market.freshen", lambda broker: [])
    monkeypatch.setattr(broker, "provider", known.__getitem__)
    broker.registries = replace(broker.registries, providers=dict.fromkeys(known, ""))
    found = capacity_inventory(broker)
    assert [reservation.id for reservation in found.reported] == ["r-1"]
    assert (found.asked, [(one.provider, one.message) for one in found.problems]) == (asked, problems)
    assert capacity_inventory(broker, ask=False).reported == []


def test_demand_of_files_is_named_as_accelerators_are(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text("time,h100,ours\n2026-03-01T00:00Z,5,1\n2026-03-01T01:00Z,6,0\n")
    found = demand_from_files([("", path)])
    assert (found.demand, found.source) == ({"H100": [5, 6], "ours": [1, 0]}, str(path))
    assert any("2026-03-01" in note for note in found.notes)
    one = tmp_path / "usage.csv"
    one.write_text("time,NVIDIA H100 80GB HBM3\n2026-03-01T00:00Z,5\n")
    assert list(demand_from_files([("", one)]).demand) == ["H100"]
    one.write_text("time,demand\n2026-03-01T00:00Z,5\n")
    assert list(demand_from_files([("", one)]).demand) == ["usage"]
    with pytest.raises(InvalidInput, match="two series"):
        demand_from_files([("", path), ("H100", path)])


def test_what_is_in_hand_and_how_much_of_it_was_at_work(broker: Broker) -> None:
    now = this_hour(broker)
    days = timedelta(days=1)
    machines = Holding(HoldingKind.OWNED, "H100", 8, "basement", "here", now - 90 * days, now + 90 * days,
                       upfront=Money.usd(8 * 180 * 24))  # fmt: skip
    young = Holding(HoldingKind.RESERVATION, "H100", 8, "aws", "us-east-1", now - 2 * days, now + 9 * days,
                    hourly=Money.usd(24))  # fmt: skip
    over = replace(machines, accelerator="L4", ends=now - days)
    promise = replace(machines, kind=HoldingKind.COMMITMENT, accelerator="A100")
    with broker.store.writing() as tx:
        for one in (machines, young, over, promise):
            tx.add_holding(one, by="ann", at=now - 90 * days)
    ran(broker, "a", now - 8 * days, now - 5 * days, had_as=CapacityType.OWNED, money=MoneyKind.AMORTISED)
    ran(broker, "b", now - days, None, had_as=CapacityType.RESERVED)
    ran(broker, "c", now - 5 * days, None)  # rented
    ran(broker, "d", now - 5 * days, None, had_as=CapacityType.OWNED, money=MoneyKind.SANDBOX)
    with broker.store.reading() as look:
        found = look.in_hand(now)
    assert set(found) == {"H100"}
    assert (found["H100"].gpus, found["H100"].per_gpu_hour) == (16, Money.usd(2))  # 1 for eight, 3 for eight
    assert found["H100"].used == pytest.approx((2 + 1) / (7 + 2))  # two of the three days were in the last seven


def test_what_was_in_hand_at_many_times_is_what_is_read_at_each(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, days = this_hour(broker), timedelta(days=1)
    held = Holding(HoldingKind.OWNED, "H100", 8, "basement", "here", now - 90 * days, now + 90 * days)
    with broker.store.writing() as tx:
        tx.add_holding(held, by="ann", at=now - 90 * days)
    for number in range(12):
        start = now - (20 - number * 1.7) * days
        ran(broker, f"j{number}", start, None if number == 11 else start + (number % 5) * days / 2,
            had_as=CapacityType.OWNED if number % 3 else CapacityType.SPOT, money=MoneyKind.AMORTISED)  # fmt: skip
    with broker.store.reading() as look:
        work = look.work_on_held(now - 10 * days)
        at = [now - hours * HOUR for hours in range(0, 240, 7)]
        assert len({look.in_hand(time)["H100"].used for time in at}) > 9
        for time in at:
            assert look.in_hand(time, work)["H100"].used == pytest.approx(look.in_hand(time)["H100"].used, abs=1e-9)
        monkeypatch.setattr("broker.store.market.holdings._used_milliseconds", lambda *_: pytest.fail("read again"))
        assert all(look.in_hand(time, work) for time in at)


def test_policies_limit_what_a_plan_proposes(broker: Broker) -> None:
    """Ten GPUs are needed all the time, ten more for half of it."""
    demand = {"H100": [20 if hour % 24 < 12 else 10 for hour in range(24 * 400)]}
    stated = StatedPrices(on_demand={ANY_ACCELERATOR: 4.0}, reserved={ANY_ACCELERATOR: 1.0}, terms=(24 * 30, 8760))

    def planned(section: str = "") -> tuple[AcceleratorPlan, tuple[str, ...]]:
        broker.store.activate_policy({"a.yaml": f"version: 1\n{section}"}, by="ann")
        found = plan_accelerators(broker, demand, "a file", stated)
        return found.plans[0], found.notes

    free, _ = planned()
    assert {choice.term for choice in free.choices} == {24 * 30, 8760}
    assert free.baseline_gpus == 20
    within, notes = planned("capacity: {hold: {utilisation: 60%, horizon: 90d}}\n")
    assert [(choice.term, choice.baseline_gpus) for choice in within.choices] == [(24 * 30, 10)]
    assert sum(step.gpus for step in within.steps if step.action == "buy") == 10, "nor later, if demand stays"
    assert "policies allow holding: GPUs needed in at least 60% of the hours; terms of at most 90d (a.yaml:2)" in notes
    assert any("its term of 365d is beyond the horizon of 90d (a.yaml:2)" in note for note in notes)
    assert "H100: 10 of 20 GPUs were needed in less than 60% of 9,600 h and are left to renting" in notes
    nothing, notes = planned("capacity: {hold: {break_even: 24%}}\n")
    assert not nothing.baseline_gpus
    assert any("$1 an hour against $4 rented pays from 25.0% of the hours on" in note for note in notes)
    assert any("so at $0.96 or less (a.yaml:2)" in note for note in notes)
    assert planned("capacity: {hold: {break_even: 25%}}\n")[0].baseline_gpus


def test_what_is_held_is_renewed_within_the_limits_alone(broker: Broker) -> None:
    """Ten GPUs held for a year at $1, where nothing else can be held and renting costs $3, half of it on demand."""
    now, days = this_hour(broker), timedelta(days=1)
    held = Holding(HoldingKind.RESERVATION, "H100", 10, "aws", "us-east-1", now - 300 * days, now + 65 * days,
                   hourly=Money.usd(10))  # fmt: skip
    broker.store.add_holding(held, by="ann")
    stated = StatedPrices(on_demand={ANY_ACCELERATOR: 4.0}, spot={ANY_ACCELERATOR: 2.0})

    def steps(section: str = "") -> tuple[list[tuple[str, int]], str]:
        broker.store.activate_policy({"a.yaml": f"version: 1\n{section}"}, by="ann")
        found = plan_accelerators(broker, {"H100": [10] * 24 * 400}, "a file", stated, spot_share=0.5)
        return [(step.action, step.gpus) for step in found.plans[0].steps], "\n".join(found.notes)

    assert steps()[0] == steps("capacity: {hold: {horizon: 365d, break_even: 34%}}\n")[0] == [("renew", 10)]
    later, notes = steps("capacity: {hold: {horizon: 364d}}\n")
    assert later == [("let_lapse", 10)]
    assert "reservation #1 of aws: its term of 365d is beyond the horizon of 364d" in notes
    dear, notes = steps("capacity: {hold: {break_even: 33%}}\n")
    assert dear == [("let_lapse", 10)]
    assert "$1 an hour against $3 rented pays from 33.3% of the hours on" in notes
