"""Spend and corrections land in the period in which they were incurred, whatever was known when it was settled."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.ports import BudgetSpec, EngineState, Observation
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.budgets import period_containing
from broker.ledger.entries import Account, faults
from broker.reconciler.settlement.batch import Settling, post_due
from broker.store import Store, open_store
from tests.empty_store import empty_store
from tests.reconciler.rehearsal import MINUTE, Stage, offer
from tests.reconciler.settlement.test_batch import runs
from tests.store.work import statements_work

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
DECEMBER = datetime(2026, 12, 1, tzinfo=UTC)


def spent(store: Store, period: str, at: datetime, timezone: str = "UTC") -> Money:
    """What counts as spent in the budget's period around ``at``."""
    budget = BudgetSpec("b", period, timezone, frozenset({"cash"}))
    with store.reading() as look:
        return look.spent(budget, *period_containing(period, timezone, at))


def told(store: Store, at: datetime, price: str, now: datetime) -> None:
    """A poll that ends now tells the price of the spot pool, in force since ``at``."""
    pool = replace(offer(at, "here", CapacityType.SPOT), price=Money.usd(price))
    store.record_poll("stage", started=now, finished=now, offers=[pool])


def tick(store: Store, clock: ManualClock) -> None:
    """Settle what is due, as a look of the reconciler does."""
    settling = Settling(store, MINUTE)
    with store.reading() as look:
        views = look.unclosed()
        ids = [view.id for view in views]
        sums, meters = look.sums(ids), look.meters(ids)
    for view in views:
        settling.note(view, sums.get(view.id, ()), meters.get(view.id, {}), clock.now())
    settling.settle(clock.now())
    with store.reading() as look:
        assert faults(look.entries()) == []


def gone(store: Store, clock: ManualClock, at: datetime | None = None) -> JobView:
    """Settle the job, after its machine went away at that time where one is given."""
    with store.writing() as tx:
        view = tx.job("j-0")
        assert view is not None
        if at is not None:
            over = ev.AttemptEnded(cause=Cause.PREEMPTED), ev.MachineGone(gone_at=at)
            view = tx.append("j-0", [(1, body) for body in over], clock.now())
        post_due(tx, [view], clock.now())
    return view


def test_a_price_known_late_is_booked_in_the_month_in_which_it_was_in_force(store: Store, clock: ManualClock) -> None:
    """At $1 until 12 hours before December, and at $90 from then on, which is known an hour into December only."""
    clock.time = DECEMBER - DAY
    told(store, clock.now(), "1", clock.now())
    runs(store, "j-0", clock.now(), CapacityType.SPOT)
    for _ in range(25):
        clock.advance(HOUR)
        tick(store, clock)
    told(store, DECEMBER - 12 * HOUR, "90", clock.now())
    clock.advance(MINUTE)
    tick(store, clock)
    assert spent(store, "month", DECEMBER - DAY) == Money.usd("12") + Money.usd("90") * 12
    assert spent(store, "month", DECEMBER) == Money.usd("91.5")
    assert spent(store, "day", DECEMBER - DAY, "Asia/Kathmandu") >= Money.ZERO


def test_an_end_found_out_late_is_taken_back_from_the_period_after_it(store: Store, clock: ManualClock) -> None:
    clock.time = DECEMBER - 2 * HOUR
    runs(store, "j-0", clock.now())
    for _ in range(4):
        clock.advance(HOUR)
        tick(store, clock)
    assert spent(store, "month", DECEMBER) == Money.usd("2")
    gone(store, clock, DECEMBER - HOUR)
    assert spent(store, "month", DECEMBER - DAY) == Money.usd("1")
    assert spent(store, "month", DECEMBER) == Money.ZERO
    with store.reading() as look:
        balance = look.balance("j-0")[MoneyKind.CASH]
    assert balance.held == Money.usd("23"), "what was settled too much is held again"


