"""Waiting for what is paid for: only where it saves, soon enough, and never past the deadline."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.placement.wait_for_reserved import Occupant, WaitForReserved, find_reserved_wait
from tests.contracts.rule_contract import placement

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def paid(slots: int = 1, hours: float = 4, nodes: int = 1) -> Placement:
    made = placement(
        "0", nodes=nodes, capacity_type=CapacityType.OWNED, money=MoneyKind.AMORTISED, provider="owned",
        instance_type="box", slots=slots,
    )  # fmt: skip
    return replace(made, duration=hours * HOUR, finish=NOW + hours * HOUR)


BURST = replace(placement("32"), duration=4 * HOUR, expected_cost=Money.usd(128))
POOL = paid().offer.pool


def plan(*placements: Placement, deadline: datetime | None = None) -> Plan:
    return Plan(NOW, placements, (), len(placements), None, deadline)


def occupant(hours: float | None, nodes: int = 1, pool: str = POOL) -> Occupant:
    return Occupant(pool, nodes, None if hours is None else NOW + hours * HOUR)


def wait(
    *occupants: Occupant,
    best: Placement = BURST,
    box: Placement | None = None,
    deadline: float | None = None,
    **more: Any,
) -> WaitForReserved | None:
    ends = None if deadline is None else NOW + deadline * HOUR
    box = box or paid()
    said: dict[str, Any] = {"now": NOW, "since": NOW, "longest": 2 * HOUR} | more
    return find_reserved_wait(plan(best, deadline=ends), plan(box, best, deadline=ends), occupants, **said)


def test_an_hour_of_waiting_saves_what_renting_costs() -> None:
    found = wait(occupant(1))
    assert found is not None
    assert (found.until, found.saves) == (NOW + HOUR, Money.usd(128))
    assert found.why == "waits for box (owned), expected to be free at 2026-11-21 13:00 UTC: that saves $128.00 on aws"


def test_not_longer_than_the_policy_lets_it_counted_from_when_it_began() -> None:
    assert wait(occupant(2)) is not None
    assert wait(occupant(2.01)) is None
    assert wait(occupant(1.01), since=NOW - HOUR) is None


def test_the_deadline_must_hold_from_then_on() -> None:
    """Free in an hour, four hours of work."""
    assert wait(occupant(1), deadline=5) is not None
    assert wait(occupant(1), deadline=4.99) is None
    assert wait(occupant(1), deadline=9, box=replace(paid(), duration=None)) is None


@pytest.mark.parametrize("hours", [None, -1, 0])
def test_who_is_overdue_is_not_about_to_be_done(hours: float | None) -> None:
    assert wait(occupant(hours)) is None


def test_enough_machines_must_be_free() -> None:
    gang = paid(slots=4, nodes=3)
    assert wait(occupant(1), occupant(None, 3), box=gang) is None
    found = wait(occupant(1), occupant(1.5), occupant(None, 1), box=gang)
    assert found is not None
    assert found.until == NOW + 1.5 * HOUR, "one is free already, the other two are not before that"


def test_another_pool_does_not_help() -> None:
    assert wait(occupant(1, pool="elsewhere")) is None


def test_what_is_free_now_is_taken() -> None:
    assert find_reserved_wait(
        plan(BURST, paid()), plan(paid(), BURST), [occupant(1)], now=NOW, since=NOW, longest=2 * HOUR
    ) is None  # fmt: skip


def test_nothing_to_rent_is_nothing_to_save() -> None:
    assert find_reserved_wait(plan(), plan(paid()), [occupant(1)], now=NOW, since=NOW, longest=2 * HOUR) is None


def test_reserved_capacity_that_costs_as_much_is_not_waited_for() -> None:
    dear = replace(paid(), offer=replace(paid().offer, money=MoneyKind.CASH), expected_cost=Money.usd(128))
    assert wait(occupant(1, pool=dear.offer.pool), box=dear) is None
