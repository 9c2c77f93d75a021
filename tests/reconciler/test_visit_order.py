"""The order in which jobs are looked at: what runs first, then who waits, in turn."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from broker.core.events import events as ev
from broker.core.events.events import Event
from broker.core.events.lifecycle import advance
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.job.jobs import Job, Priority
from broker.reconciler.visit_order import running_by_team, visit_order, waits_for_machine
from tests.reconciler.test_decide import NOW, PLACEMENT


def job(name: str, minute: float = 0, deadline: timedelta | None = None, **changed: Any) -> JobView:
    at = NOW + timedelta(minutes=minute)
    submitted = ev.Submitted(
        job=Job(name=name, run="x", **changed), user="ann", max_duration_seconds=86_400, work_seconds=3_600.0,
        deadline=None if deadline is None else NOW + deadline,
    )  # fmt: skip
    return advance(None, Event(name, 1, at, None, submitted))


def running(view: JobView) -> JobView:
    asked = ev.LaunchRequested(key=f"{view.id}-1", engine="sandbox", placement=PLACEMENT)
    return advance(view, Event(view.id, view.seq + 1, NOW, 1, asked))


def ids(*views: JobView) -> list[str]:
    return [view.id for view in visit_order(views, NOW)]


def test_priority_then_deadline_then_first_come() -> None:
    early, late = job("early", -9), job("late", -1)
    hasty = job("hasty", 0, timedelta(hours=9))
    assert ids(late, hasty, early) == ["hasty", "early", "late"]
    assert ids(late, early, job("boss", 0, priority=Priority.URGENT))[0] == "boss"


def test_what_runs_comes_first() -> None:
    assert ids(job("urgent", priority=Priority.URGENT), running(job("low", priority=Priority.LOW))) == ["low", "urgent"]


def test_teams_take_turns_and_what_runs_counts() -> None:
    first = [job(f"a{n}", n - 20, team="a") for n in range(3)]
    other = job("b0", 0, team="b")
    assert ids(*first, other)[:2] == ["a0", "b0"]
    busy = running(job("a9", -60, team="a"))
    assert ids(busy, *first, other) == ["a9", "b0", "a0", "a1", "a2"]
    assert running_by_team([busy, *first]) == {"a": 1}


def test_who_waits_for_something_else_is_not_in_the_queue() -> None:
    queued = job("q")
    assert waits_for_machine(queued)
    assert not waits_for_machine(running(queued))
    assert not waits_for_machine(replace(queued, state=JobState.PAUSED_BUDGET))
    assert not waits_for_machine(replace(queued, state=JobState.AWAITING_APPROVAL))
    assert not waits_for_machine(replace(queued, cancel_requested=True))
