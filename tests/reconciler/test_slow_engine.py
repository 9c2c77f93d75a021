"""An engine whose calls take long holds up nobody else: launches, cancels, settlement and top-ups go on beside it."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta

import pytest

from broker.core.errors import NoCapacity, RetryLater
from broker.core.events import events as ev
from broker.core.events.events import EventBody
from broker.core.events.outcomes import AttemptState, Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.jobs import Job, Work
from broker.core.market.offers import CapacityType
from broker.core.ports import Launch, Observation
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.reconciler.engine_calls import EngineCalls
from broker.store import Store
from policies.loader import load
from tests.controllers import AskedAlways, noted
from tests.reconciler.rehearsal import MINUTE, Stage, StageEngine, offer

SOON = 20.0  # seconds of the wall clock that a thread may take to get going on a busy machine
FREEZE = "version: 1\npolicy: t\nguardrails: [{name: winter, freeze: {from: 2026-01-01, to: 2027-01-01}}]\n"


class SlowEngine(StageEngine):
    """Its calls named in ``blocks`` do not return for the keys named there, before they are let go."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.blocks: dict[tuple[str, str], threading.Event] = {}
        self.begun: dict[tuple[str, str], threading.Event] = {}
        self.raises: Exception | None = None
        self.let_go_of, self.observed = threading.Event(), 0

    def block(self, call: str, key: str) -> None:
        self.blocks[call, key], self.begun[call, key] = threading.Event(), threading.Event()

    def let_go(self) -> None:
        self.let_go_of.set()
        for event in self.blocks.values():
            event.set()

    def _reached(self, call: str, key: str) -> None:
        if (event := self.blocks.get((call, key))) is not None:
            self.begun[call, key].set()
            assert event.wait(SOON), "nobody let it go"
            if self.raises is not None:
                raise self.raises

    def submit(self, launch: Launch) -> str:
        self._reached("submit", launch.key)
        return super().submit(launch)

    def find(self, key: str) -> str | None:
        self._reached("find", key)
        return super().find(key)

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        blocks = [handle for handle in handles if ("observe", handle) in self.blocks]
        self.observed += bool(blocks)
        for handle in blocks:
            self._reached("observe", handle)
        return super().observe(handles)

    def cancel(self, handle: str) -> None:
        self._reached("cancel", handle)
        super().cancel(handle)


class Beside(Stage):
    """A stage whose engine is called beside the loop."""

    engine: SlowEngine

    def __init__(self, store: Store, clock: ManualClock) -> None:
        super().__init__(store, clock)
        self.engine = SlowEngine(clock)
        self.offers = [offer(clock.now(), "od", CapacityType.ON_DEMAND, "1")]
        self.restart()

    def made_calls(self) -> EngineCalls:
        return EngineCalls(at_most=2)

    def add(self, *job_ids: str, engine: str = "stage") -> None:
        """More jobs like the first one, each with its request, its money and its engine."""
        with self.store.reading() as look:
            known = [event.body for event in look.events("j-1")][:2]
        submitted, requested = known
        assert isinstance(submitted, ev.Submitted)
        assert isinstance(requested, ev.LaunchRequested)
        for job_id in job_ids:
            key = f"{job_id}-1"
            items: list[tuple[int | None, EventBody]] = [(None, submitted)]
            items.append((1, requested.model_copy(update={"key": key, "engine": engine})))
            with self.store.writing() as tx:
                tx.append(job_id, items, self.clock.now())

    def job(self, job_id: str) -> JobView:
        with self.store.reading() as look:
            view = look.job(job_id)
        assert view is not None
        return view

    def until(self, reached: Callable[[], bool], looks: int = 400) -> None:
        """Look until it is so; each look waits a moment for the calls that are under way."""
        for _ in range(looks):
            self.reconciler.tick()
            if reached():
                return
        raise AssertionError("it never came to that")

    def says(self, job_id: str, body: EventBody) -> None:
        with self.store.writing() as tx:
            tx.append(job_id, [(None, body)], self.clock.now())

    def launched(self, job_id: str) -> Callable[[], bool]:
        return lambda: self.job(job_id).attempts[-1].handle is not None


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Iterator[Beside]:
    made = Beside(store, clock)
    yield made
    made.engine.let_go()
    assert made.calls.close(SOON) == 0


