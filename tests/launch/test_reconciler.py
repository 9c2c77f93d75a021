"""Whole lives of jobs on the rehearsal stage: every way they can go, and the money that goes with each."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core import events as ev
from broker.core.clock import ManualClock
from broker.core.errors import LoginMissing, Malformed, NoCapacity, Unreachable
from broker.core.money import Money
from broker.core.offers import MoneyKind
from broker.core.outcomes import Cause, JobState
from broker.core.ports import EngineState, Launch, Observation
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
    for _ in range(8):
        stage.clock.advance(MINUTE / 2)
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


def test_a_machine_that_its_engine_forgot_before_it_spoke_is_ended_all_the_same(stage: Stage) -> None:
    """Nobody would ever look at it again."""
    stage.submit()
    stage.pass_time()
    stage.engine.lies["j-1-1"] = Observation(EngineState.LOST)
    stage.pass_time(MINUTE / 2, times=32)
    assert stage.view.attempts[0].over
    assert stage.engine.machines["j-1-1"].gone_at is not None
    assert stage.mailbox.leases["j-1-1"][-1].stop is not None


def test_what_speaks_is_left_alone_by_an_engine_that_forgot_it(stage: Stage) -> None:
    key = running(stage)
    stage.engine.lies[key] = Observation(EngineState.LOST)
    assert stage.pass_time(MINUTE / 2, times=20).state is JobState.RUNNING
    assert len(stage.view.attempts) == 1
    stage.engine.lies.clear()
    finish(stage, key)
    settled_and_closed(stage)


def test_a_clock_that_jumps_and_comes_back_keeps_nobody_waiting(stage: Stage) -> None:
    stage.submit()
    stage.pass_time()
    there = stage.clock.now()
    stage.clock.advance(HOUR)
    stage.engine.take_back("j-1-1")
    offers, stage.offers = stage.offers, []
    stage.pass_time(times=2)
    assert stage.view.attempts[0].over
    stage.clock.time, stage.offers = there + MINUTE, offers
    stage.pass_time(times=2)
    assert stage.engine.submitted[1:] == ["j-1-2"]


def test_a_late_checkpoint_is_counted_once_and_keeps_nobody_waiting(stage: Stage) -> None:
    """The agent wrote notice and checkpoint after the attempt was given up: read once, in order, whatever it is."""
    key = running(stage)
    stage.engine.lies[key] = Observation(EngineState.UP, since=stage.engine.machines[key].since)
    for _ in range(8):
        stage.clock.advance(MINUTE / 2)
        stage.reconciler.tick()
    assert stage.view.attempts[0].cause is Cause.MACHINE_LOST
    stage.mailbox.says(
        key, ev.NoticeReceived(source="x"), ev.CheckpointSaved(checkpoint="0001-000000000070-a", step=70)
    )
    for _ in range(4):
        stage.reconciler.tick()
    lost = stage.view.attempts[0]
    assert [saved.step for saved in lost.checkpoints] == [70]
    assert lost.agent_events == 5


def test_a_mistake_over_one_job_does_not_keep_others_waiting(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.submit()

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(stage.reconciler, "_advance", broken)
        assert stage.reconciler.tick().open == 1
    assert stage.pass_time().attempts[0].handle == "j-1-1"


def test_what_an_earlier_process_launched_is_not_forgotten_because_a_login_expired(stage: Stage) -> None:
    """Launched, and killed before that was written down; then the engine cannot be asked for a while."""
    stage.submit()
    attempt = stage.view.attempts[0]
    stage.engine.submit(Launch(attempt.key, stage.view.job, attempt.placement, "memory:///x"))
    for error in (LoginMissing("expired", hint="log in"), Unreachable("time-out")):
        stage.engine.silent = error
        stage.pass_time(20 * MINUTE, times=3)
        assert not stage.view.attempts[0].state.final
        assert str(error) in stage.view.waiting_because
    stage.engine.silent = None
    stage.pass_time()
    assert stage.view.attempts[0].handle == attempt.key
    assert stage.view.waiting_because == ""


def test_an_agent_that_ignores_its_lease_is_stopped_by_the_broker(stage: Stage) -> None:
    stage.offers = [stage.offers[1]]
    stage.submit(hold="6", hours=48)
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(MINUTE, times=125)
    machine = stage.engine.machines["j-1-1"]
    assert stage.view.attempts[0].cause is Cause.PAID_UNTIL
    assert machine.gone_at is not None
    assert machine.gone_at <= machine.since + 2 * HOUR + 2 * MINUTE
    assert stage.view.state is JobState.PAUSED_BUDGET


def test_a_run_folder_that_makes_no_sense_does_not_keep_a_machine_alive(stage: Stage) -> None:
    key = running(stage)
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
    stage.mailbox.broken = Malformed("not JSON")
    for _ in range(12):
        stage.clock.advance(MINUTE / 2)
        stage.reconciler.tick()
    assert stage.engine.machines[key].gone_at is not None
    assert stage.view.state is JobState.CANCELLED
    settled_and_closed(stage)


def test_an_object_store_that_is_away_kills_nothing(stage: Stage) -> None:
    key = running(stage)
    stage.mailbox.broken = Unreachable("503")
    for _ in range(100):
        stage.clock.advance(MINUTE / 2)
        stage.reconciler.tick()
    assert stage.engine.machines[key].gone_at is None
    stage.mailbox.broken = None
    assert stage.pass_time().state is JobState.RUNNING


def test_a_job_that_knocks_its_agent_over_is_not_relaunched_without_end(stage: Stage) -> None:
    stage.submit()
    for _ in range(600):
        stage.clock.advance(timedelta(seconds=1))
        stage.reconciler.tick()
        latest = stage.view.attempts[-1]
        if latest.handle and stage.engine.machines[latest.key].gone_at is None:
            stage.mailbox.starts(latest.key)
            stage.reconciler.tick()
            stage.engine.machines[latest.key].gone_at = stage.clock.now()
    assert 5 < len(stage.view.attempts) < 12


def test_news_of_the_machine_of_a_paused_job_does_not_start_it_again(stage: Stage) -> None:
    stage.submit(hold="1.05", hours=48)
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(30 * MINUTE)
    view = stage.view
    with stage.store.writing() as tx:
        tx.append("j-1", [(1, ev.AttemptEnded(cause=Cause.PAID_UNTIL))], stage.clock.now())
        tx.append("j-1", [(None, ev.Paused(because="money"))], stage.clock.now())
    stage.engine.cancel(view.attempts[0].key)
    stage.pass_time(MINUTE, times=3)
    assert stage.view.attempts[0].gone
    assert stage.view.state is JobState.PAUSED_BUDGET
    assert len(stage.view.attempts) == 1
    assert stage.money()[0] == Money.ZERO, "and what it held is given back"


def test_a_refused_approval_launches_nothing_and_gives_the_money_back(stage: Stage) -> None:
    stage.submit()
    with stage.store.writing() as tx:
        now = stage.clock.now()
        tx.append("j-1", [(1, ev.AttemptEnded(cause=Cause.NO_CAPACITY))], now)
        tx.append("j-1", [(None, ev.ApprovalAsked(because="dear"))], now)
        tx.append("j-1", [(None, ev.ApprovalRefused(by="bob", note="too dear"))], now)
    stage.pass_time(MINUTE, times=3)
    assert stage.view.state is JobState.PAUSED_BUDGET
    assert "refused by bob" in stage.view.waiting_because
    assert stage.engine.submitted == []
    assert stage.money()[0] == Money.ZERO


def test_a_job_that_completed_is_not_reported_as_cancelled(stage: Stage) -> None:
    key = running(stage)
    stage.mailbox.exits(key, Cause.COMPLETED, 0)
    stage.pass_time()
    stage.engine.machines[key].gone_at = None  # it takes its time to go away
    with stage.store.writing() as tx:
        if not stage.view.state.final:
            tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
    stage.engine.cancel(key)
    stage.pass_time(MINUTE, times=2)
    assert stage.view.state is JobState.SUCCEEDED


def test_a_failure_near_the_time_limit_is_a_failure(stage: Stage) -> None:
    stage.submit(hours=1)
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(59 * MINUTE)
    stage.mailbox.exits("j-1-1", Cause.EXIT_STATUS, 1)
    stage.clock.advance(5 * MINUTE)
    stage.reconciler.tick()
    stage.reconciler.tick()
    assert stage.view.state is JobState.FAILED


def test_a_run_folder_that_cannot_be_reached_is_said_and_the_job_can_be_cancelled(stage: Stage) -> None:
    stage.mailbox.broken = Unreachable("no such store", hint="see GPUBROKER_RUNS")
    stage.submit()
    stage.pass_time(MINUTE, times=3)
    assert "GPUBROKER_RUNS" in stage.view.waiting_because
    with stage.store.reading() as look:
        assert [e.body.kind for e in look.events("j-1")].count("launch_delayed") == 1
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
    stage.pass_time(MINUTE, times=2)
    assert stage.view.state is JobState.CANCELLED
    settled_and_closed(stage)
