"""One step that fails keeps nothing else waiting: the record, the bill, the user's word and other jobs go on."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from broker.app.jobs.reasons import wait_text
from broker.core.errors import Malformed, Unreachable
from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState, Cause, JobState
from broker.core.events.views import AttemptView, JobView
from broker.core.ports import EngineState, Observation
from broker.core.values.money import Money
from broker.engines.runfolder.mailbox import LeaseGrant
from broker.store.store import append_if
from tests.controllers import AskedAlways, noted
from tests.reconciler.rehearsal import MINUTE, Stage, retrying, running, settled_and_closed

HOUR = timedelta(hours=1)
FAILURES = [Unreachable("time-out"), Malformed("not a number"), RuntimeError("a defect of the engine")]


def kinds(stage: Stage) -> list[str]:
    with stage.store.reading() as look:
        return [event.body.kind for event in look.events("j-1")]


def cancel_job(stage: Stage) -> None:
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())


@pytest.mark.parametrize("failure", FAILURES, ids=lambda error: type(error).__name__)
def test_a_machine_that_cannot_be_ended_is_billed_on_and_told_once(stage: Stage, failure: Exception) -> None:
    key = running(stage)
    stage.engine.keeps_machines = failure
    stage.pass_time(HOUR)
    stage.mailbox.exits(key, Cause.COMPLETED, 0)
    stage.pass_time()
    assert stage.view.attempts[0].state is AttemptState.SUCCEEDED, "recorded, though its machine cannot be ended"
    stage.pass_time(MINUTE, times=60)
    assert stage.money()[1] == Money.usd("2"), "it is there, so it is billed"
    assert kinds(stage).count("removal_delayed") == 1
    assert str(failure) in next(e.body.because for e in events(stage) if isinstance(e.body, ev.RemovalDelayed))
    assert 5 < stage.engine.asked_to_end.count(key) < 25, "asked again, ever more slowly"
    stage.engine.keeps_machines = None
    stage.pass_time(5 * MINUTE, times=2)
    assert stage.view.state is JobState.SUCCEEDED
    settled_and_closed(stage)


def events(stage: Stage) -> Sequence[ev.Event]:
    with stage.store.reading() as look:
        return look.events("j-1")


def test_the_users_word_is_heard_while_a_machine_cannot_be_ended(stage: Stage) -> None:
    stage.submit(retrying(3))
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(MINUTE)
    stage.engine.keeps_machines = Unreachable("time-out")
    stage.mailbox.exits("j-1-1", Cause.EXIT_STATUS, 1)
    stage.pass_time(MINUTE, times=3)
    assert stage.engine.submitted == ["j-1-1"], "it never runs twice"
    cancel_job(stage)
    stage.pass_time()
    assert stage.view.state is JobState.CANCELLED
    assert not stage.view.closed, "its machine is still looked after"
    stage.engine.keeps_machines = None
    stage.pass_time(5 * MINUTE, times=2)
    assert stage.engine.machines["j-1-1"].gone_at is not None
    settled_and_closed(stage)


def test_max_duration_stops_what_runs_while_an_older_machine_cannot_be_ended(stage: Stage) -> None:
    stage.submit(hours=1)
    stage.pass_time()
    stage.mailbox.starts("j-1-1")
    stage.pass_time(MINUTE)
    stage.engine.keeps_machines = Unreachable("time-out")
    del stage.mailbox.nodes["j-1-1"]
    stage.pass_time(MINUTE / 2, times=20)
    assert stage.view.attempts[0].cause is Cause.MACHINE_LOST
    assert stage.engine.submitted == ["j-1-1", "j-1-2"], "a machine without a sign of life does not hold its job up"
    stage.mailbox.starts("j-1-2")
    stage.pass_time(MINUTE, times=30)
    second = stage.view.attempts[1]
    assert second.stop_requested is Cause.MAX_DURATION
    assert stage.mailbox.leases["j-1-2"][-1].stop is Cause.MAX_DURATION, "and its node is told"


def test_a_request_that_its_engine_cannot_tell_about_is_said_to_wait_and_its_node_told_to_stop(stage: Stage) -> None:
    stage.submit()
    stage.engine.silent = Unreachable("time-out")
    stage.pass_time(MINUTE)
    cancel_job(stage)
    stage.pass_time(MINUTE, times=3)
    assert not stage.view.attempts[0].state.final, "nobody knows whether it was launched"
    assert "time-out" in wait_text(stage.view.waiting)
    assert stage.mailbox.leases["j-1-1"][-1].stop is Cause.CANCELLED_BY_USER
    stage.engine.silent = None
    stage.pass_time(MINUTE, times=2)
    assert stage.view.state is JobState.CANCELLED
    settled_and_closed(stage)


def test_a_lease_that_cannot_be_written_delays_neither_the_record_nor_the_bill(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = running(stage)

    def broken(view: JobView, attempt: AttemptView, lease: LeaseGrant) -> None:
        raise RuntimeError("a defect of the object store's client")

    monkeypatch.setattr(stage.mailbox, "write_lease", broken)
    stage.pass_time(HOUR)
    cancel_job(stage)
    stage.pass_time(MINUTE, times=5)
    assert stage.engine.machines[key].gone_at is not None, "ended by force, as it could not be told"
    assert stage.view.state is JobState.CANCELLED
    settled_and_closed(stage)


@pytest.mark.parametrize("jobs", [1, pytest.param(40, marks=pytest.mark.system)])
def test_a_run_folder_or_an_engine_with_a_defect_ends_no_look(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """Forty run folders are read side by side, one in its turn."""
    key = running(stage)
    started = stage.view
    with stage.store.writing() as tx:
        for number in range(2, jobs + 1):
            submitted = next(e.body for e in events(stage) if isinstance(e.body, ev.Submitted))
            requested = next(e.body for e in events(stage) if isinstance(e.body, ev.LaunchRequested))
            other = requested.model_copy(update={"key": f"j-{number}-1"})
            tx.append(f"j-{number}", [(None, submitted), (1, other)], stage.clock.now())
    stage.pass_time()

    def broken(view: JobView, attempt: AttemptView) -> object:
        raise RuntimeError("a defect")

    def silent(handles: Sequence[str]) -> Mapping[str, Observation]:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(stage.mailbox, "read", broken)
        patch.setattr(stage.mailbox, "lease", broken)
        stage.restart()
        assert stage.reconciler.tick().open == jobs
    with monkeypatch.context() as patch:
        patch.setattr(stage.engine, "observe", silent)
        assert stage.reconciler.tick().open == jobs
    assert stage.view.attempts[0].state is started.attempts[0].state
    assert stage.engine.machines[key].gone_at is None


def test_a_judge_that_fails_keeps_no_other_from_judging(stage: Stage) -> None:
    """Of those who judge what runs: money is topped up although the strategy, say, has a defect."""
    running(stage)

    def broken(view: JobView) -> bool:
        raise RuntimeError("a defect")

    asked: list[str] = []
    stage.begin(stage.place, AskedAlways(broken), AskedAlways(noted(asked)))
    stage.pass_time()
    assert asked == ["j-1"]


def test_a_job_that_changed_while_it_was_judged_is_judged_again_in_the_same_look(stage: Stage) -> None:
    running(stage)
    asked = []

    def late(view: JobView) -> bool:
        """Somebody asks for the end of the job, and only then is something recorded by the view of before."""
        asked.append(view.seq)
        if len(asked) == 1:
            cancel_job(stage)
            append_if(stage.store, view, [(None, ev.DeadlineMissed())], stage.clock.now())
        return False

    stage.begin(stage.place, AskedAlways(late))
    stage.pass_time(MINUTE)
    assert not stage.view.deadline_missed, "nothing is recorded by a view that is no longer current"
    assert stage.view.attempts[0].stop_requested is Cause.CANCELLED_BY_USER, "and the news counts at once"


def test_an_engine_that_tells_of_some_machines_only_keeps_the_others_as_they_are(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = running(stage)
    monkeypatch.setattr(stage.engine, "observe", lambda handles: {})
    stage.pass_time(MINUTE, times=3)
    monkeypatch.undo()
    stage.pass_time(HOUR)
    assert stage.engine.look(key).state is EngineState.UP
    assert stage.view.state is JobState.RUNNING
