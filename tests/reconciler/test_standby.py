"""A job moves to a machine that boots while it works: what each death on the way leads to, and what it costs."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.core.errors import RetryLater
from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, Claimed, CommandStarted, Restored, StandsBy
from broker.core.events.outcomes import AttemptState, Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import MoveAdvantage, MovesElsewhere
from broker.core.job.jobs import CheckpointPlan, Job, Work
from broker.core.market.offers import CapacityType, MoneyKind
from broker.core.ports import PolicyDefaults
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Account, Movement
from broker.reconciler.controllers.placement import Plans
from broker.reconciler.controllers.strategy_advice import Moving, Strategist
from broker.reconciler.progress import billed_time, machine_time
from broker.store import open_store
from tests.empty_store import empty_store
from tests.reconciler.rehearsal import MINUTE, OpenPolicy, Stage, settled_and_closed

OLD, NEW = "j-1-1", "j-1-2"
LAST = "0001-000000000009-000000-step_9"


class Wish:
    """A strategy that wants the spot machine beside the present one, as long as the test says so."""

    def __init__(self, pool: str) -> None:
        self.pool, self.asked, self.on, self.stops = pool, 0, True, False

    def moves(self, view: JobView, plans: Plans, now: datetime) -> MovesElsewhere | None:
        self.asked += 1
        assert view.latest is not None
        if not self.on or view.latest.placement.offer.pool == self.pool:
            return None
        beside = plans.overlap or not self.stops
        return MovesElsewhere(advantage=MoveAdvantage.STRATEGY, to=CapacityType.SPOT, pool=self.pool, beside=beside)

    def forget(self, job_id: str) -> None:
        """Nothing is remembered."""


def allowing(*, overlap: bool) -> OpenPolicy:
    return OpenPolicy(defaults=PolicyDefaults(grants_cash=True, hold_quantile=100.0, overlap=overlap))


def at_work(
    stage: Stage, hold: str = "20", job: Mapping[str, Any] | None = None, *, start: int = 0, knows_standbys: bool = True
) -> Wish:
    """On-demand capacity at $3 has worked for ten minutes; spot capacity at $1 appears, and the strategy wants it."""
    spot, steady = stage.offers
    stage.offers = [steady]
    made = Job(name="j", run="x", work=Work(duration=timedelta(hours=2)), max_cost=Money.usd(hold), **(job or {}))
    stage.submit(made, hold=hold, hours=6)
    stage.pass_time()
    stage.pass_time(MINUTE, times=start)
    stage.mailbox.starts(OLD, knows_standbys=knows_standbys)
    stage.pass_time(MINUTE, times=10)
    assert stage.view.state is JobState.RUNNING
    stage.offers = [spot, steady]
    stage.policy = allowing(overlap=True)
    wish = Wish(spot.pool)
    restarted(stage, wish)
    return wish


@pytest.fixture
def wish(stage: Stage) -> Wish:
    return at_work(stage)


def restarted(stage: Stage, wish: Wish | Strategist) -> None:
    """A new broker process over the same store."""
    stage.restart()
    place, enforce = stage.place, stage.enforce
    moving = Moving(
        stage.store,
        wish,  # type: ignore[arg-type]  # as much of a strategy as is asked
        lambda view, now: place.plans(view, stage.policy, now),
        MINUTE,
        stand_by=place.stand_by,
    )
    stage.begin(place, enforce, moving)


def booting(stage: Stage) -> None:
    stage.pass_time(MINUTE, times=2)
    assert stage.view.standby is not None
    assert stage.engine.submitted == [OLD, NEW]


def ready(stage: Stage) -> None:
    booting(stage)
    stage.mailbox.says(NEW, Claimed(host="new"), StandsBy())
    stage.pass_time(MINUTE)


def stopping(stage: Stage) -> None:
    ready(stage)
    assert stage.attempt(1).stop_requested is Cause.MOVED


def handed(stage: Stage) -> None:
    """The old attempt has saved and reported its end; its machine still exists."""
    stopping(stage)
    stage.mailbox.says(OLD, CheckpointSaved(checkpoint=LAST, step=9))
    stage.mailbox.exits(OLD, Cause.MOVED)
    stage.pass_time()
    stage.pass_time()


def finished(stage: Stage, key: str) -> None:
    """The attempt restores, works for an hour, and succeeds."""
    stage.mailbox.says(key, Restored(checkpoint=LAST), CommandStarted())
    stage.pass_time(MINUTE, times=60)
    stage.mailbox.exits(key, Cause.COMPLETED, 0)
    stage.pass_time(MINUTE, times=3)


def billed_by_hand(stage: Stage) -> None:
    """Each attempt costs its machine's time to the micro-dollar, all of it from the hold, and nothing stays held."""
    settled_and_closed(stage)
    with stage.store.reading() as look:
        entries = look.entries()
    for attempt in stage.view.attempts:
        machine = stage.engine.machines.get(attempt.key)
        own = [e.amount for e in entries if e.account is Account.SPENT and e.tags.attempt == attempt.number]
        rate = attempt.placement.rate
        assert machine is None or machine.gone_at is not None
        due = (
            Money.ZERO
            if machine is None or machine.gone_at is None
            else rate.for_duration(machine.gone_at - machine.since)
        )
        assert sum(own, Money.ZERO) == due
    assert not [e for e in entries if e.movement is Movement.ADJUST], "more than was held was spent"


