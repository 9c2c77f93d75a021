"""What everybody at the page sees alike is computed once for all of them while that costs much, and never kept long."""

import threading

import pytest

from broker.app.use_cases.shared_results import SharedResults
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


def test_a_costly_result_is_used_for_twenty_times_its_cost() -> None:
    seconds = CostlySeconds()
    shared = SharedResults(seconds)
    assert shared.get("spend", lambda: seconds.takes(0.5)) == 1
    seconds.now += 9.9
    assert shared.get("spend", lambda: seconds.takes(0.5)) == 1
    assert shared.get("incidents", lambda: seconds.takes(0.5)) == 2, "another key is another result"
    seconds.now += 0.2
    assert shared.get("spend", lambda: seconds.takes(0.5)) == 3


def test_no_result_is_used_for_more_than_half_a_minute() -> None:
    seconds = CostlySeconds()
    shared = SharedResults(seconds)
    shared.get("spend", lambda: seconds.takes(30))
    seconds.now += 30.1
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
