"""What is reported of several jobs is recorded in one transaction, and a job with which that fails delays no other."""

from collections.abc import Sequence

import pytest

from broker.core.errors import StoreProblem
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.events.views import JobView
from broker.core.values.clock import ManualClock
from broker.ledger.journal import DatedBody
from broker.reconciler.news_recorder import NewsRecorder
from broker.reconciler.worklist import Worklist
from broker.store import Store
from broker.store.jobs.journal import StoreWriter
from tests.reconciler.rehearsal import MINUTE, OpenPolicy, Stage
from tests.unreadable import damage_view

JOBS = ("j-1", "j-2", "j-3")


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    stage = Stage(store, clock)
    for job_id in JOBS:
        stage.submit(job_id=job_id)
    return stage


def test_what_cannot_be_recorded_of_one_job_is_recorded_of_the_others(stage: Stage) -> None:
    stage.pass_time()
    worklist, now, told = Worklist(stage.store), stage.clock.now(), list[str]()
    views = {view.id: view for view in worklist.look()}
    with stage.store.writing() as tx:
        tx.append("j-3", [(None, ev.CancelRequested(by="ann"))], now)
    recording = NewsRecorder(stage.store, worklist, MINUTE, lambda view: None)

    def note(view: JobView, body: ev.EventBody) -> None:
        recording.note(view, [(now, 1, body)], lambda: told.append(view.id))

    note(views["j-1"], ev.MachineUp(since=now))
    note(views["j-2"], ev.Launched(handle="another"))  # it has been launched
    note(views["j-3"], ev.MachineUp(since=now))  # it has been cancelled meanwhile
    assert recording.write(now).keys() == set(JOBS)
    assert told == list(JOBS)
    assert len(recording) == 0
    with stage.store.reading() as look:
        kinds = {job_id: look.events(job_id)[-1].body.kind for job_id in JOBS}
        assert kinds == {"j-1": "machine_up", "j-2": "launched", "j-3": "cancel_requested"}
        assert {job_id: worklist.view(job_id) for job_id in JOBS} == {view.id: view for view in look.unclosed()}


def test_nothing_is_recorded_over_a_view_that_a_newer_version_wrote(stage: Stage, clock: ManualClock) -> None:
    stage.reconciler.tick()
    stage.mailbox.starts("j-1-1")
    stage.mailbox.starts("j-2-1")
    worklist = Worklist(stage.store)
    worklist.look()
    recorder = NewsRecorder(stage.store, worklist, MINUTE, lambda _: None)
    now = clock.now()
    for job_id in ("j-1", "j-2"):
        view = worklist.view(job_id)
        assert view is not None
        recorder.note(view, [(now, None, ev.CancelRequested(by="ann"))])
    damage_view(stage.store, "j-1")
    recorder.write(now)
    with stage.store.reading() as look:
        told = {job_id: [event.body.kind for event in look.events(job_id)] for job_id in ("j-1", "j-2")}
    assert "cancel_requested" not in told["j-1"]
    assert "cancel_requested" in told["j-2"]


def test_a_job_of_which_something_cannot_be_recorded_is_judged_all_the_same(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_each = StoreWriter.append_each

    def fails(self: StoreWriter, news: Sequence[tuple[JobView, Sequence[DatedBody]]]) -> list[JobView]:
        if any(view.id == "j-2" and item[2].kind == "claimed" for view, items in news for item in items):
            raise StoreProblem("it cannot be recorded")
        return append_each(self, news)

    stage.pass_time(times=2)
    monkeypatch.setattr(StoreWriter, "append_each", fails)
    for job_id in JOBS:
        stage.mailbox.starts(f"{job_id}-1")
    stage.policy = OpenPolicy(denied=frozenset({"continue"}))
    stage.pass_time(MINUTE, times=2)
    with stage.store.reading() as look:
        assert [view.attempts[0].stop_requested for view in look.unclosed()] == [Cause.STOPPED_BY_POLICY] * 3