JOB = Job(name="j", run="x", work=Work(duration=timedelta(hours=2)), max_duration=timedelta(hours=24))


def two_jobs_of_which_one_hangs(stage: Beside, call: str = "submit") -> None:
    stage.submit(JOB)
    stage.add("j-2")
    stage.engine.block(call, "j-1-1")
    stage.reconciler.tick()
    assert stage.engine.begun[call, "j-1-1"].wait(SOON)
    stage.until(stage.launched("j-2"))


@pytest.mark.parametrize(("call", "launched"), [("submit", ["j-2-1", "j-1-1"]), ("find", ["j-2-1"])])
def test_a_launch_that_hangs_delays_nothing_of_another_job(stage: Beside, call: str, launched: list[str]) -> None:
    """Its launch, its bill, what judges and tops up what runs, and its cancellation."""
    judged: list[str] = []
    stage.begin(stage.place, AskedAlways(noted(judged)))
    two_jobs_of_which_one_hangs(stage, call)
    stage.mailbox.starts("j-2-1")
    stage.clock.advance(30 * MINUTE)
    stage.until(lambda: stage.job("j-2").state is JobState.RUNNING)
    with stage.store.reading() as look:
        (balance,) = look.balance("j-2").values()
    assert balance.spent == Money.usd("0.50"), "it is billed"
    assert "j-2" in judged
    stage.says("j-2", ev.CancelRequested(by="ann"))
    stage.until(lambda: stage.job("j-2").attempts[0].stop_requested is not None)
    stage.clock.advance(5 * MINUTE)
    stage.until(lambda: stage.job("j-2").state is JobState.CANCELLED)
    assert stage.job("j-1").attempts[0].state is AttemptState.REQUESTED
    stage.engine.let_go()
    stage.until(lambda: stage.job("j-1").attempts[0].state is not AttemptState.REQUESTED)
    assert stage.engine.submitted == launched, "a request for which no call was made expires meanwhile"


def test_only_one_call_for_an_attempt_is_under_way_however_often_it_is_looked_at(stage: Beside) -> None:
    two_jobs_of_which_one_hangs(stage)
    for _ in range(10):
        stage.reconciler.tick()
    stage.engine.let_go()
    stage.until(stage.launched("j-1"))
    assert stage.engine.submitted.count("j-1-1") == 1


def test_an_engine_that_hangs_for_all_has_no_more_calls_than_allowed(stage: Beside) -> None:
    stage.submit(JOB)
    stage.add("j-2", "j-3", "j-4")
    for number in (1, 2, 3, 4):
        stage.engine.block("submit", f"j-{number}-1")
    for _ in range(10):
        stage.reconciler.tick()
    assert sum(event.is_set() for event in stage.engine.begun.values()) == 2
    stage.engine.let_go()
    stage.until(lambda: all(stage.launched(f"j-{number}")() for number in (1, 2, 3, 4)))
    assert len(stage.engine.submitted) == 4


def test_a_machine_whose_end_takes_long_delays_nobody(stage: Beside) -> None:
    stage.submit(JOB)
    stage.until(stage.launched("j-1"))
    stage.says("j-1", ev.CancelRequested(by="ann"))
    stage.engine.block("cancel", "j-1-1")
    stage.until(stage.engine.begun["cancel", "j-1-1"].is_set)
    stage.add("j-2")
    stage.until(stage.launched("j-2"))
    assert stage.engine.asked_to_end == []
    stage.engine.let_go()
    stage.until(lambda: stage.job("j-1").state is JobState.CANCELLED)


