"""The frame of what a service does now and then: one process at a time, and nothing said twice."""

import threading
from collections.abc import Callable

from broker.app.service.duties import PeriodicDuty
from broker.app.wiring import Broker
from broker.core.errors import Unreachable


class FailingDuty(PeriodicDuty):
    """Fails the first times, then stops the rounds."""

    name = "failing"
    first_after, every = 60.0, 0.001

    def __init__(self, broker: Broker, say: Callable[[str], None], stop: threading.Event, failures: int = 0) -> None:
        super().__init__(broker, say=say)
        self.stop, self.failures, self.done = stop, failures, 0

    def once(self) -> None:
        self.done += 1
        if self.done <= self.failures:
            raise Unreachable("the store is away")
        self.stop.set()


class WordsDuty(PeriodicDuty):
    """Tells other sentences in each round."""

    name = "words"
    first_after, every = 0.001, 0.001

    def __init__(self, broker: Broker, say: Callable[[str], None], stop: threading.Event, *words: set[str]) -> None:
        super().__init__(broker, say=say)
        self.stop, self.words = stop, list(words)

    def once(self) -> None:
        self._tell(self.words.pop(0))
        if not self.words:
            self.stop.set()


def test_what_goes_wrong_is_said_once_and_tried_again(broker: Broker) -> None:
    said: list[str] = []
    stop = threading.Event()
    duty = FailingDuty(broker, said.append, stop, failures=3)
    duty.run(stop)
    assert duty.done == 4
    assert said == ["the store is away"]


def test_a_sentence_is_said_again_only_after_it_was_no_longer_true(broker: Broker) -> None:
    said: list[str] = []
    stop = threading.Event()
    WordsDuty(broker, said.append, stop, {"a", "b"}, {"b"}, {"b", "c"}, {"a"}).run(stop)
    assert said == ["a", "b", "c", "a"]