def may_write(stage: Stage, key: str) -> bool:
    lease = stage.mailbox.leases[key][-1]
    return not lease.standby and lease.stop is None


def test_the_job_works_until_the_new_machine_is_ready_and_is_handed_over_with_nothing_lost(
    stage: Stage, wish: Wish
) -> None:
    booting(stage)
    assert (stage.view.state, stage.view.latest) == (JobState.RUNNING, stage.attempt(1))
    assert stage.attempt(1).stop_requested is None, "it works while the other one boots"
    assert (may_write(stage, OLD), may_write(stage, NEW)) == (True, False)
    stage.pass_time(MINUTE, times=3)
    assert wish.asked == 1, "what is decided is not asked again"
    stage.mailbox.says(NEW, Claimed(host="new"), StandsBy())
    stage.pass_time(MINUTE)
    assert stage.attempt(1).stop_requested is Cause.MOVED
    stage.pass_time()
    assert (may_write(stage, OLD), may_write(stage, NEW)) == (False, False)
    stage.mailbox.says(OLD, CheckpointSaved(checkpoint=LAST, step=9))
    stage.mailbox.exits(OLD, Cause.MOVED)
    stage.engine.keeps_machines = RuntimeError("it takes minutes to end a machine")
    stage.pass_time()
    stage.pass_time()
    assert stage.view.latest == stage.attempt(2), "it does not wait for the old machine to be gone"
    assert may_write(stage, NEW)
    stage.engine.keeps_machines = None
    finished(stage, NEW)
    assert stage.view.state is JobState.SUCCEEDED
    assert [a.cause for a in stage.view.attempts] == [Cause.MOVED, Cause.COMPLETED]
    assert (stage.view.interruptions, stage.view.failures) == (0, 0)
    billed_by_hand(stage)


def test_a_new_machine_that_is_taken_costs_the_old_one_nothing_but_money(stage: Stage, wish: Wish) -> None:
    booting(stage)
    wish.on = False
    stage.engine.take_back(NEW)
    stage.pass_time(MINUTE, times=2)
    assert stage.attempt(2).cause is Cause.PREEMPTED
    assert (stage.view.state, stage.view.latest) == (JobState.RUNNING, stage.attempt(1))
    assert stage.attempt(1).stop_requested is None
    assert stage.view.interruptions == 0, "the job was not interrupted"
    assert may_write(stage, OLD)
    assert not may_write(stage, NEW)
    finished(stage, OLD)
    assert stage.view.state is JobState.SUCCEEDED
    billed_by_hand(stage)


