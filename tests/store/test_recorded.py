"""A store of commit 6aefd21 (version 0.1) opens, is upgraded, and can be read to its last event."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from broker.app.results.reasons import ended, waits
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.values.clock import ManualClock
from broker.ledger.entries import faults
from broker.store import open_store
from tests.store.recorded_store import (
    DENIED,
    ENDED,
    NEEDS_SECRET,
    PAUSED,
    RECORDED_AT,
    RUNNING,
    WAITING_FOR_APPROVAL,
    write_recorded,
)

STATES = {
    **dict.fromkeys(RUNNING, JobState.RUNNING),
    WAITING_FOR_APPROVAL: JobState.AWAITING_APPROVAL,
    DENIED: JobState.PLANNED,
    NEEDS_SECRET: JobState.PLANNED,
    PAUSED: JobState.PAUSED_BUDGET,
    "blocked-7cjd3n": JobState.FAILED,
    "cancelled-3w4td5": JobState.CANCELLED,
    "failed-6qsuwg": JobState.FAILED,
    "finished-aeav59": JobState.SUCCEEDED,
    "refused-vfyw8d": JobState.CANCELLED,
}


def test_every_job_event_and_entry_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    url = write_recorded(tmp_path / "store.db")
    with sqlite3.connect(tmp_path / "store.db") as raw:
        written = dict(raw.execute("SELECT job_id, count(*) FROM attempt_event GROUP BY job_id").fetchall())
    raw.close()
    with closing(open_store(url, clock=ManualClock(RECORDED_AT))) as store, store.reading() as look:
        assert {view.id: view.state for view in look.jobs()} == STATES
        assert {job: len(look.events(job)) for job in written} == written
        assert faults(look.entries()) == []
        assert {view.id for view in look.unclosed()} == STATES.keys() - set(ENDED)


def told(view: JobView) -> tuple[JobView, str, str]:
    """The view, its reasons in words: of earlier versions a view keeps a sentence where some events tell more."""
    return replace(view, waiting=None, ending=None), waits(view.waiting), ended(view.ending)


def test_projections_made_anew_are_those_that_an_earlier_version_kept(tmp_path: Path) -> None:
    url = write_recorded(tmp_path / "store.db")
    with closing(open_store(url, clock=ManualClock(RECORDED_AT))) as store:
        with store.reading() as look:
            kept = {view.id: told(view) for view in look.jobs()}
            money = {job: look.balance(job) for job in kept}
        store.rebuild()
        with store.reading() as look:
            assert {view.id: told(view) for view in look.jobs()} == kept
            assert {job: look.balance(job) for job in kept} == money
