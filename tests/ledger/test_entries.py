from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.money import Money
from broker.core.offers import MoneyKind
from broker.ledger.entries import Account, Balance, Entry, Movement, Tags, balances, faults, move

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
COVERS = (AT, AT + timedelta(hours=1))

amounts = st.integers(min_value=0, max_value=10**12).map(Money)
kinds = st.sampled_from(MoneyKind)


def moved(movement: Movement, amount: Money, movement_id: str = "m", *, job: str = "j", kind: MoneyKind) -> list[Entry]:
    return list(
        move(movement, amount, movement_id=movement_id, money=kind, at=AT, covers=COVERS, tags=Tags(job, "ann"))
    )


@given(st.lists(st.tuples(st.sampled_from(Movement), amounts, st.sampled_from(["a", "b"]), kinds), max_size=20))
def test_the_ledger_sums_to_zero_after_any_sequence(steps: list[tuple[Movement, Money, str, MoneyKind]]) -> None:
    entries = [
        entry
        for number, (movement, amount, job, kind) in enumerate(steps)
        for entry in moved(movement, amount, f"m{number}", job=job, kind=kind)
    ]

    assert sum(entry.amount.micros for entry in entries) == 0
    assert all(balance.balanced for balance in balances(entries).values())
    assert not [fault for fault in faults(entries) if "balance" in fault or "mixes" in fault]


@given(amounts, amounts, kinds)
def test_a_job_from_hold_to_release(held: Money, cost: Money, kind: MoneyKind) -> None:
    covered = min(held, cost)
    entries = [
        *moved(Movement.HOLD, held, "1", kind=kind),
        *moved(Movement.SETTLE, covered, "2", kind=kind),
        *moved(Movement.ADJUST, cost - covered, "3", kind=kind),
        *moved(Movement.RELEASE, held - covered, "4", kind=kind),
    ]

    assert faults(entries) == []
    assert balances(entries).get(kind, Balance()) == Balance(available=-cost, held=Money.ZERO, spent=cost)


def test_money_may_be_given_back_but_only_by_an_adjustment() -> None:
    back = moved(Movement.ADJUST, Money(-5), kind=MoneyKind.CASH)

    assert {entry.account: entry.amount for entry in back} == {Account.AVAILABLE: Money(5), Account.SPENT: Money(-5)}
    for movement in set(Movement) - {Movement.ADJUST}:
        with pytest.raises(ValueError, match="makes no sense"):
            moved(movement, Money(-5), kind=MoneyKind.CASH)


def test_nothing_moves_nothing() -> None:
    assert moved(Movement.HOLD, Money.ZERO, kind=MoneyKind.CASH) == []


def test_faults_are_found_and_named() -> None:
    hold = moved(Movement.HOLD, Money(100), "1", kind=MoneyKind.CASH)
    mixed = [
        moved(Movement.HOLD, Money(7), "3", kind=MoneyKind.CASH)[0],
        moved(Movement.HOLD, Money(7), "3", kind=MoneyKind.SANDBOX)[1],
    ]

    assert faults(hold[:1]) == ["movement 1 does not balance"]
    assert faults([*hold, hold[0]]) == ["movement 1 does not balance"]
    assert faults(mixed) == ["movement 3 mixes kinds of money"]
    assert faults(moved(Movement.SETTLE, Money(5), "4", job="j-8", kind=MoneyKind.CASH)) == [
        "job j-8 holds -$0.000005 (cash)"
    ]
