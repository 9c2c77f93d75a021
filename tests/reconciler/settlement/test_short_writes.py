"""The first settlement after an upgrade reads all entries of each job before its turn to write, and a process that is
killed at any point of it leaves the rest to the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import pytest

from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags, faults, move
from broker.ledger.journal import Posted, Reading, Writing
from broker.reconciler.settlement.batch import Settling, catch_up
from broker.store import Store
from broker.store.jobs.journal import StoreWriting
from tests.reconciler.rehearsal import Stage, finish, running, settled_and_closed
from tests.reconciler.settlement.test_batch import EVERY, jobs, runs

JOBS, MINUTES = 5, 3


class Killed(BaseException):
    """The process ends here."""


class Between:
    """The store of a process to which something happens before and after each of its write transactions."""

    def __init__(self, store: Store, happens: Callable[[], None]) -> None:
        self._store, self._happens = store, happens

    def reading(self) -> AbstractContextManager[Reading]:
        return self._store.reading()

    def asking(self) -> AbstractContextManager[Reading]:
        return self._store.asking()

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        self._happens()
        with self._store.writing() as tx:
            yield tx
            self._happens()
        self._happens()


def upgraded(store: Store, clock: ManualClock) -> None:
    """Jobs that were settled each minute, on demand and spot, by a version that kept no meters."""
    for number in range(JOBS):
        runs(store, f"j-{number}", clock.now(), [CapacityType.ON_DEMAND, CapacityType.SPOT][number % 2])
    for _ in range(MINUTES):
        clock.advance(EVERY)
        settle_all(Between(store, lambda: None), store, clock)
    store.rebuild()
    assert all(not meters for _, _, meters in jobs(store))
    clock.advance(EVERY)


def settle_all(journal: Between, store: Store, clock: ManualClock) -> None:
    """One look of a new process."""
    settling = Settling(journal, EVERY, at_once=2)
    for job in jobs(store):
        settling.note(*job, clock.now())
    settling.settle(clock.now())


def test_all_entries_of_a_job_are_read_before_its_turn_to_write(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgraded(store, clock)
    monkeypatch.setattr(StoreWriting, "posted", never)
    settle_all(Between(store, lambda: None), store, clock)
    assert all(meters[1].settled_to == clock.now() for _, _, meters in jobs(store))


def never(tx: StoreWriting, job_id: str, attempt: int) -> Posted:
    raise AssertionError("every other writer waits meanwhile")


def ran(stage: Stage) -> None:
    """A job at $1 an hour has run for three minutes, and was settled in each, by a version that kept no meters."""
    running(stage)
    stage.pass_time(EVERY, times=MINUTES)
    stage.store.rebuild()
    stage.restart()
    stage.clock.advance(EVERY)


def test_so_they_are_where_there_is_news_of_the_job(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(store, clock)
    ran(stage)
    monkeypatch.setattr(StoreWriting, "posted", never)
    finish(stage, "j-1-1")
    settled_and_closed(stage)
    assert stage.money()[1] == Money.usd("1").share(MINUTES + 1, 60)


def test_so_they_are_where_the_job_has_ended_already(
    store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(store, clock)
    ran(stage)
    over = (1, ev.AttemptEnded(cause=Cause.COMPLETED)), (1, ev.MachineGone(gone_at=clock.now()))
    with store.writing() as tx:
        tx.append("j-1", [*over, (None, ev.JobEnded(state=JobState.SUCCEEDED))], clock.now())
    monkeypatch.setattr(StoreWriting, "posted", never)
    stage.pass_time()
    settled_and_closed(stage)
    assert stage.money()[1] == Money.usd("1").share(MINUTES + 1, 60)


def test_a_job_of_which_nothing_was_posted_has_nothing_to_catch_up_with(store: Store, clock: ManualClock) -> None:
    runs(store, "j-0", clock.now())
    ((view, _, _),) = jobs(store)
    catch_up(store, replace(view, id="j-1"), clock.now() + EVERY)
    with store.reading() as look:
        assert {entry.tags.job_id for entry in look.entries()} == {"j-0"}
        assert settlements_of(store) == 0


# Three transactions of two jobs at most: before each, before it is committed, and after that.
@pytest.mark.parametrize("point", range(9))
def test_killed_at_any_point_the_next_process_settles_the_rest(store: Store, clock: ManualClock, point: int) -> None:
    upgraded(store, clock)
    left = iter(range(point))

    def happens() -> None:
        if next(left, None) is None:
            raise Killed

    with pytest.raises(Killed):
        settle_all(Between(store, happens), store, clock)
    done = [view.id for view, _, meters in jobs(store) if meters]
    assert len(done) == min(2 * ((point + 1) // 3), JOBS)
    for _ in range(2):  # the second look finds nothing to do
        settle_all(Between(store, lambda: None), store, clock)
    cost = Money.usd("1").share((MINUTES + 1), 60)
    with store.reading() as look:
        assert faults(look.entries()) == []
        for number in range(JOBS):
            entries = look.entries(f"j-{number}")
            balance = look.balance(f"j-{number}")[MoneyKind.CASH]
            assert (balance.spent, balance.held) == (cost, Money.usd("24") - cost)
            assert sum(entry.movement is Movement.SETTLE for entry in entries) == 2 * (MINUTES + 1)
    assert all(meters[1].settled_to == clock.now() for _, _, meters in jobs(store))


def test_money_that_was_moved_meanwhile_is_not_settled_as_it_was(store: Store, clock: ManualClock) -> None:
    """A charge is posted between the look and the transaction, and takes all that is held."""
    upgraded(store, clock)
    before = settlements_of(store)

    def charge() -> None:
        with store.writing() as tx:
            movement, tags = "j-0/charge/1", Tags("j-0", "ann")
            held = tx.balance("j-0")[MoneyKind.CASH].held
            if held:
                at = clock.now()
                tx.post(
                    move(Movement.RELEASE, held, movement_id=movement, money=MoneyKind.CASH, at=at, covers=(at, at),
                         tags=tags)
                )  # fmt: skip

    happenings = iter([charge])
    settle_all(Between(store, lambda: next(happenings, lambda: None)()), store, clock)
    assert settlements_of(store) - before == 2 * (JOBS - 1), "the job whose money was moved waits for the next look"
    settle_all(Between(store, lambda: None), store, clock)
    with store.reading() as look:
        assert faults(look.entries()) == []
        balance = look.balance("j-0")[MoneyKind.CASH]
    assert balance.held == Money.ZERO
    assert balance.spent == Money.usd("1").share(MINUTES + 1, 60)


def settlements_of(store: Store) -> int:
    """How many entries settle machine time."""
    with store.reading() as look:
        return sum(entry.movement in (Movement.SETTLE, Movement.ADJUST) for entry in look.entries())
