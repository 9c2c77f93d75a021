"""The frame of what a service does now and then: one process at a time, and nothing said twice."""

from __future__ import annotations

import threading
from collections.abc import Callable

from broker.app.service.periodic_duty import Rounds
from broker.core.errors import Unreachable
from broker.store import Store
from broker.store.engine.leader import LeaderRole
from tests.contracts.engine_bench import eventually


class FailingWork:
    """Fails the first times, then stops the rounds."""

    def __init__(self, stop: threading.Event, failures: int = 0) -> None:
        self.stop, self.failures, self.done = stop, failures, 0

    def __call__(self) -> None:
        self.done += 1
        if self.done <= self.failures:
            raise Unreachable("the store is away")
        self.stop.set()


def going(rounds: Rounds, store: Store, once: Callable[[], object], stop: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=rounds.run, args=(store, once, stop), daemon=True)
    thread.start()
    return thread


def test_what_goes_wrong_is_said_once_and_tried_again(store: Store) -> None:
    said: list[str] = []
    stop = threading.Event()
    work = FailingWork(stop, failures=3)
    going(Rounds(said.append, 60, 0.001), store, work, stop).join(240)
    assert work.done == 4
    assert said == ["the store is away"]


def test_a_sentence_is_said_again_only_after_it_was_no_longer_true() -> None:
    said: list[str] = []
    rounds = Rounds(said.append, 1, 1)
    for now in ({"a", "b"}, {"b"}, {"b", "c"}, {"a"}):
        rounds.tell(now)
    assert said == ["a", "b", "c", "a"]


def test_nobody_makes_a_round_that_another_one_makes(store: Store) -> None:
    stop, waited = threading.Event(), threading.Event()
    work = FailingWork(stop)

    class Counted(threading.Event):
        """Knows how often it was waited for."""

        rounds = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.rounds += 1
            if self.rounds > 3:
                waited.set()
            return stop.wait(timeout)

    with store.lead(LeaderRole.SWEEP) as leading:
        assert leading is not None
        thread = going(Rounds(lambda _: None, 0, 0.001), store, work, Counted())
        assert waited.wait(240), "it came round"
        assert work.done == 0
    eventually(lambda: work.done > 0, "and does it once nobody else does")
    thread.join(240)
    assert not thread.is_alive()