def test_a_new_machine_that_is_not_ready_in_time_is_dropped(stage: Stage, wish: Wish) -> None:
    booting(stage)
    wish.on = False
    stage.pass_time(MINUTE, times=12)  # twice the five minutes that a start takes as a rule
    assert stage.attempt(2).cause is Cause.NOT_NEEDED
    assert stage.attempt(2).gone
    assert stage.attempt(1).stop_requested is None
    assert stage.mailbox.leases[NEW][-1].standby, "it never fences the one that works"
    assert stage.attempt(2).up_since is not None
    now = stage.clock.now()
    assert billed_time(stage.view, now) == machine_time(stage.attempt(1), now)
    finished(stage, OLD)
    billed_by_hand(stage)


def test_a_job_that_needed_longer_to_start_is_given_twice_that_time(stage: Stage) -> None:
    at_work(stage, start=12)
    booting(stage)
    stage.pass_time(MINUTE, times=20)
    assert stage.view.standby == stage.attempt(2), "none was dropped meanwhile"
    stage.pass_time(MINUTE, times=8)
    assert stage.attempt(2).cause is Cause.NOT_NEEDED


def test_a_standby_that_was_dropped_is_followed_by_another_only_after_longer_and_longer_pauses(
    stage: Stage, wish: Wish
) -> None:
    stage.pass_time(MINUTE, times=65)
    pauses = [
        (later.requested_at - earlier.ended_at) // MINUTE
        for earlier, later in pairwise(stage.view.attempts[1:])
        if earlier.cause is Cause.NOT_NEEDED and earlier.ended_at
    ]
    assert pauses == [10, 20]


def test_no_standby_begins_beside_an_agent_that_would_take_it_for_its_successor(stage: Stage) -> None:
    at_work(stage, knows_standbys=False)
    stage.pass_time(MINUTE, times=3)
    assert stage.engine.submitted == [OLD]


@pytest.mark.parametrize("stops", [True, False])
def test_a_refused_standby_leaves_the_ordinary_move(stage: Stage, stops: bool) -> None:
    wish = at_work(stage, "1.2")
    wish.stops = stops
    stage.pass_time(MINUTE, times=2)
    assert stage.engine.submitted == [OLD]
    assert stage.attempt(1).stop_requested is (Cause.MOVED if stops else None)


def test_an_old_machine_that_dies_while_the_new_one_boots_is_replaced_by_it(stage: Stage, wish: Wish) -> None:
    booting(stage)
    stage.engine.take_back(OLD)
    stage.pass_time(timedelta(seconds=1))
    stage.pass_time(timedelta(seconds=1))
    assert stage.view.latest == stage.attempt(2)
    assert may_write(stage, NEW)
    assert stage.view.interruptions == 1
    stage.mailbox.says(NEW, Claimed(host="new"))
    finished(stage, NEW)
    assert len(stage.view.attempts) == 2
    billed_by_hand(stage)


def test_an_old_machine_that_falls_silent_delays_the_handover_and_is_fenced(stage: Stage, wish: Wish) -> None:
    ready(stage)
    silent = stage.mailbox.nodes.pop(OLD)
    for _ in range(30):
        stage.pass_time(timedelta(seconds=15))
        if stage.attempt(1).state.final:
            break
    ended = stage.clock.now()
    assert not stage.attempt(1).gone or stage.attempt(1).gone_at
    while not may_write(stage, NEW):
        stage.pass_time(timedelta(seconds=15))
        assert stage.clock.now() - ended < 3 * MINUTE
    assert not may_write(stage, OLD)
    stage.mailbox.nodes[OLD] = silent
    finished(stage, NEW)
    billed_by_hand(stage)


