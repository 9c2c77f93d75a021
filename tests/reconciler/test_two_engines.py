"""An engine or run folder that does not answer delays the jobs of no other engine."""

import threading
from collections.abc import Iterator

import pytest

from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import AttemptView, JobView
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.store import Store
from tests.controllers import AskedAlways, noted
from tests.reconciler.rehearsal import MINUTE, StageEngine
from tests.reconciler.test_slow_engine import JOB, SOON, Beside


class TwoEngines(Beside):
    """Jobs of an engine that never hangs beside those of one that may."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.other = StageEngine(clock, name="other")
        super().__init__(store, clock)

    def engine_of(self, name: str) -> StageEngine:
        return self.other if name == "other" else self.engine

    def says_nothing(self) -> None:
        """From now on the first engine does not answer how its machines are."""
        self.engine.block("observe", "j-1-1")

    def looks(self, times: int) -> None:
        for _ in range(times):
            self.reconciler.tick()


@pytest.fixture
def two(store: Store, clock: ManualClock) -> Iterator[TwoEngines]:
    stage = TwoEngines(store, clock)
    stage.submit(JOB)
    stage.add("j-2", engine="other")
    for job_id in ("j-1", "j-2"):
        stage.until(stage.launched(job_id))
        stage.mailbox.starts(f"{job_id}-1")
    stage.until(lambda: all(stage.job(job_id).state is JobState.RUNNING for job_id in ("j-1", "j-2")))
    yield stage
    stage.engine.let_go()
    assert stage.calls.close(SOON) == 0


def test_an_engine_that_does_not_answer_delays_the_jobs_of_no_other_engine(two: TwoEngines) -> None:
    """What the other engine's job says is recorded and billed, its end is acted on, and a new job is launched."""
    two.says_nothing()
    two.until(two.engine.begun["observe", "j-1-1"].is_set)
    two.mailbox.says("j-2-1", CheckpointSaved(checkpoint="0001-1", step=1))
    two.clock.advance(30 * MINUTE)
    two.until(lambda: two.job("j-2").checkpoint is not None)
    with two.store.reading() as look:
        (balance,) = look.balance("j-2").values()
    assert balance.spent == Money.usd("0.50")
    two.mailbox.exits("j-2-1", Cause.COMPLETED, 0)
    two.until(lambda: two.job("j-2").closed)
    two.add("j-3", engine="other")
    two.until(two.launched("j-3"))
    assert two.engine.observed == 1, "it is asked once, and not again before it answers"


def test_while_its_engine_does_not_answer_a_job_is_still_judged_and_told_to_stop(two: TwoEngines) -> None:
    judged: list[str] = []
    two.begin(two.place, AskedAlways(noted(judged)))
    two.says_nothing()
    two.until(two.engine.begun["observe", "j-1-1"].is_set)
    judged.clear()
    two.looks(2)
    assert "j-1" not in judged, "its answer may come with any look"
    two.looks(3)
    assert "j-1" in judged
    two.says("j-1", ev.CancelRequested(by="ann"))
    two.looks(1)
    assert two.job("j-1").attempts[0].stop_requested is Cause.CANCELLED_BY_USER
    assert two.mailbox.leases["j-1-1"][-1].stop is Cause.CANCELLED_BY_USER, "its node hears of it"


def test_a_late_answer_counts_once_and_with_all_that_its_run_folder_said(two: TwoEngines) -> None:
    two.mailbox.says("j-1-1", CheckpointSaved(checkpoint="0001-1", step=1))
    two.says_nothing()
    two.until(two.engine.begun["observe", "j-1-1"].is_set)
    two.looks(5)
    assert two.job("j-1").checkpoint is None
    two.mailbox.exits("j-1-1", Cause.COMPLETED, 0)
    two.engine.let_go()
    two.until(lambda: two.job("j-1").closed)
    with two.store.reading() as look:
        kinds = [event.body.kind for event in look.events("j-1")]
    assert kinds.count("checkpoint_saved") == kinds.count("attempt_ended") == 1


def test_a_run_folder_that_does_not_answer_delays_the_jobs_of_no_other_engine(
    two: TwoEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, asked = two.mailbox.read, threading.Event()

    def hangs(view: JobView, attempt: AttemptView) -> object:
        if view.id == "j-1" and not two.engine.let_go_of.is_set():
            asked.set()
            assert two.engine.let_go_of.wait(SOON), "nobody let it go"
        return read(view, attempt)

    monkeypatch.setattr(two.mailbox, "read", hangs)
    two.until(asked.is_set)
    two.mailbox.exits("j-2-1", Cause.COMPLETED, 0)
    two.until(lambda: two.job("j-2").closed)
    assert two.job("j-1").state is JobState.RUNNING
