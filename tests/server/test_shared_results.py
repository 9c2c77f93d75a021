"""What everybody at the page sees alike is computed once for all of them while that costs much, and never kept long."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from broker.server.shared_results import SharedResults
from tests.waiting import LONGEST


class CostlySeconds:
    """A clock that a computation of ``takes`` seconds moves on."""

    def __init__(self) -> None:
        self.now, self.computed = 100.0, 0

    def __call__(self) -> float:
        return self.now

    def takes(self, seconds: float) -> int:
        self.now += seconds
        self.computed += 1
        return self.computed


def test_a_costly_result_is_used_for_twenty_times_its_cost_and_then_renewed_while_nobody_waits() -> None:
    seconds, later = CostlySeconds(), list[Callable[[], object]]()
    shared = SharedResults(seconds, later.append)
    assert shared.get("spend", lambda: seconds.takes(0.5)) == 1
    seconds.now += 9.9
    assert shared.get("spend", lambda: seconds.takes(0.5)) == 1
    assert shared.get("incidents", lambda: seconds.takes(0.5)) == 2, "another key is another result"
    seconds.now += 0.2
    for _ in range(2):
        assert shared.get("spend", lambda: seconds.takes(0.5)) == 1
    (renew,) = later  # once, however many ask
    renew()
    assert shared.get("spend", lambda: seconds.takes(0.5)) == 3


def test_a_renewal_that_fails_is_tried_again_and_then_told() -> None:
    seconds = CostlySeconds()
    shared = SharedResults(seconds, lambda work: work())

    def failing() -> int:
        raise RuntimeError

    shared.get("spend", lambda: seconds.takes(1))
    seconds.now += 21
    assert [shared.get("spend", failing) for _ in range(2)] == [1, 1]
    seconds.now += 20
    with pytest.raises(RuntimeError):
        shared.get("spend", failing)


def test_without_a_thread_nobody_waits_for_ever() -> None:
    seconds = CostlySeconds()

    def threadless(work: Callable[[], object]) -> None:
        raise RuntimeError("can't start new thread")

    shared = SharedResults(seconds, threadless)
    shared.get("spend", lambda: seconds.takes(1))
    seconds.now += 21
    assert shared.get("spend", lambda: seconds.takes(1)) == 1
    seconds.now += 20
    asking = threading.Thread(target=shared.get, args=("spend", lambda: seconds.takes(1)), daemon=True)
    asking.start()
    asking.join(LONGEST)
    assert seconds.computed == 2


def test_no_result_is_used_for_more_than_a_minute() -> None:
    seconds = CostlySeconds()
    shared = SharedResults(seconds)
    shared.get("spend", lambda: seconds.takes(30))
    seconds.now += 60.1
    assert shared.get("spend", lambda: seconds.takes(30)) == 2


def test_a_quick_result_is_computed_anew_so_that_changes_show_at_once() -> None:
    seconds = CostlySeconds()
    shared = SharedResults(seconds)
    for number in (1, 2):
        assert shared.get("spend", lambda: seconds.takes(0.04)) == number
    seconds.now -= 0.04
    assert shared.get("spend", lambda: seconds.takes(0.04)) == 2, "it began when this was asked: nothing is newer"


def test_a_failure_is_not_kept() -> None:
    seconds = CostlySeconds()
    shared = SharedResults(seconds)

    def failing() -> int:
        seconds.takes(5)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        shared.get("spend", failing)
    assert shared.get("spend", lambda: seconds.takes(0)) == 2


def test_who_asks_during_a_computation_waits_for_its_result() -> None:
    seconds, begun, may_end = CostlySeconds(), threading.Event(), threading.Event()
    shared, found = SharedResults(seconds), list[int]()

    def waiting() -> int:
        begun.set()
        assert may_end.wait(LONGEST)
        return seconds.takes(0.5)

    first = threading.Thread(target=lambda: found.append(shared.get("spend", waiting)))
    first.start()
    assert begun.wait(LONGEST)
    second = threading.Thread(target=lambda: found.append(shared.get("spend", lambda: seconds.takes(0.5))))
    second.start()
    may_end.set()
    for one in (first, second):
        one.join(LONGEST)
    assert found == [1, 1]
    assert seconds.computed == 1
