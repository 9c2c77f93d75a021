"""A job that this version cannot read is left alone by the reconciler, which looks after all others."""

import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from broker.core import records
from broker.core.events import events as ev
from broker.core.events.outcomes import AttemptState, JobState
from broker.core.job.jobs import Job
from broker.core.values.money import Money
from tests.reconciler.rehearsal import MINUTE, Stage, running
from tests.unreadable import DAMAGES, damage_view

HOUR = timedelta(hours=1)


def another(stage: Stage) -> None:
    """A second job, which waits for a place."""
    submitted = ev.Submitted(job=Job(name="k", run="x"), user="bob", max_duration_seconds=3600)
    with stage.store.writing() as tx:
        tx.append("k-1", [(None, submitted)], stage.clock.now())


@pytest.mark.parametrize(
    ("how", "restarted"), [(how, name != "not JSON") for name, how in DAMAGES.items()], ids=DAMAGES
)
def test_others_go_on_and_it_is_logged_once(
    stage: Stage, how: Callable[[str], str], caplog: pytest.LogCaptureFixture, restarted: bool
) -> None:
    key = running(stage)
    damage_view(stage.store, "j-1", how)
    if restarted:
        stage.restart()
    with stage.store.reading() as look:
        (seq,) = look.last_events(["j-1"]).values()
    with stage.store._database.writing() as connection:  # so that also who knew the job before must read it anew
        connection.exec_driver_sql(
            "INSERT INTO attempt_event SELECT job_id, seq + 1, NULL, at, 'cancel_requested', "
            f'\'{{"kind":"cancel_requested","by":"ann"}}\' FROM attempt_event WHERE seq = {seq}'
        )
    another(stage)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            stage.clock.advance(MINUTE)
            assert stage.reconciler.tick().open == 1
    assert [record.message for record in caplog.records if "cannot be read" in record.message] != []
    assert len(caplog.records) == 1, "told once"
    assert "k-1-1" in stage.engine.submitted
    assert stage.engine.machines[key].gone_at is None, "its node has a lease, and is left alone"
    assert stage.money()[0] == Money.usd("100"), "its money is held on"


def test_it_goes_on_where_it_can_be_read_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    running(stage)
    damage_view(stage.store, "j-1")
    stage.restart()
    stage.clock.advance(HOUR)
    assert stage.reconciler.tick().open == 0
    monkeypatch.setattr(records, "FORMAT", records.FORMAT + 1)
    stage.restart()
    assert stage.pass_time().state is JobState.RUNNING
    assert stage.money()[1] == Money.usd("1"), "billed for all the time"
    assert stage.view.attempts[0].state is AttemptState.RUNNING
