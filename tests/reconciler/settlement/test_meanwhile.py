"""What happens between a look at what machines cost and the transaction that posts it: one thing at a time."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import pytest

from broker.core.events import events as ev
from broker.core.events.agent_events import Claimed
from broker.core.events.outcomes import Cause
from broker.core.market.offers import MoneyKind
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Movement, Tags, move
from broker.reconciler.settlement.batch import Settling, catch_up, post_due
from broker.store import Store
from broker.store.jobs.journal import StoreWriter
from broker.store.jobs.reader import StoreReader
from tests.reconciler.settlement.test_batch import EVERY, jobs, runs, settlements


class Between:
    """The store of a process to which something happens before and after each of its write transactions."""

    def __init__(self, store: Store, happens: Callable[[], None]) -> None:
        self._store, self._happens = store, happens

    def reading(self) -> AbstractContextManager[StoreReader]:
        return self._store.reading()

    def asking(self) -> AbstractContextManager[StoreReader]:
        return self._store.asking()

    @contextmanager
    def writing(self) -> Iterator[StoreWriter]:
        self._happens()
        with self._store.writing() as tx:
            yield tx
            self._happens()
        self._happens()


def claimed(tx: StoreWriter, clock: ManualClock) -> None:
    tx.append("j-0", [(1, Claimed(host="node"))], clock.now())


def topped_up(tx: StoreWriter, clock: ManualClock) -> None:
    now = clock.now()
    tx.post(
        move(
            Movement.TOP_UP, Money.usd(1), movement_id="j-0/more", money=MoneyKind.CASH, at=now, covers=(now, now),
            tags=Tags("j-0", "ann"),
        )
    )  # fmt: skip


def metered(tx: StoreWriter, clock: ManualClock) -> None:
    known = tx.meters(["j-0"])["j-0"][1]
    tx.keep_meters({"j-0": {1: replace(known, since=known.since + EVERY / 2)}})


def counted(store: Store, happens: Callable[[], None] = lambda: None) -> tuple[Between, list[None]]:
    """The store, with what happens before each transaction, and a list as long as there were transactions."""
    points: list[None] = []

    def point() -> None:
        if len(points) % 3 == 0:
            happens()
        points.append(None)

    return Between(store, point), points


def line(journal: Between, store: Store, clock: ManualClock, at_once: int = 10) -> Settling:
    """One in which all that are due wait."""
    settling = Settling(journal, EVERY, at_once=at_once)  # type: ignore[arg-type]  # a double
    for job in jobs(store):
        settling.note(*job, clock.now())
    return settling


@pytest.mark.parametrize("change", [claimed, topped_up, metered])
def test_a_job_of_which_anything_changed_waits_for_the_next_look_and_keeps_nobody(
    store: Store, clock: ManualClock, change: Callable[[StoreWriter, ManualClock], None]
) -> None:
    for number in range(3):
        runs(store, f"j-{number}", clock.now())
    clock.advance(EVERY)
    line(counted(store)[0], store, clock).settle(clock.now())
    first = clock.now()
    clock.advance(EVERY)

    def changed() -> None:
        with store.writing() as tx:
            change(tx, clock)

    line(counted(store, changed)[0], store, clock).settle(clock.now())
    both = [first, clock.now()]
    assert settlements(store) == {"j-0": [first], "j-1": both, "j-2": both}
    with store.reading() as look:
        assert look.meters(["j-1"])["j-1"][1].settled_to == clock.now()


def test_a_look_settles_no_more_than_it_may(store: Store, clock: ManualClock) -> None:
    for number in range(3):
        runs(store, f"j-{number}", clock.now())
    clock.advance(EVERY)
    settling = Settling(store, EVERY, at_most=2)
    for job in jobs(store):
        settling.note(*job, clock.now())
    settling.forget("j-9")  # nobody's
    settling.settle(clock.now())
    assert set(settlements(store)) == {"j-0", "j-1"}
    settling.settle(clock.now())
    assert set(settlements(store)) == {"j-0", "j-1", "j-2"}


def test_what_is_due_is_posted_for_all_in_a_transaction_whatever_is_remembered(
    store: Store, clock: ManualClock
) -> None:
    """One was settled before, and nobody remembers how far; for another nothing is held."""
    runs(store, "j-0", clock.now())
    clock.advance(EVERY)
    line(counted(store)[0], store, clock).settle(clock.now())
    store.rebuild()
    with store.writing() as tx:
        tx.append("free", [(event.attempt, event.body) for event in tx.events("j-0")], clock.now())
    clock.advance(EVERY)
    with store.writing() as tx:
        post_due(tx, [view for view, _, _ in jobs(store)], clock.now())
    with store.reading() as look:
        spent = [look.balance(job)[MoneyKind.CASH].spent for job in ("j-0", "free")]
        assert spent == [Money.usd(1).share(2, 60)] * 2
        assert [look.meters([job])[job][1].settled for job in ("j-0", "free")] == spent


def test_what_is_due_takes_one_transaction_for_so_many_jobs_and_none_where_nothing_is(
    store: Store, clock: ManualClock
) -> None:
    for number in range(5):
        runs(store, f"j-{number}", clock.now())
    clock.advance(EVERY)
    journal, points = counted(store)
    settling = line(journal, store, clock, at_once=2)
    settling.settle(clock.now())
    assert len(points) == 3 * 3, "two, two and one"
    assert len(settlements(store)) == 5
    for job in jobs(store):
        settling.note(*job, clock.now())
    settling.settle(clock.now())
    assert len(points) == 3 * 3


def test_all_attempts_of_a_job_catch_up_together(store: Store, clock: ManualClock) -> None:
    """The first machine was settled, and nobody remembers how far; the second is up a minute, beside the first."""
    runs(store, "j-0", clock.now())
    clock.advance(EVERY)
    line(counted(store)[0], store, clock).settle(clock.now())
    ((view, _, _),) = jobs(store)
    again = ev.LaunchRequested(key="j-0-2", engine="stage", placement=view.attempts[0].placement)
    with store.writing() as tx:
        up = [(2, body) for body in (again, ev.Launched(handle="j-0-2"), ev.MachineUp(since=clock.now()))]
        tx.append("j-0", [(1, ev.AttemptEnded(cause=Cause.PREEMPTED)), *up], clock.now())
    store.rebuild()
    clock.advance(EVERY)
    ((view, _, _),) = jobs(store)
    catch_up(store, view, clock.now())
    with store.reading() as look:
        meters = look.meters(["j-0"])["j-0"]
        assert {number: meter.settled for number, meter in meters.items()} == {
            1: Money.usd(1).share(2, 60),
            2: Money.usd(1).share(1, 60),
        }