def test_what_is_launched_when_its_job_is_cancelled_is_recorded_and_then_ended(stage: Beside) -> None:
    two_jobs_of_which_one_hangs(stage)
    stage.says("j-1", ev.CancelRequested(by="ann"))
    for _ in range(5):
        stage.reconciler.tick()
    assert not stage.job("j-1").attempts[0].state.final, "a machine may come of it"
    assert stage.mailbox.leases["j-1-1"][-1].stop is Cause.CANCELLED_BY_USER, "which finds that it is not wanted"
    stage.engine.let_go()
    stage.until(lambda: stage.job("j-1").closed)
    assert stage.engine.machines["j-1-1"].gone_at is not None
    assert stage.job("j-1").state is JobState.CANCELLED


@pytest.mark.parametrize(
    ("error", "state"), [(NoCapacity("sold out"), JobState.INTERRUPTED), (RetryLater("busy"), JobState.LAUNCHING)]
)
def test_what_an_engine_says_in_the_end_is_recorded(stage: Beside, error: Exception, state: JobState) -> None:
    two_jobs_of_which_one_hangs(stage)
    stage.engine.raises = error
    stage.engine.let_go()
    seq = stage.job("j-1").seq
    stage.until(lambda: stage.job("j-1").seq > seq)
    assert stage.job("j-1").state is state


@pytest.mark.parametrize("change", ["frozen", "cancelled", "late"])
def test_a_launch_that_was_judged_is_not_made_where_that_no_longer_holds(stage: Beside, change: str) -> None:
    """Something changes after the judgement, right before the call."""
    stage.submit(JOB)
    check, judged = stage.reconciler._launching._check, threading.Event()

    class Interrupted:
        def __call__(self, view: JobView, attempt: object) -> object:
            return check(view, attempt)  # type: ignore[arg-type]  # it is passed on

        def holds(self, view: JobView, attempt: object) -> bool:
            if not judged.is_set():
                judged.set()
                if change == "frozen":
                    stage.policy = load({"t.yaml": FREEZE})
                elif change == "late":
                    stage.clock.advance(2 * MINUTE)
                else:
                    stage.says("j-1", ev.CancelRequested(by="ann"))
            return check.holds(view, attempt)  # type: ignore[arg-type]  # it is passed on

    stage.reconciler._launching._check = Interrupted()  # type: ignore[assignment]  # of a check, it has all
    stage.reconciler.tick()
    assert judged.wait(SOON)
    if change == "late":
        stage.until(stage.launched("j-1"))  # judged again
        return
    stage.until(lambda: stage.job("j-1").attempts[0].state.final)
    causes = {"frozen": Cause.DENIED_BEFORE_LAUNCH, "cancelled": Cause.CANCELLED_BY_USER}
    assert stage.job("j-1").attempts[0].cause is causes[change]
    assert stage.engine.submitted == []


def test_a_process_that_ends_leaves_a_call_behind_which_the_next_one_takes_up(stage: Beside) -> None:
    two_jobs_of_which_one_hangs(stage)
    left = stage.calls
    assert left.close(0.0) == 1
    stage.restart()
    stage.engine.let_go()
    assert left.close(SOON) == 0
    stage.until(stage.launched("j-1"))
    assert set(stage.engine.machines) == {"j-1-1", "j-2-1"}


def test_an_engine_that_always_fails_keeps_no_job_from_being_judged_and_told_to_stop(
    stage: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str] = []
    stage.begin(stage.place, AskedAlways(noted(judged)))
    stage.submit(JOB)
    stage.until(stage.launched("j-1"))
    stage.mailbox.starts("j-1-1")
    stage.until(lambda: stage.job("j-1").state is JobState.RUNNING)

    def fails(handles: Sequence[str]) -> Mapping[str, Observation]:
        raise RetryLater("the engine's API is down")

    monkeypatch.setattr(stage.engine, "observe", fails)
    judged.clear()
    stage.until(lambda: len(judged) > 1, looks=20)
    stage.says("j-1", ev.CancelRequested(by="ann"))
    stage.until(lambda: stage.job("j-1").attempts[0].stop_requested is not None, looks=20)
