"""Whole lives of jobs on the rehearsal stage: every way they can go, and the money that goes with each."""

from dataclasses import replace
from datetime import timedelta

from broker.app.jobs.reasons import end_text, wait_text
from broker.core.errors import LoginMissing, NoCapacity
from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, NoticeReceived
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.wait_reasons import MoneyEnded
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from broker.reconciler.progress import billed_time, on_demand_cost, work_done
from tests.reconciler.rehearsal import MINUTE, OpenPolicy, Stage, finish, retrying, running, settled_and_closed

HOUR = timedelta(hours=1)


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
    stage.mailbox.says(key, CheckpointSaved(checkpoint="0001-000000000050-a", step=50))
    stage.pass_time(HOUR / 2)
    stage.mailbox.says(key, NoticeReceived(source="test"))
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
    stage.pass_time()
    assert stage.view.attempts[0].cause is Cause.NO_CAPACITY
    assert stage.view.attempts[1].placement.offer.zone == "od"
    stage.mailbox.starts("j-1-2")
    stage.pass_time(MINUTE)
    finish(stage, "j-1-2")
    assert stage.money()[1] == Money.usd("3").for_duration(MINUTE)
    settled_and_closed(stage)


def test_launches_that_need_a_person_everywhere_fail_the_job_with_the_reason(stage: Stage) -> None:
    stage.engine.refuse = [LoginMissing("no credentials", hint="set TOKEN")] * 2
    stage.submit()
    stage.pass_time(MINUTE, times=2)
    assert stage.view.state is JobState.FAILED
    assert "set TOKEN" in end_text(stage.view.ending)
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


def test_a_clock_that_was_set_back_lets_no_agent_go_on_that_does_not_obey(stage: Stage) -> None:
    key = running(stage)
    stage.clock.time += timedelta(days=400)
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
    stage.pass_time(MINUTE)
    assert stage.view.attempts[0].stop_requested is Cause.CANCELLED_BY_USER
    stage.clock.time -= timedelta(days=400)
    stage.pass_time(MINUTE)
    assert stage.engine.machines[key].gone_at is None, "it is given its grace to checkpoint"
    stage.pass_time(MINUTE, times=3)
    assert stage.engine.machines[key].gone_at is not None


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
    stage.policy = OpenPolicy(denied=frozenset({"extend"}))
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
    stage.policy = OpenPolicy(denied=frozenset({"extend"}))
    stage.engine.take_back("j-1-1")
    stage.pass_time()
    stage.pass_time()
    assert stage.view.state is JobState.PAUSED_BUDGET
    assert "refused" in wait_text(stage.view.waiting)


def test_a_job_that_finds_no_place_waits_with_the_counted_reasons_and_says_them_once(stage: Stage) -> None:
    key = running(stage)
    stage.offers = []
    stage.engine.take_back(key)
    stage.pass_time(MINUTE, times=5)
    with stage.store.reading() as look:
        kinds = [event.body.kind for event in look.events("j-1")]
    assert kinds.count("nothing_feasible") <= 1
    assert stage.view.state is JobState.INTERRUPTED


def test_sandbox_money_is_kept_apart(stage: Stage) -> None:
    stage.offers = [replace(o, money=MoneyKind.SANDBOX) for o in stage.offers]
    running(stage)
    stage.pass_time(HOUR)
    with stage.store.reading() as look:
        spent = {kind: balance.spent for kind, balance in look.balance("j-1").items()}
    assert spent[MoneyKind.SANDBOX] == Money.usd("1")
    assert spent.get(MoneyKind.CASH, Money.ZERO) == Money.ZERO


def test_news_of_the_machine_of_a_paused_job_does_not_start_it_again(stage: Stage) -> None:
    stage.submit(hold="1.05", hours=48)
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(30 * MINUTE)
    view = stage.view
    with stage.store.writing() as tx:
        tx.append("j-1", [(1, ev.AttemptEnded(cause=Cause.PAID_UNTIL))], stage.clock.now())
        tx.append("j-1", [(None, ev.Paused(reason=MoneyEnded(evidence="money")))], stage.clock.now())
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
    assert "refused by bob" in wait_text(stage.view.waiting)
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
