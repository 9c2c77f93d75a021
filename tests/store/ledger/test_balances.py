"""What is kept of each job's money, with the dates of its hold: figures worked out by hand, job by job."""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Unpack

import pytest
from sqlalchemy import select, update

from broker.core.market.offers import MoneyKind
from broker.core.ports import BudgetSpec
from broker.core.values.burns import Burn
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.budgets import in_scope
from broker.ledger.entries import Account, Balance, Entry, Movement, Tags, amount_before, move
from broker.ledger.journal import OpenHold
from broker.ledger.meter import Meter
from broker.store import Store
from broker.store.engine import statements
from broker.store.engine.fields import to_micros
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.reader import StoreReader
from broker.store.ledger import ledger
from broker.store.schema.ledger import LedgerBalanceRow, SpendSumRow
from tests.store.fields import TagFields

T = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
_ids = itertools.count()


def moved(
    movement: Movement,
    micros: int,
    hours: tuple[float, float] = (0, 1),
    *,
    job: str = "j1",
    rate: int | None = None,
    money: MoneyKind = MoneyKind.CASH,
    **tags: Unpack[TagFields],
) -> tuple[Entry, ...]:
    """A movement whose time is told in hours from T, at a rate of so many micro-dollars an hour."""
    return move(
        movement,
        Money(micros),
        movement_id=f"b{next(_ids)}",
        money=money,
        at=T,
        covers=(T + hours[0] * HOUR, T + hours[1] * HOUR),
        tags=Tags(job, "ada", **tags),
        rate=None if rate is None else Money(rate),
    )


def spent_in_full(look: StoreReader, spec: BudgetSpec, start: datetime, end: datetime) -> Money:
    """What the kept sums of spend must be: added up from all entries."""
    left, right = to_micros(start), to_micros(end)
    names = ("user", "team", "project", "workload", "environment")
    counted = [
        (e.amount.micros, to_micros(e.covers_from), to_micros(e.covers_to))
        for e in look.all_entries()
        if e.account is Account.SPENT
        and e.money.value in spec.counts
        and in_scope(spec, **{name: getattr(e.tags, name) for name in names})
    ]
    return Money(sum(amount_before(*one, right) - amount_before(*one, left) for one in counted))


def post(store: Store, *movements: Sequence[Entry]) -> None:
    """All in one posting."""
    with store.writing() as tx:
        tx.post([entry for one in movements for entry in one])


def burn(store: Store, job: str = "j1") -> Burn | None:
    with store.reading() as look:
        return look.balance(job)[MoneyKind.CASH].burn


def between(amount: int, first: float, last: float, rate: int) -> Burn:
    return Burn(Money(amount), T + first * HOUR, T + last * HOUR, Money(rate))


def test_each_job_keeps_the_dates_of_its_own_hold(store: Store) -> None:
    post(store, moved(Movement.HOLD, 100, (0, 2), rate=50), moved(Movement.HOLD, 21, (1, 4), job="j2", rate=7))
    post(store, moved(Movement.SETTLE, 9, (0, 9), job="j2"))
    assert burn(store) == between(100, 0, 2, 50)
    assert burn(store, "j2") == between(12, 1, 4, 7)
    post(store, moved(Movement.TOP_UP, 5, (3, 8), job="j2", rate=3), moved(Movement.RELEASE, 60))
    assert burn(store) == between(40, 0, 2, 50)
    assert burn(store, "j2") == between(17, 3, 8, 3)
    post(store, moved(Movement.DATE, 0, (5, 6), rate=40))
    assert burn(store) == between(40, 5, 6, 40)
    with store.reading() as look:
        assert look.balance("j1") == {MoneyKind.CASH: Balance(Money(-40), Money(40), Money.ZERO)}
        assert look.balance("j2") == {MoneyKind.CASH: Balance(Money(-26), Money(17), Money(9))}


@pytest.mark.parametrize("at_once", [None, 2])
def test_what_several_jobs_hold_is_read_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, at_once: int | None
) -> None:
    for number in range(6):
        post(store, moved(Movement.HOLD, 10 + number, job=f"j{number}"))
    post(store, moved(Movement.HOLD, 3, job="j1", money=MoneyKind.SANDBOX))
    if at_once is not None:
        monkeypatch.setattr(statements, "MAX_PARAMETERS", at_once)
    some = ["j5", "j1", "j0", "gone", "j3"]
    with store.reading() as look:
        found = look.balances(some)
        assert found == {job: look.balance(job) for job in some if job != "gone"}
        assert {kind: one.held for kind, one in found["j1"].items()} == {
            MoneyKind.CASH: Money(11),
            MoneyKind.SANDBOX: Money(3),
        }
        assert look.balances([]) == {}


def test_a_fully_released_hold_leaves_no_dates_behind(store: Store) -> None:
    again = moved(Movement.HOLD, 100, (0, 9)), moved(Movement.RELEASE, 100), moved(Movement.HOLD, 36, (0, 2))
    post(store, *again)
    assert burn(store) == between(36, 0, 2, 18)
    for posted in again[:2]:
        post(store, tuple(move_again(posted, "j2")))
    with store.reading() as look:
        assert look.balance("j2")[MoneyKind.CASH].burn is None
        row = look._connection.execute(select(LedgerBalanceRow).where(LedgerBalanceRow.job_id == "j2")).one()
        assert (row.holds_from, row.holds_to, row.burns) == (0, 0, 0)
    post(store, moved(Movement.HOLD, 8, (1, 3), job="j2"))
    assert burn(store, "j2") == between(8, 1, 3, 4)