@pytest.mark.parametrize("ahead", [True, False])
def test_a_clock_that_is_wrong_for_one_look_leaves_no_trace(stage: Stage, clock: ManualClock, ahead: bool) -> None:
    """The hold is as large as before once the clock is right, so nobody else is let in on its money."""
    started = clock.now()
    stage.submit(hold="100", hours=24 * 1000)
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(HOUR, times=2)
    with stage.store.reading() as look:
        before = look.balance("j-1")
    clock.time += 400 * DAY if ahead else -400 * DAY
    stage.reconciler.tick()
    clock.time -= 400 * DAY if ahead else -400 * DAY
    stage.reconciler.tick()
    with stage.store.reading() as look:
        after = look.balance("j-1")
        assert after == before
        assert faults(look.entries()) == []
    dates = after[MoneyKind.CASH].dates
    assert dates is not None
    assert dates.end >= clock.now() + 98 * HOUR, "the time for which it was judged is not over"
    for days in range(-402, 402, 20):
        assert spent(stage.store, "month", started + days * DAY) >= Money.ZERO
    assert spent(stage.store, "month", started) == Money.usd("2")
    assert spent(stage.store, "month", started + 400 * DAY) == Money.ZERO
    stage.pass_time(HOUR)
    assert spent(stage.store, "month", started) == Money.usd("3")


def test_what_was_never_held_does_not_come_to_be_held(store: Store, clock: ManualClock) -> None:
    """Of $48 that a machine costs, $24 are held. A correction by $30 takes back $24 that were not held, then $6."""
    runs(store, "j-0", clock.now())
    start = clock.now()
    clock.advance(2 * DAY)
    tick(store, clock)
    gone(store, clock, start + 18 * HOUR)
    with store.reading() as look:
        balance = look.balance("j-0")[MoneyKind.CASH]
    assert (balance.held, balance.spent) == (Money.usd("6"), Money.usd("18"))


def with_history(store: Store, clock: ManualClock, settlements: int, capacity: CapacityType) -> None:
    """A job settled so many times, the price of its pool changed each time."""
    told(store, clock.now(), "1", clock.now())
    runs(store, "j-0", clock.now(), capacity)
    for minute in range(settlements):
        clock.advance(MINUTE)
        told(store, clock.now(), f"1.{minute % 97:02}", clock.now())
        with store.writing() as tx:
            view = tx.job("j-0")
            assert view is not None
            post_due(tx, [view], clock.now())


@pytest.mark.parametrize(
    "capacity", [CapacityType.ON_DEMAND, pytest.param(CapacityType.SPOT, marks=pytest.mark.system)]
)
def test_a_settlement_costs_the_same_after_a_long_history(
    clock: ManualClock, tmp_path: Path, capacity: CapacityType
) -> None:
    """Counted in the steps of the database: rows that it reads to add them up count as well."""

    def work(settlements: int) -> int:
        store = open_store(empty_store(tmp_path / f"{settlements}.db"), clock=clock)
        with_history(store, clock, settlements, capacity)
        clock.advance(MINUTE)
        with statements_work(store) as counted:
            tick_once(store, clock)
        return counted.done

    assert work(100) < 1.1 * work(10)


def tick_once(store: Store, clock: ManualClock) -> None:
    settling = Settling(store, MINUTE)
    with store.reading() as look:
        (view,) = look.unclosed()
        settling.note(view, look.sums([view.id])[view.id], look.meters([view.id])[view.id], clock.now())
    settling.settle(clock.now())


def test_a_gone_machine_is_billed_until_it_was_gone_and_not_until_now(stage: Stage, clock: ManualClock) -> None:
    stage.submit()
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(HOUR, times=2)
    gone_at = clock.now() - 30 * MINUTE
    machine = stage.engine.machines["j-1-1"]
    stage.engine.lies["j-1-1"] = Observation(EngineState.GONE, machine.since, gone_at, interrupted=True)
    stage.pass_time(10 * MINUTE)
    with stage.store.reading() as look:
        own = [entry for entry in look.entries("j-1") if entry.account is Account.SPENT and entry.tags.attempt == 1]
        assert sum((entry.amount for entry in own), Money.ZERO) == Money.usd("1.5")
        assert max(entry.covers_to for entry in own if entry.amount > Money.ZERO) == machine.since + 2 * HOUR
        assert [entry.covers_from for entry in own if entry.amount < Money.ZERO] == [gone_at]
