"""Whole lives of jobs on the rehearsal stage: every way they can go, and the money that goes with each."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core import events as ev
from broker.core.clock import ManualClock
from broker.core.errors import LoginMissing, NoCapacity, Unreachable
from broker.core.events import Cause, JobState
from broker.core.money import Money
from broker.core.offers import MoneyKind
from broker.core.ports import EngineState, Observation
from broker.launch.progress import billed_time, on_demand_cost, work_done
from broker.ledger.entries import faults
from broker.store import Store
from tests.launch.rehearsal import MINUTE, Stage, retrying

HOUR = timedelta(hours=1)


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    return Stage(store, clock)


def running(stage: Stage) -> str:
    """Submitted, launched on the cheaper spot pool, running. Its key."""
    stage.submit()
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    assert stage.pass_time().state is JobState.RUNNING
    return "j-1-1"


def finish(stage: Stage, key: str, cause: Cause = Cause.COMPLETED) -> None:
    stage.mailbox.exits(key, cause, 0)
    stage.pass_time()
    stage.pass_time()


def settled_and_closed(stage: Stage) -> None:
    assert stage.view.closed
    assert stage.money()[0] == Money.ZERO
    with stage.store.reading() as look:
        assert faults(look.entries()) == []


def test_a_job_runs_finishes_and_is_billed_to_the_second(stage: Stage) -> None:
    key = running(stage)
    stage.pass_time(MINUTE, times=90)
    stage.clock.advance(timedelta(seconds=7))
    finish(stage, key)
    assert stage.view.state is JobState.SUCCEEDED
    assert stage.view.attempts[0].placement.offer.zone == "spot-a"
    assert stage.money()[1] == Money.usd("1").for_duration(timedelta(minutes=90, seconds=7))
    settled_and_closed(stage)


def test_an_interruption_moves_the_job_which_resumes_from_its_checkpoint(stage: Stage) -> None:
    key = running(stage)
    stage.pass_time(HOUR / 2)
    stage.mailbox.says(key, ev.CheckpointSaved(checkpoint="0001-000000000050-a", step=50))
    stage.pass_time(HOUR / 2)
    stage.mailbox.says(key, ev.NoticeReceived(source="test"))
    stage.engine.take_back(key)
    view = stage.pass_time()
    assert view.interruptions == 1
    stage.pass_time()
    assert stage.view.attempts[0].cause is Cause.PREEMPTED
    assert stage.engine.submitted == [key, "j-1-2"]
    stage.mailbox.starts("j-1-2", restored="0001-000000000050-a")
    stage.pass_time()
    stage.pass_time(HOUR)
    finish(stage, "j-1-2")
    assert stage.view.state is JobState.SUCCEEDED
    assert work_done(stage.view) == HOUR / 2 + HOUR
    assert billed_time(stage.view, stage.clock.now()) == 2 * HOUR
    assert on_demand_cost(stage.view) == Money.usd("4.5")
    settled_and_closed(stage)


def test_a_failure_is_retried_from_the_checkpoint_as_often_as_the_job_says(stage: Stage) -> None:
    stage.submit(retrying(1))
    stage.pass_time()
    for number in (1, 2):
        stage.mailbox.starts(f"j-1-{number}")
        stage.pass_time(MINUTE)
        finish(stage, f"j-1-{number}", Cause.KILLED_BY_SIGNAL)
        stage.pass_time()
    assert stage.view.state is JobState.FAILED
    assert [a.cause for a in stage.view.attempts] == [Cause.KILLED_BY_SIGNAL] * 2
    settled_and_closed(stage)


def test_sold_out_capacity_is_left_for_the_next_offer_without_costing_anything(stage: Stage) -> None:
    stage.engine.refuse = [NoCapacity("sold out")]
    stage.submit()
    stage.pass_time(timedelta(seconds=3), times=2)
    assert stage.view.attempts[0].cause is Cause.NO_CAPACITY
    assert stage.view.attempts[1].placement.offer.zone == "od"
    stage.mailbox.starts("j-1-2")
    stage.pass_time(MINUTE)
    finish(stage, "j-1-2")
    assert stage.money()[1] == Money.usd("3").for_duration(MINUTE)
    settled_and_closed(stage)


def test_an_engine_out_of_reach_is_tried_again_and_given_up_in_the_end(stage: Stage) -> None:
    stage.engine.refuse = [Unreachable("time-out")]
    stage.submit()
    assert stage.pass_time().attempts[0].handle is None
    assert stage.pass_time(MINUTE).attempts[0].handle == "j-1-1"


def test_a_launch_that_needs_a_person_fails_the_job_with_the_reason(stage: Stage) -> None:
    stage.engine.refuse = [LoginMissing("no credentials", hint="set TOKEN")]
    stage.submit()
    stage.pass_time(MINUTE, times=2)
    assert stage.view.state is JobState.FAILED
    assert "set TOKEN" in stage.view.because
    settled_and_closed(stage)


def test_cancelling_stops_checkpoint_first_then_removes_the_machine(stage: Stage) -> None:
    key = running(stage)
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
    stage.pass_time(MINUTE)
    assert stage.mailbox.leases[key][-1].stop is Cause.CANCELLED_BY_USER
    assert stage.engine.machines[key].gone_at is None, "it is given its grace to checkpoint"
    finish(stage, key, Cause.CANCELLED_BY_USER)
    assert stage.view.state is JobState.CANCELLED
    settled_and_closed(stage)


def test_an_agent_that_does_not_obey_loses_its_machine_after_the_grace(stage: Stage) -> None:
    key = running(stage)
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
    stage.pass_time(MINUTE, times=5)
    assert stage.engine.machines[key].gone_at is not None
    assert stage.view.state is JobState.CANCELLED
    settled_and_closed(stage)


def test_a_machine_that_is_silent_is_replaced_and_billed_until_it_is_known_to_be_gone(stage: Stage) -> None:
    key = running(stage)
    stage.engine.lies[key] = Observation(EngineState.UP, since=stage.engine.machines[key].since)
    stage.mailbox.nodes[key] = stage.mailbox.nodes[key].__class__(journal=stage.mailbox.nodes[key].journal)
    stage.clock.advance(5 * MINUTE)
    stage.reconciler.tick()
    assert stage.view.attempts[0].cause is Cause.MACHINE_LOST
    assert stage.engine.machines[key].gone_at is not None, "it is removed"
    stage.clock.advance(2 * MINUTE)
    stage.reconciler.tick()
    assert stage.engine.submitted == [key, "j-1-2"], "and replaced, though the engine still lies"
    assert not stage.view.attempts[0].gone
    del stage.engine.lies[key]
    stage.reconciler.tick()
    assert stage.view.attempts[0].gone_at == stage.engine.machines[key].gone_at


def test_the_lease_follows_the_money_and_settling_does_not_move_it(stage: Stage) -> None:
    stage.offers = [stage.offers[1]]
    stage.submit(hold="3.15", hours=48)
    stage.pass_time()
    first = stage.mailbox.leases["j-1-1"][-1]
    # 3.15 dollars at 3 dollars an hour pay for 63 minutes; two of them are kept for stopping.
    assert first.paid_until == stage.engine.machines["j-1-1"].since + timedelta(minutes=61)
    stage.mailbox.starts("j-1-1")
    stage.pass_time(MINUTE, times=10)
    assert stage.mailbox.leases["j-1-1"][-1].paid_until == first.paid_until


def test_a_spot_price_that_rises_shortens_the_lease(stage: Stage) -> None:
    spot = stage.offers[0]
    stage.offers = [spot]
    stage.submit(hold="2", hours=48)
    stage.pass_time()
    start = stage.engine.machines["j-1-1"].since
    stage.mailbox.starts("j-1-1")
    stage.pass_time(30 * MINUTE)
    assert stage.mailbox.leases["j-1-1"][-1].paid_until == start + 118 * MINUTE
    for price, at in (("1", start), ("3", start + 30 * MINUTE)):
        dearer = replace(spot, price=Money.usd(price), as_of=at)
        stage.store.record_poll("stage", started=at, finished=at, offers=[dearer], skipped={}, error="", complete=True)
    stage.pass_time()
    # Half a dollar is gone; the other one and a half pay for half an hour at three dollars.
    assert stage.mailbox.leases["j-1-1"][-1].paid_until == start + 58 * MINUTE
    stage.pass_time(20 * MINUTE)
    assert stage.money()[1] == Money.usd("1.5")


def test_money_that_ran_out_pauses_the_job_and_gives_back_what_is_left(stage: Stage) -> None:
    stage.submit(hold="1.05", hours=48)
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(61 * MINUTE)
    finish(stage, "j-1-1", Cause.PAID_UNTIL)
    assert stage.view.state is JobState.PAUSED_BUDGET
    assert stage.money() == (Money.ZERO, Money.usd("1").for_duration(61 * MINUTE))
    assert stage.reconciler.tick().idle


def test_a_dearer_place_is_taken_only_if_the_policies_allow_the_top_up(stage: Stage) -> None:
    stage.submit(hold="26", hours=24)
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(HOUR)
    stage.offers = [replace(stage.offers[1], zone="dear", price=Money.usd("5"))]
    stage.policy.denied = frozenset({"extend"})
    stage.engine.take_back("j-1-1")
    stage.pass_time()
    stage.pass_time()
    assert stage.view.state is JobState.PAUSED_BUDGET
    assert "refused" in stage.view.waiting_because


def test_a_job_that_finds_no_place_waits_with_the_counted_reasons_and_says_them_once(stage: Stage) -> None:
    key = running(stage)
    stage.offers = []
    stage.engine.take_back(key)
    stage.pass_time(MINUTE, times=5)
    with stage.store.reading() as look:
        kinds = [event.body.kind for event in look.events("j-1")]
    assert kinds.count("nothing_feasible") <= 1
    assert stage.view.state is JobState.INTERRUPTED


def test_killed_anywhere_and_restarted_the_job_ends_the_same(stage: Stage) -> None:
    stage.submit()
    for _ in range(3):
        stage.restart()
        stage.pass_time()
    stage.mailbox.starts("j-1-1")
    for _ in range(3):
        stage.restart()
        stage.pass_time(MINUTE)
    stage.mailbox.exits("j-1-1", Cause.COMPLETED, 0)
    for _ in range(3):
        stage.restart()
        stage.pass_time()
    assert stage.engine.submitted == ["j-1-1"]
    assert stage.view.state is JobState.SUCCEEDED
    settled_and_closed(stage)


def test_a_found_attempt_is_not_submitted_again(stage: Stage) -> None:
    """The broker died after the engine's call and before it was written down."""
    stage.submit()
    attempt = stage.view.attempts[0]
    from broker.core.ports import Launch

    stage.engine.submit(Launch(attempt.key, stage.view.job, attempt.placement, "memory:///x"))
    stage.pass_time()
    assert stage.engine.submitted == ["j-1-1"]
    assert stage.view.attempts[0].handle == "j-1-1"


def test_sandbox_money_is_kept_apart(stage: Stage) -> None:
    stage.offers = [replace(o, money=MoneyKind.SANDBOX) for o in stage.offers]
    running(stage)
    stage.pass_time(HOUR)
    with stage.store.reading() as look:
        spent = {kind: balance.spent for kind, balance in look.balance("j-1").items()}
    assert spent[MoneyKind.SANDBOX] == Money.usd("1")
    assert spent.get(MoneyKind.CASH, Money.ZERO) == Money.ZERO
