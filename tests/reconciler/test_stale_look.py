"""What a look at the store has seen may be out of date when its step is taken: then nothing of it is recorded."""

from __future__ import annotations

from datetime import timedelta

import pytest

from broker.core.events import events as ev
from broker.core.events.agent_events import CheckpointSaved
from broker.core.events.outcomes import Cause
from broker.core.events.views import AttemptView, JobView
from broker.core.market.offers import MoneyKind
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.entries import Account, Movement, Tags, move
from broker.reconciler.settlement.settlement import release, release_of, settle
from broker.runfolder.node_state import NodeState
from broker.store import Store
from tests.billing import one_by_one
from tests.reconciler.rehearsal import MINUTE, OpenPolicy, Stage, running
from tests.reconciler.settlement.test_batch import never_asked, nothing_posted
from tests.reconciler.settlement.test_charges import UP, life

HOUR = timedelta(hours=1)


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    return Stage(store, clock)


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


def test_no_more_is_given_back_than_is_held() -> None:
    view = life()
    held = move(
        Movement.HOLD, Money(5), movement_id="train/hold/1/cash", money=MoneyKind.CASH, at=UP, covers=(UP, UP),
        tags=Tags("train", "ann"),
    )  # fmt: skip
    for asked, given in ((3, 3), (5, 5), (9, 5)):
        back = release_of(view, one_by_one(held), {MoneyKind.CASH: Money(asked)}, UP)
        assert [entry.amount.micros for entry in back if entry.account is Account.AVAILABLE] == [given]
    assert release(view, one_by_one(()), UP) == []


def test_what_is_not_held_is_not_drawn() -> None:
    view = life(closed=False)
    settled = settle(view, one_by_one(()), {}, never_asked, nothing_posted, UP + HOUR, MINUTE)
    assert {entry.movement for entry in settled.entries} == {Movement.ADJUST}


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