def move_again(entries: Sequence[Entry], job: str) -> Sequence[Entry]:
    one = entries[1]
    hours = ((one.covers_from - T) / HOUR, (one.covers_to - T) / HOUR)
    return moved(one.movement, abs(one.amount.micros), hours, job=job)


def test_a_job_that_is_charged_before_it_holds_anything_has_a_balance(store: Store) -> None:
    post(store, moved(Movement.ADJUST, 5))
    with store.reading() as look:
        assert look.balance("j1") == {MoneyKind.CASH: Balance(Money(-5), Money.ZERO, Money(5))}
    post(store, moved(Movement.ADJUST, 2))
    with store.reading() as look:
        assert look.balance("j1") == {MoneyKind.CASH: Balance(Money(-7), Money.ZERO, Money(7))}


def test_kinds_of_money_are_kept_apart(store: Store) -> None:
    post(store, moved(Movement.HOLD, 10, (0, 2), rate=5), moved(Movement.HOLD, 30, (0, 3), money=MoneyKind.SANDBOX))
    post(store, moved(Movement.SETTLE, 4), moved(Movement.SETTLE, 30, money=MoneyKind.SANDBOX))
    with store.reading() as look:
        assert look.balance("j1") == {
            MoneyKind.CASH: Balance(Money(-10), Money(6), Money(4)),
            MoneyKind.SANDBOX: Balance(Money(-30), Money.ZERO, Money(30)),
        }
    assert burn(store) == between(6, 0, 2, 5)


def test_holds_are_counted_by_each_tag_of_their_job(store: Store) -> None:
    budget = partial(BudgetSpec, "b", "month", "UTC", frozenset({"cash"}))
    tagged: list[tuple[TagFields, BudgetSpec]] = [
        ({"team": "nlp"}, budget(teams=("nlp",))),
        ({"project": "p"}, budget(projects=("p",))),
        ({"workload": "training"}, budget(workloads=("training",))),
        ({"environment": "prod"}, budget(environments=("prod",))),
    ]
    for number, (tags, _) in enumerate(tagged):
        post(store, moved(Movement.HOLD, 10**number, (0, 2), job=f"j{number}", rate=9, **tags))
    for number, (_, spec) in enumerate(tagged):
        with store.reading() as look:
            [hold] = look.open_holds(spec)
            assert hold == OpenHold(f"j{number}", MoneyKind.CASH, between(10**number, 0, 2, 9))
            assert look.held(spec, T) == [between(10**number, 0, 2, 9)]
            assert look.held(spec, T + 2 * HOUR) == [Burn(Money(10**number), T + 2 * HOUR, T + 2 * HOUR, Money.ZERO)]


def test_open_holds_come_in_the_order_of_their_jobs(store: Store) -> None:
    for job in ("c", "a", "b"):
        post(store, moved(Movement.HOLD, 1, job=job))
    with store.reading() as look:
        spec = BudgetSpec("b", "month", "UTC", frozenset({"cash"}))
        assert [hold.job_id for hold in look.open_holds(spec)] == ["a", "b", "c"]


def test_what_is_kept_of_some_jobs_is_made_anew_without_the_others(store: Store, clock: ManualClock) -> None:
    for job in ("j1", "j2"):
        post(store, moved(Movement.HOLD, 10, job=job), moved(Movement.SETTLE, 4, job=job))
    with store.writing() as tx:
        tx.keep_meters({job: {1: Meter.new(T, Money(1))} for job in ("j1", "j2")})
        assert isinstance(tx, StoreWriter)
        tx._connection.execute(update(LedgerBalanceRow).values(spent=LedgerBalanceRow.spent + 1))
        tx._connection.execute(update(SpendSumRow).values(micros=SpendSumRow.micros + 1))
        ledger.rebuild(tx._connection, ["j1"])
    with store.reading() as look:
        assert look.balance("j1") == {MoneyKind.CASH: Balance(Money(-10), Money(6), Money(4))}
        assert look.balance("j2") == {MoneyKind.CASH: Balance(Money(-10), Money(6), Money(5))}
        assert list(look.meters(["j1", "j2"])) == ["j2"]
        assert [sum(one.count for one in look.sums([job])[job]) for job in ("j1", "j2")] == [4, 4]
        # Of all jobs together, so it stays as it is: 8 µ$, and the one too many in each of the two sizes of slots.
        assert look.spent(BudgetSpec("b", "day", "UTC", frozenset({"cash"})), T - 12 * HOUR, T + 12 * HOUR) == Money(9)


@pytest.mark.parametrize("at_once", [1, 4])
def test_entries_are_read_in_portions_without_leaving_any_out(
    store: Store, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(ledger, "_BATCH_SIZE", at_once)
    for number in range(5):
        post(store, moved(Movement.HOLD, 10, job=f"j{number}"), moved(Movement.SETTLE, number + 1, job=f"j{number}"))
    with store.reading() as look:
        everything = look.entries()
        assert list(look.all_entries()) == everything
        assert [entry.tags.job_id for entry in everything] == [f"j{number}" for number in range(5) for _ in range(4)]
    before = [balance_of(store, f"j{number}") for number in range(5)]
    store.rebuild()
    assert [balance_of(store, f"j{number}") for number in range(5)] == before
    assert before[4] == {MoneyKind.CASH: Balance(Money(-10), Money(5), Money(5))}


def balance_of(store: Store, job: str) -> object:
    with store.reading() as look:
        return look.balance(job)
