"""Brokers that die, engines that lie or are away, agents that do not obey: no job runs twice, none is forgotten, and
what ran is billed."""

from datetime import timedelta

import pytest

from broker.app.jobs.reasons import wait_text
from broker.core.errors import LoginMissing, Malformed, Unreachable
from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved, NoticeReceived
from broker.core.events.outcomes import Cause, JobState
from broker.core.ports import EngineState, Launch, Observation
from tests.reconciler.rehearsal import MINUTE, Stage, finish, running, settled_and_closed

HOUR = timedelta(hours=1)


def given_up(stage: Stage) -> str:
    """An attempt that fell silent, while its engine says that all is well; its key."""
    key = running(stage)
    stage.engine.lies[key] = Observation(EngineState.UP, since=stage.engine.machines[key].since)
    for _ in range(8):
        stage.clock.advance(MINUTE / 2)
        stage.reconciler.tick()
    assert stage.view.attempts[0].cause is Cause.MACHINE_LOST
    return key


def test_an_engine_out_of_reach_is_tried_again_and_given_up_in_the_end(stage: Stage) -> None:
    stage.engine.refuse = [Unreachable("time-out")]
    stage.submit()
    assert stage.pass_time().attempts[0].handle is None
    assert stage.pass_time(MINUTE).attempts[0].handle == "j-1-1"


def test_a_machine_that_is_silent_is_replaced_and_billed_until_it_is_known_to_be_gone(stage: Stage) -> None:
    key = given_up(stage)
    assert stage.engine.machines[key].gone_at is not None, "it is removed"
    stage.clock.advance(2 * MINUTE)
    stage.reconciler.tick()
    assert stage.engine.submitted == [key, "j-1-2"], "and replaced, though the engine still lies"
    assert not stage.view.attempts[0].gone
    del stage.engine.lies[key]
    stage.reconciler.tick()
    assert stage.view.attempts[0].gone_at == stage.engine.machines[key].gone_at


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
    key = given_up(stage)
    stage.mailbox.says(key, NoticeReceived(source="x"), CheckpointSaved(checkpoint="0001-000000000070-a", step=70))
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
        assert str(error) in wait_text(stage.view.waiting)
    stage.engine.silent = None
    stage.pass_time()
    assert stage.view.attempts[0].handle == attempt.key
    assert wait_text(stage.view.waiting) == ""


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
    # Nobody refused it more: the gate says what follows, and holds what that may cost.
    assert stage.view.state is JobState.LAUNCHING
    assert stage.view.attempt_count == 2


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
    for _ in range(200):
        stage.clock.advance(timedelta(seconds=3))
        stage.reconciler.tick()
        latest = stage.view.attempts[-1]
        if latest.handle and stage.engine.machines[latest.key].gone_at is None:
            stage.mailbox.starts(latest.key)
            stage.reconciler.tick()
            stage.engine.machines[latest.key].gone_at = stage.clock.now()
    assert 5 < len(stage.view.attempts) < 12


def test_a_run_folder_that_cannot_be_reached_is_said_and_the_job_can_be_cancelled(stage: Stage) -> None:
    stage.mailbox.broken = Unreachable("no such store", hint="see GPUBROKER_RUNS")
    stage.submit()
    stage.pass_time(MINUTE, times=3)
    assert "GPUBROKER_RUNS" in wait_text(stage.view.waiting)
    with stage.store.reading() as look:
        assert [e.body.kind for e in look.events("j-1")].count("launch_delayed") == 1
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
    stage.pass_time(MINUTE, times=2)
    assert stage.view.state is JobState.CANCELLED
    settled_and_closed(stage)
