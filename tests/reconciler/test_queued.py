"""Attempts that wait in a queue of their engine's, and machines that are billed while they start."""

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.market.offers import MoneyKind
from broker.core.ports import EngineState, Observation
from broker.core.values.money import Money
from broker.reconciler.controllers.strategy_advice import Moving, Strategist
from tests.reconciler.rehearsal import MINUTE, Stage, finish, retrying, settled_and_closed

HOUR = timedelta(hours=1)
IN_LINE = Observation(EngineState.QUEUED, evidence="in Slurm's queue: Priority")


def test_hours_in_a_queue_are_no_failed_launch_and_cost_nothing(stage: Stage) -> None:
    stage.submit()
    stage.engine.lies["j-1-1"] = IN_LINE
    stage.pass_time(MINUTE, times=300)
    (attempt,) = stage.view.attempts
    assert not attempt.state.final
    assert attempt.waits_in_queue
    assert stage.money() == (Money.usd("100"), Money.ZERO)
    with stage.store.reading() as look:
        assert [e.body.kind for e in look.events("j-1")].count("queued") == 1
    del stage.engine.lies["j-1-1"]
    stage.engine.machines["j-1-1"].since = stage.clock.now()
    stage.pass_time(MINUTE, times=14)
    assert not stage.view.attempts[0].state.final, "the agent's time to speak begins with its machine"
    assert not stage.view.attempts[0].waits_in_queue
    stage.pass_time(MINUTE, times=20)
    assert stage.view.attempts[0].cause is Cause.LAUNCH_FAILED


def test_what_waits_can_be_cancelled(stage: Stage) -> None:
    stage.submit()
    stage.engine.lies["j-1-1"] = IN_LINE
    stage.pass_time(MINUTE, times=30)
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
    stage.pass_time(MINUTE)
    assert stage.engine.asked_to_end == ["j-1-1"]
    del stage.engine.lies["j-1-1"]
    stage.engine.machines["j-1-1"].since = stage.engine.machines["j-1-1"].gone_at = stage.clock.now()
    stage.pass_time(MINUTE, times=2)
    assert stage.view.state is JobState.CANCELLED
    settled_and_closed(stage)


def moving(stage: Stage) -> None:
    """The strategy asks once a tick whether what is launched should go elsewhere."""
    strategist = Strategist(lambda offers, end, reach, gap: pytest.fail("no history is needed"))
    place = stage.place
    moving = Moving(stage.store, strategist, lambda view, now: place.plans(view, stage.policy, now))
    stage.begin(place, moving)


def test_a_job_leaves_a_queue_before_its_deadline_is_out_of_reach(stage: Stage) -> None:
    """Two hours of work, due in five: it waits for its own machines as long as rented ones would still do."""
    rented = replace(stage.offers[1], zone="rented")
    own = replace(rented, zone="own", price=Money.usd("1"), money=MoneyKind.AMORTISED)
    stage.offers = [own]
    moving(stage)
    begun = stage.clock.now()
    stage.submit(retrying(0).model_copy(update={"deadline": 5 * HOUR}))
    stage.engine.lies["j-1-1"] = IN_LINE
    stage.pass_time(MINUTE, times=120)
    assert stage.view.attempts[0].stop_requested is None, "nothing else could do it"
    stage.offers = [own, rented]
    stage.pass_time(MINUTE, times=10)
    assert stage.view.attempts[0].stop_requested is None, "there is time to wait"
    while stage.view.attempts[0].stop_requested is None:
        assert stage.pass_time(MINUTE).seq
        assert stage.clock.now() < begun + 3 * HOUR, "too late"
    assert stage.view.attempts[0].stop_requested is Cause.MOVED
    stage.engine.lies["j-1-1"] = Observation(EngineState.GONE, None, stage.clock.now())
    stage.pass_time(MINUTE, times=3)
    assert [a.placement.offer.zone for a in stage.view.attempts] == ["own", "rented"]


@pytest.mark.parametrize("known_before", [True, False])
def test_a_machine_that_the_provider_did_not_have_is_not_billed_though_it_seemed_to_start(
    stage: Stage, known_before: bool
) -> None:
    stage.offers = [stage.offers[1]]
    stage.submit()
    start = stage.clock.now()
    stage.pass_time()
    if known_before:
        stage.engine.lies["j-1-1"] = Observation(EngineState.PENDING, start)
    stage.pass_time(MINUTE, times=2)
    assert stage.money()[1] == (Money.usd("3").for_duration(2 * MINUTE)), "billed as long as it may exist"
    stage.engine.lies["j-1-1"] = Observation(EngineState.GONE, start, start, evidence="sold out", no_capacity=True)
    stage.pass_time(timedelta(seconds=1))
    assert stage.view.attempts[0].cause is Cause.NO_CAPACITY
    assert stage.money()[1] == Money.ZERO
    stage.pass_time(15 * MINUTE, times=2)
    stage.mailbox.starts("j-1-2")
    stage.pass_time(HOUR)
    finish(stage, "j-1-2")
    settled_and_closed(stage)
