"""Which jobs the reconciler visits: of very many running jobs those with news at once, the others in turn; and in which
order.
"""

import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.events import events as ev
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.ports import Observation
from broker.core.values.clock import ManualClock
from broker.reconciler import loop
from broker.reconciler.admission.records import attempt_key
from broker.reconciler.engine_calls import EngineCalls
from broker.reconciler.loop import Reconciler
from broker.reconciler.ports import Controllers, ReconcilerPorts, Timing
from broker.store import Store
from tests.controllers import AskedAlways
from tests.past import started
from tests.reconciler.rehearsal import StageEngine, StageMachine, StageMailbox, TrustingGate
from tests.waiting import LONGEST

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
JOBS, VISITS = 9, 3


class LargeFleet:
    """So many running jobs, of which a look visits three; ``visited``: the jobs of the last look."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, *, beside: bool = False) -> None:
        self.clock, self.store, self.visited = ManualClock(NOW), store, list[str]()
        self.jobs = [started(store, number, NOW - timedelta(hours=1)) for number in range(JOBS)]
        self.engine, self.mailbox = StageEngine(self.clock), StageMailbox(self.clock)
        for job_id in self.jobs:
            key = attempt_key(job_id, 1)
            self.engine.machines[key] = StageMachine(None, NOW - timedelta(minutes=50))  # type: ignore[arg-type]  # never read
            self.mailbox.leases[key] = []
            self.mailbox.says(key)
        advance = loop.Reconciler._advance

        def watched(worker: Reconciler, view: JobView) -> tuple[int, bool]:
            self.visited.append(view.id)
            return advance(worker, view)

        monkeypatch.setattr(loop.Reconciler, "_advance", watched)
        self.calls = EngineCalls(at_most=1 if beside else 0)
        ports = ReconcilerPorts(store, lambda name: self.engine, self.mailbox, self.clock, self.calls)
        controllers = Controllers(AskedAlways(lambda view: False))
        self.worker = Reconciler(ports, controllers, TrustingGate(), timing=Timing(visits=VISITS))
        self.look()
        assert sorted(self.visited) == self.jobs, "the first look knows nothing"

    def look(self) -> set[str]:
        self.visited.clear()
        self.clock.advance(timedelta(seconds=1))
        self.worker.tick()
        return set(self.visited)

    def settle(self) -> None:
        """Until all have been settled, which is news of them."""
        for _ in range(3):
            self.look()


@pytest.fixture
def fleet(store: Store, monkeypatch: pytest.MonkeyPatch) -> LargeFleet:
    return LargeFleet(store, monkeypatch)


def test_without_news_each_has_its_turn(fleet: LargeFleet) -> None:
    fleet.settle()
    looks = [fleet.look() for _ in range(JOBS // VISITS)]
    assert [len(one) for one in looks] == [VISITS] * len(looks)
    assert set.union(*looks) == set(fleet.jobs)


def test_a_machine_that_is_gone_is_seen_by_the_next_look(fleet: LargeFleet) -> None:
    fleet.settle()
    waits = sorted(set(fleet.jobs) - fleet.look())[-1]
    fleet.engine.take_back(attempt_key(waits, 1))
    assert waits in fleet.look()
    with fleet.store.reading() as look:
        view = look.job(waits)
    assert view is not None
    assert view.attempts[0].state.final


def test_a_job_that_somebody_cancels_is_visited_by_the_next_look(fleet: LargeFleet) -> None:
    fleet.settle()
    waits = sorted(set(fleet.jobs) - fleet.look())[-1]
    with fleet.store.writing() as tx:
        tx.append(waits, [(None, ev.CancelRequested(by="ann"))], fleet.clock.now())
    assert waits in fleet.look()
    with fleet.store.reading() as look:
        view = look.job(waits)
    assert view is not None
    assert view.attempts[0].stop_requested is not None or view.state is JobState.CANCELLED


def test_news_that_come_while_an_engine_is_asked_are_for_the_first_look_after_its_answer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = LargeFleet(store, monkeypatch, beside=True)
    fleet.settle()
    cancelled = [sorted(fleet.look()) for _ in range(JOBS // VISITS)][1][0]  # its turn is while the engine is asked
    answers, observe = threading.Event(), fleet.engine.observe

    def slow(handles: Sequence[str]) -> Mapping[str, Observation]:
        assert answers.wait(LONGEST), "nobody let it go"
        return observe(handles)

    monkeypatch.setattr(fleet.engine, "observe", slow)
    fleet.look()
    with store.writing() as tx:
        tx.append(cancelled, [(None, ev.CancelRequested(by="ann"))], fleet.clock.now())
    assert cancelled not in fleet.look(), "its engine may say that it is over"
    answers.set()
    fleet.calls.wait(["observe stage"], 20)
    assert cancelled in fleet.look()
