"""Two reconcilers of one store, each for its share of the jobs; and a job that passes from one to the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from broker.core.events.outcomes import Cause, JobState
from broker.core.values.clock import ManualClock
from broker.store import Store
from tests.reconciler.rehearsal import Stage, running, settled_and_closed

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_each_looks_after_its_own_and_takes_over(store: Store) -> None:
    clock = ManualClock(NOW)
    one = Stage(store, clock)
    key = running(one)
    first = one.reconciler
    one.restart()  # a second process over the same engine and run folders
    second, events = one.reconciler, one.view.seq
    one.mailbox.exits(key, Cause.COMPLETED, 0)
    clock.advance(timedelta(seconds=30))
    assert second.tick(lambda job_id: False).open == 0
    assert one.view.seq == events, "it is not its job"
    first.tick(lambda job_id: False)
    assert one.view.seq == events, "it was, and is no longer"
    second.tick(lambda job_id: job_id == "j-1")
    second.tick(lambda job_id: job_id == "j-1")
    assert one.view.state is JobState.SUCCEEDED
    first.tick()
    settled_and_closed(one)
    assert one.engine.submitted == [key]