def test_a_new_machine_that_dies_between_the_stop_and_the_handover_leads_to_an_ordinary_start(
    stage: Stage, wish: Wish
) -> None:
    stopping(stage)
    stage.engine.take_back(NEW)
    stage.pass_time(MINUTE)
    stage.mailbox.exits(OLD, Cause.MOVED)
    stage.pass_time(MINUTE, times=3)
    assert [a.state.final for a in stage.view.attempts] == [True, True, False]
    assert stage.view.latest == stage.attempt(3)
    stage.mailbox.says("j-1-3", Claimed(host="third"))
    finished(stage, "j-1-3")
    billed_by_hand(stage)


def test_a_job_that_ends_while_the_new_machine_boots_drops_it(stage: Stage, wish: Wish) -> None:
    booting(stage)
    stage.mailbox.exits(OLD, Cause.COMPLETED, 0)
    stage.pass_time(MINUTE, times=4)
    assert stage.view.state is JobState.SUCCEEDED
    assert stage.attempt(2).cause is Cause.NOT_NEEDED
    billed_by_hand(stage)


def test_a_cancelled_job_ends_both(stage: Stage, wish: Wish) -> None:
    booting(stage)
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
    stage.pass_time()
    stage.mailbox.exits(OLD, Cause.CANCELLED_BY_USER)
    stage.pass_time(MINUTE, times=4)
    assert stage.view.state is JobState.CANCELLED
    assert {a.state for a in stage.view.attempts} == {AttemptState.CANCELLED}
    billed_by_hand(stage)


@pytest.mark.parametrize("until", [booting, ready, stopping, handed])
def test_a_broker_that_is_started_anew_carries_on(stage: Stage, wish: Wish, until: Callable[[Stage], None]) -> None:
    until(stage)
    restarted(stage, wish)
    if until is booting:
        stage.mailbox.says(NEW, Claimed(host="new"), StandsBy())
        stage.pass_time(MINUTE)
    stage.pass_time(MINUTE)
    if until is not handed:
        stage.mailbox.exits(OLD, Cause.MOVED)
    stage.pass_time(timedelta(seconds=1), times=2)
    assert may_write(stage, NEW)
    assert stage.engine.submitted == [OLD, NEW]
    finished(stage, NEW)
    billed_by_hand(stage)


def test_a_policy_may_forbid_it(stage: Stage, wish: Wish) -> None:
    stage.policy = allowing(overlap=False)
    stage.pass_time(MINUTE, times=3)
    assert stage.engine.submitted == [OLD]
    assert stage.attempt(1).stop_requested is None


class NoHistory:
    """Pools that nobody recorded."""

    ticks = 0
    available: Mapping[str, Sequence[bool]] = {}
    price: Mapping[str, Sequence[float]] = {}

    def at(self, tick: int) -> dict[str, float]:
        raise AssertionError("there is no tick")


@pytest.mark.parametrize("overlap", [True, False])
def test_a_job_ahead_of_its_deadline_leaves_on_demand_without_a_stop_if_the_policy_allows_it(
    stage: Stage, overlap: bool
) -> None:
    plan = CheckpointPlan(every=10 * MINUTE)
    at_work(stage, job={"deadline": timedelta(hours=6), "checkpoint": plan})
    stage.policy = allowing(overlap=overlap)
    restarted(stage, Strategist(lambda offers, end, reach, gap: NoHistory()))
    stage.mailbox.says(OLD, CheckpointSaved(checkpoint=LAST, step=9))
    stage.pass_time(MINUTE, times=6)
    assert stage.engine.submitted == ([OLD, NEW] if overlap else [OLD]), "it is not two changeovers ahead"
    assert stage.attempt(1).stop_requested is None


