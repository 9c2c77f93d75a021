"""The rolling hour of sessions: money is held for an hour, and renewed while they run. However many renewals race, in
processes of their own, what is held and spent never exceeds the budget, and what the budget has is given."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.events import events as ev
from broker.core.events.views import JobView
from broker.core.job.jobs import Job, SessionPlan
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Account, faults
from broker.reconciler.controllers.top_up import TopUp
from broker.store import Store, open_store
from policies.loader import load
from tests.controllers import Asking
from tests.empty_store import empty_store
from tests.reconciler.rehearsal import MINUTE, Stage

SESSION = Job(name="dev", run="x", max_duration=timedelta(hours=8), session=SessionPlan())
HELD = Money.usd("1.20")  # an hour of the stage's spot pool at $1, and a little


def committed(store: Store, ids: list[str]) -> Money:
    """What is held and spent for all of them."""
    with store.reading() as look:
        entries = [entry for one in ids for entry in look.entries(one)]
    assert faults(entries) == []
    return sum((one.amount for one in entries if one.account in (Account.HELD, Account.SPENT)), Money.ZERO)


def renewed(store: Store, ids: list[str]) -> list[Money]:
    with store.reading() as look:
        bodies = [event.body for one in ids for event in look.events(one)]
    return [body.amount for body in bodies if isinstance(body, ev.ToppedUp)]


def now_of(store: Store, job_id: str) -> JobView:
    with store.reading() as look:
        view = look.job(job_id)
    assert view is not None
    return view


def race(open_again: Callable[[], Store], clock: ManualClock, sessions: int, budget: Money) -> tuple[Store, list[str]]:
    """Sessions whose money nears its end all at once, each looked after over a connection of its own."""
    store = open_again()
    stage, ids = Stage(store, clock), [f"j-{number}" for number in range(1, sessions + 1)]
    for one in ids:
        stage.submit(SESSION, hold=str(HELD.dollars), hours=8, job_id=one)
    stage.reconciler.tick()
    for one in ids:
        stage.mailbox.starts(f"{one}-1")
    stage.reconciler.tick()
    stage.clock.advance(58 * MINUTE)
    stage.reconciler.tick()
    text = f'version: 1\npolicy: team\nbudgets: [{{name: all, amount: "${budget.dollars}", period: month}}]\n'
    policy, together = load({"team.yaml": text}), Barrier(sessions)

    def renew(job_id: str) -> None:
        own = open_again()
        try:
            asking = Asking(TopUp(own, lambda: policy), clock.now)
            together.wait(60)
            while asking(now_of(own, job_id)):
                pass  # the stage's hold is dated at its rate first
        finally:
            own.close()

    with ThreadPoolExecutor(sessions) as threads:
        list(threads.map(renew, ids))
    return store, ids


def check(open_again: Callable[[], Store], clock: ManualClock, sessions: int, budget: Money) -> None:
    store, ids = race(open_again, clock, sessions, budget)
    try:
        total, more = committed(store, ids), renewed(store, ids)
        assert total <= budget
        step = max(more, default=Money.usd(1))
        room = budget - (total - sum(more, Money.ZERO))
        assert len(more) == min(sessions, room.micros // step.micros), "what the budget has is given"
    finally:
        store.close()


def test_of_two_that_race_for_one_hour_one_gets_it(tmp_path: Path, clock: ManualClock) -> None:
    url = empty_store(tmp_path / "store.db")

    def open_again() -> Store:
        return open_store(url, clock=clock)

    check(open_again, clock, 2, HELD * 2 + Money.usd("1.5"))
    store = open_again()
    assert len(renewed(store, ["j-1", "j-2"])) == 1
    store.close()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sessions=st.integers(2, 4), spare=st.integers(0, 6_000_000))
def test_racing_renewals_never_exceed_the_budget(
    tmp_path_factory: pytest.TempPathFactory, sessions: int, spare: int
) -> None:
    clock = ManualClock(datetime(2026, 3, 2, 12, tzinfo=UTC))
    url = empty_store(tmp_path_factory.mktemp("race") / "store.db")
    check(lambda: open_store(url, clock=clock), clock, sessions, HELD * sessions + Money(spare))


@pytest.mark.system
@pytest.mark.parametrize("spare", ["0.5", "1.5", "2.5", "9"])
def test_racing_renewals_on_postgresql(new_postgres_store: Callable[[], str], clock: ManualClock, spare: str) -> None:
    url = new_postgres_store()
    check(lambda: open_store(url, clock=clock), clock, 4, HELD * 4 + Money.usd(spare))
