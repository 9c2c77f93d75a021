"""Work leaves bought capacity before it ends, with its checkpoint, and goes on elsewhere."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from broker.app.jobs.reasons import stop_text
from broker.core.events.agent_events import CheckpointSaved
from broker.core.events.outcomes import Cause, JobState
from broker.core.market.offers import CapacityType, Offer
from broker.core.values.clock import ManualClock
from broker.reconciler.controllers.continuation import CapacityEnd
from broker.store import Store
from tests.reconciler.rehearsal import MINUTE, Stage, finish, offer, running, settled_and_closed


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    stage = Stage(store, clock)
    block = offer(clock.now(), "block", CapacityType.RESERVED, price="0.5")
    stage.offers = [block, offer(clock.now(), "od", price="3")]
    return stage


def watch(stage: Stage, leaves: datetime | None) -> None:
    """Look after the job as a broker does that knows when work leaves the block."""

    def when(found: Offer) -> datetime | None:
        return leaves if found.zone == "block" else None

    stage.begin(stage.place, stage.enforce, CapacityEnd(stage.store, when))


def test_it_leaves_at_that_time_and_goes_on_elsewhere(stage: Stage) -> None:
    leaves = stage.clock.now() + timedelta(hours=1)
    watch(stage, leaves)
    key = running(stage)
    stage.pass_time(MINUTE, times=50)
    assert stage.attempt(1).stop_requested is None
    while stage.clock.now() < leaves:
        stage.pass_time(MINUTE)
    assert stage.attempt(1).stop_requested is Cause.MOVED
    assert "the bought capacity ends soon" in stop_text(stage.attempt(1).stop_reason)

    stage.offers = [replace(one, slots=0) if one.zone == "block" else one for one in stage.offers]
    stage.mailbox.says(key, CheckpointSaved(checkpoint="c1", step=7, size=1))
    finish(stage, key, Cause.MOVED)
    stage.pass_time(MINUTE)
    assert stage.attempt(2).placement.offer.zone == "od"
    stage.mailbox.starts("j-1-2", restored="c1")
    assert stage.pass_time().state is JobState.RUNNING
    finish(stage, "j-1-2")
    settled_and_closed(stage)


def test_capacity_that_does_not_end_is_not_left(stage: Stage) -> None:
    watch(stage, None)
    running(stage)
    stage.pass_time(MINUTE, times=90)
    assert stage.attempt(1).stop_requested is None


def test_other_capacity_is_not_asked_about(stage: Stage) -> None:
    stage.offers = stage.offers[1:]
    watch(stage, stage.clock.now())
    running(stage)
    stage.pass_time(MINUTE, times=3)
    assert stage.attempt(1).stop_requested is None
