"""What a look at the store has seen may be out of date when its step is taken: then nothing of it is recorded."""

import pytest

from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.values.money import Money
from broker.engines.runfolder.mailbox import NodeState
from tests.reconciler.rehearsal import MINUTE, OpenPolicy, Stage, running


def test_news_of_an_attempt_is_not_recorded_once_the_job_has_moved_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the record of what it saw, somebody cancels the job: the look is made again first, so that
    nobody acts on what was true before."""
    key = running(stage)
    stage.clock.advance(2 * MINUTE)
    stage.mailbox.says(key, CheckpointSaved(checkpoint="0001-1", step=1))
    read = stage.mailbox.read

    def cancelled_meanwhile(view: JobView, attempt: AttemptView) -> NodeState:
        monkeypatch.undo()
        with stage.store.writing() as tx:
            tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
        return read(view, attempt)

    monkeypatch.setattr(stage.mailbox, "read", cancelled_meanwhile)
    with stage.store.reading() as look:
        before = len(look.events("j-1"))
    stage.reconciler.tick()
    with stage.store.reading() as look:
        kinds = [event.body.kind for event in look.events("j-1")][before:]
    assert kinds[:2] == ["cancel_requested", "stop_requested"], "decided anew before anything is recorded"


def test_the_hold_stays_while_a_machine_of_a_paused_job_may_be_there(stage: Stage) -> None:
    key = running(stage)
    stage.policy = OpenPolicy(denied=frozenset({"re_place", "extend"}))
    machine = stage.engine.machines[key]
    stage.mailbox.exits(key, Cause.MONEY_REFUSED)
    stage.engine.cancel = lambda handle: None  # type: ignore[method-assign]  # it does not go away
    stage.pass_time(MINUTE, times=4)
    assert machine.gone_at is None
    held, spent = stage.money()
    assert held > Money.ZERO
    assert held + spent == Money.usd("100")
    machine.gone_at = stage.clock.now()
    stage.pass_time(MINUTE, times=2)
    assert stage.money()[0] == Money.ZERO
