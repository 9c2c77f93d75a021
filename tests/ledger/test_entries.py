from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.ledger.entries import (
    Account,
    Balance,
    Entry,
    Movement,
    Sum,
    Tags,
    balances,
    cash_sums,
    faults,
    move,
    movements,
)

AT = datetime(2026, 3, 2, 12, tzinfo=UTC)
COVERS_FOR = timedelta(hours=1)
COVERS = (AT, AT + COVERS_FOR)

amounts = st.integers(min_value=0, max_value=10**12).map(Money)
kinds = st.sampled_from(MoneyKind)


def moved(movement: Movement, amount: Money, movement_id: str = "m", *, job: str = "j", kind: MoneyKind) -> list[Entry]:
    return list(
        move(movement, amount, movement_id=movement_id, money=kind, at=AT, covers=COVERS, tags=Tags(job, "ann"))
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from([one for one in Movement if one is not Movement.DATE]),
            amounts,
            st.sampled_from(["a", "b"]),
            kinds,
        ),
        max_size=20,
    )
)
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
        with pytest.raises(ValueError, match="is invalid"):
            moved(movement, Money(-5), kind=MoneyKind.CASH)


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


def test_both_entries_say_what_for_when_and_for_whom() -> None:
    tags = Tags("j", "ann", team="nlp", attempt=2, provider="aws", gpus=8)
    posted = move(
        Movement.SETTLE, Money(7), movement_id="m", money=MoneyKind.CASH, at=AT + COVERS_FOR, covers=COVERS, tags=tags,
        note="metered",
    )  # fmt: skip
    same: dict[str, Any] = {
        "movement_id": "m", "movement": Movement.SETTLE, "money": MoneyKind.CASH, "at": AT + COVERS_FOR,
        "covers_from": AT, "covers_to": AT + COVERS_FOR, "tags": tags, "note": "metered",
    }  # fmt: skip

    assert posted == (
        Entry(account=Account.HELD, amount=Money(-7), **same),
        Entry(account=Account.SPENT, amount=Money(7), **same),
    )


def entry(account: Account, micros: int, movement: Movement = Movement.HOLD) -> Entry:
    return Entry("m", movement, account, Money(micros), MoneyKind.CASH, AT, *COVERS, Tags("j", "ann"))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param([entry(Account.AVAILABLE, -5), entry(Account.HELD, 6)], id="a sum that is not zero"),
        pytest.param([entry(Account.AVAILABLE, -5), entry(Account.SPENT, 5)], id="an account off its route"),
        pytest.param(
            [entry(Account.AVAILABLE, -5), entry(Account.HELD, 3), entry(Account.HELD, 2)], id="three entries"
        ),
        pytest.param([entry(Account.AVAILABLE, 0)], id="half of a movement"),
    ],
)
def test_each_fault_of_a_movement_is_found_by_itself(wrong: list[Entry]) -> None:
    assert faults(wrong) == ["movement m does not balance"]


def test_each_movement_of_a_sum_has_two_entries() -> None:
    def summed(count: int) -> Sum:
        return Sum(
            "", Movement.SETTLE, Account.SPENT, Money(9), MoneyKind.CASH, AT, *COVERS, Tags("j", "ann"), count=count
        )

    assert movements([]) == 0
    assert movements([summed(3), summed(3)]) == 3
    one = Sum("", Movement.HOLD, Account.HELD, Money(9), MoneyKind.CASH, AT, *COVERS, Tags("j", "ann"))
    assert one.count == 1, "a sum that does not say so is of one entry"


def test_a_date_moves_no_money() -> None:
    start = datetime(2026, 3, 2, tzinfo=UTC)
    about: Any = {
        "movement_id": "d", "money": MoneyKind.CASH, "at": start, "covers": (start, start), "tags": Tags("j", "ann"),
    }  # fmt: skip
    assert [entry.amount for entry in move(Movement.DATE, Money.ZERO, **about)] == [Money.ZERO] * 2
    for amount in (Money(5), Money(-5)):
        with pytest.raises(ValueError, match="is invalid"):
            move(Movement.DATE, amount, **about)


@given(st.lists(st.tuples(amounts, kinds), max_size=8))
def test_the_use_of_capacity_paid_earlier_is_no_cash(holds: list[tuple[Money, MoneyKind]]) -> None:
    entries = [
        entry
        for number, (amount, kind) in enumerate(holds)
        for entry in moved(Movement.HOLD, amount, f"m{number}", kind=kind)
    ]
    held = sum((amount for amount, kind in holds if kind is not MoneyKind.AMORTISED), Money.ZERO)
    assert cash_sums(balances(entries)) == (Money.ZERO, held)
