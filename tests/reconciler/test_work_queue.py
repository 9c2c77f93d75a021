"""Which job the reconciler looks at next."""

from __future__ import annotations

from broker.reconciler.worklist import WorkQueue


def test_jobs_come_once_each_in_the_order_in_which_they_were_added() -> None:
    queue = WorkQueue()
    queue.add(["a", "b"])
    queue.add(["c", "a"])
    assert [queue.next() for _ in range(4)] == ["a", "b", "c", None]


def test_a_job_of_which_there_is_news_comes_first_whether_it_waited_or_was_looked_at_already() -> None:
    queue = WorkQueue()
    queue.add(["a", "b", "c"])
    assert queue.next() == "a"
    queue.news("c")
    queue.news("a")
    queue.news("c")
    assert [queue.next() for _ in range(4)] == ["c", "a", "b", None]