@pytest.mark.parametrize(("most", "begun"), [("7", True), ("1.2", False)])
def test_both_machines_are_held_for_within_the_most_that_the_job_may_cost(stage: Stage, most: str, begun: bool) -> None:
    """Ten minutes of both and two to stop cost $0.80; half a dollar is spent, and each minute takes five cents."""
    at_work(stage, most)
    stage.pass_time(MINUTE, times=2)
    assert (stage.view.standby is not None) is begun
    held, spent = stage.money(MoneyKind.CASH)
    assert held + spent <= Money.usd(most)
    if begun:
        until = stage.attempt(2).standby_until
        assert until is not None
        for key, rate, other in ((OLD, 3, 1), (NEW, 1, 3)):
            paid = stage.mailbox.leases[key][-1].paid_until
            assert paid is not None
            own, others = (end + 2 * MINUTE - stage.clock.now() for end in (paid, until))
            assert Money.usd(rate).for_duration(own) + Money.usd(other).for_duration(others) <= held


ACTIONS = [
    "ready",
    "old silent",
    "old speaks",
    "old taken",
    "new taken",
    "old exits",
    "new broker",
    "unreachable",
    "wait",
]


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.sampled_from([1, 20, 70, 300])), min_size=3, max_size=9))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_in_whichever_order_one_may_write_and_the_bill_is_that_of_both(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[str, int]]
) -> None:
    clock = ManualClock(datetime(2026, 3, 2, 12, tzinfo=UTC))
    store = open_store(empty_store(tmp_path_factory.mktemp("store") / "store.db"), clock=clock)
    stage = Stage(store, clock)
    wish = at_work(stage)
    booting(stage)
    for action, seconds in story:
        happen(stage, wish, action)
        stage.pass_time(timedelta(seconds=seconds))
        at_most_one_may_write(stage)
    stage.mailbox.broken = None
    wish.on = False
    for _ in range(60):
        if stage.view.state.final:
            break
        latest = stage.view.latest
        if latest is not None and not latest.state.final and latest.handle and latest.claimed_at is None:
            stage.mailbox.starts(latest.key)
        elif latest is not None and may_write(stage, latest.key) and latest.claimed_at is not None:
            stage.mailbox.exits(latest.key, Cause.COMPLETED, 0)
        elif latest is not None and latest.stop_requested is not None:
            stage.mailbox.exits(latest.key, latest.stop_requested)
        stage.pass_time(timedelta(seconds=30))
        at_most_one_may_write(stage)
    stage.pass_time(MINUTE, times=4)
    assert stage.view.state is JobState.SUCCEEDED
    billed_by_hand(stage)
    store.close()


def happen(stage: Stage, wish: Wish, action: str) -> None:
    node, machines = stage.mailbox.nodes.get(OLD), stage.engine.machines
    match action:
        case "ready" if machines[NEW].gone_at is None and stage.attempt(2).ready_at is None:
            stage.mailbox.says(NEW, Claimed(host="new"), StandsBy())
        case "old silent":
            stage.mailbox.nodes.pop(OLD, None)
        case "old speaks" if machines[OLD].gone_at is None and node is None:
            stage.mailbox.starts(OLD)
        case "old taken" if machines[OLD].gone_at is None:
            stage.engine.take_back(OLD)
        case "new taken" if machines[NEW].gone_at is None:
            stage.engine.take_back(NEW)
        case "old exits" if stage.attempt(1).stop_requested is not None and node is not None:
            stage.mailbox.exits(OLD, Cause.MOVED)
        case "new broker":
            restarted(stage, wish)
        case "unreachable":
            stage.mailbox.broken = None if stage.mailbox.broken else RetryLater("the run folder is out of reach")


def at_most_one_may_write(stage: Stage) -> None:
    """By the documents alone: no attempt without a lease, whose lease says standby, or before one whose lease does
    not."""
    written = {a.number: stage.mailbox.leases.get(a.key) for a in stage.view.attempts}
    numbers = [number for number, leases in written.items() if leases and not leases[-1].standby]
    last = stage.view.attempt(max(numbers))
    assert last is not None
    older = [a for a in stage.view.attempts if a.number < last.number]
    assert all(a.state.final for a in older), "whoever gets its turn comes after the end of the one before"
