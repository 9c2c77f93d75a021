"""A transaction for a job as it was read, and none for one that has changed since."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from broker.core.events.events import EventBody, JobClosed
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.ledger.journal import NoLongerCurrent, TaskCounts, append_if, writing_if
from tests.reconciler.settlement.test_charges import life

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@dataclass
class OneJob:
    """A store that has one job, or none, and notes what is appended to it."""

    view: JobView | None
    appended: list[tuple[Any, ...]] = field(default_factory=list)

    @contextmanager
    def writing(self) -> Iterator[OneJob]:
        yield self

    def job(self, job_id: str) -> JobView | None:
        return self.view if self.view is not None and self.view.id == job_id else None

    def append(self, job_id: str, items: Sequence[tuple[int | None, EventBody]], at: datetime) -> JobView | None:
        self.appended.append((job_id, items, at))
        return self.view


def test_what_is_as_it_was_read_gets_its_transaction() -> None:
    view = life(closed=False)
    store: Any = OneJob(replace(view, user="bob"))
    with writing_if(store, view) as tx:
        assert tx is store
    items = [(None, JobClosed())]
    assert append_if(store, view, items, NOW) is store.view
    assert store.appended == [(view.id, items, NOW)]


@pytest.mark.parametrize("later", [1, -1, None])
def test_what_has_changed_or_is_gone_gets_none(later: int | None) -> None:
    view = life(closed=False)
    store: Any = OneJob(None if later is None else replace(view, seq=view.seq + later))
    with pytest.raises(NoLongerCurrent, match="has changed since"), writing_if(store, view):
        raise AssertionError("never begun")
    with pytest.raises(NoLongerCurrent):
        append_if(store, view, [(None, JobClosed())], NOW)
    assert store.appended == []


def test_tasks_that_were_started_are_those_of_all_states() -> None:
    assert TaskCounts({JobState.RUNNING: 2, JobState.FAILED: 3}, open=2).started == 5
