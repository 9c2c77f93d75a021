"""What one start moves and how it is posted, in figures worked out by hand."""

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.events.outcomes import Cause
from broker.core.job.placements import CostTerm, TransferKind
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import Account, Entry, Movement, Tags
from broker.reconciler.settlement.settlement import (
    charged_elsewhere,
    egress_movements,
    egress_per_start,
    unposted_egress,
)
from tests.reconciler.settlement.test_charges import UP, life

NOW = UP + timedelta(hours=2)
ATTEMPT = life(closed=False).attempts[0]
TAGS = Tags("train", "ann", attempt=1)
TERMS = (
    CostTerm("compute", Money.usd(50)),
    CostTerm("data egress", Money.usd(14), per_start=Money.usd(7), moves=TransferKind.DATA),
    CostTerm("checkpoint egress", Money.usd(5), moves=TransferKind.CHECKPOINT),
    CostTerm("restore egress", Money.ZERO, moves=TransferKind.RESTORE),
)


def posted(held: int, amounts: dict[str, int]) -> list[Entry]:
    usd = {what: Money.usd(amount) for what, amount in amounts.items()}
    return egress_movements(ATTEMPT, usd, Money.usd(held), "train", TAGS, NOW)


def test_of_a_plan_only_what_one_start_moves_and_costs_something() -> None:
    placement = replace(ATTEMPT.placement, terms=TERMS)
    expected = {"data": Money.usd(7), "checkpoint": Money.usd(5)}
    assert egress_per_start(placement) == expected
    attempt = replace(ATTEMPT, placement=placement)
    assert unposted_egress(attempt, Money.ZERO) == expected
    assert unposted_egress(attempt, Money(1)) == {}
    assert unposted_egress(replace(attempt, cause=Cause.NO_CAPACITY), Money.ZERO) == {}


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (20, [("data", "settle", 7), ("checkpoint", "settle", 5), ("restore", "settle", 4)]),
        (
            10,
            [("data", "settle", 7), ("checkpoint", "settle", 3), ("checkpoint", "adjust", 2), ("restore", "adjust", 4)],
        ),
        (0, [("data", "adjust", 7), ("checkpoint", "adjust", 5), ("restore", "adjust", 4)]),
        (-3, [("data", "adjust", 7), ("checkpoint", "adjust", 5), ("restore", "adjust", 4)]),
    ],
)
def test_what_is_held_is_used_up_first(held: int, expected: list[tuple[str, str, int]]) -> None:
    entries = posted(held, {"data": 7, "checkpoint": 5, "restore": 4})
    spent = [entry for entry in entries if entry.account is Account.SPENT]
    assert [(entry.movement_id, entry.amount) for entry in spent] == [
        (f"train/1/egress/{what}/{movement}", Money.usd(amount)) for what, movement, amount in expected
    ]
    assert [entry.movement.value for entry in spent] == [movement for _, movement, _ in expected]
    assert sum((entry.amount for entry in entries), Money.ZERO) == Money.ZERO


def test_it_covers_the_moment_of_the_start() -> None:
    for entry in posted(1, {"data": 7}):
        assert (entry.at, entry.covers_from, entry.covers_to) == (NOW, UP, UP)
        assert (entry.money, entry.tags, entry.note) == (MoneyKind.CASH, TAGS, "data egress")


def test_what_machines_read_is_charged_elsewhere() -> None:
    entries = [entry for entry in posted(9, {"data": 7, "checkpoint": 5, "restore": 4}) if entry.amount > Money.ZERO]
    time = replace(entries[0], movement_id="train/1/settle/4", movement=Movement.SETTLE)
    assert charged_elsewhere([*entries, time]) == Money.usd(11)
    assert charged_elsewhere([]) == Money.ZERO
