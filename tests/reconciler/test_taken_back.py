"""What a provider does not charge: a first hour that it interrupted, a machine that never was. The cloud's word about
it counts alone, whatever the node wrote down and whatever was asked for meanwhile."""

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.market.offers import Billing
from broker.core.ports import EngineState, Observation
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.store import Store
from tests.reconciler.rehearsal import MINUTE, Stage, running

BILLED, FREE = Money.usd("1") * 30, Money.ZERO  # half an hour at $60 an hour


@pytest.fixture
def stage(store: Store, clock: ManualClock) -> Stage:
    made = Stage(store, clock)
    terms = Billing(free_if_interrupted_within=timedelta(hours=1))
    made.offers = [replace(one, billing=terms, price=Money.usd("60")) for one in made.offers[:1]]
    return made


def test_a_node_that_calls_its_own_end_an_interruption_is_billed(stage: Stage) -> None:
    key = running(stage)
    stage.pass_time(30 * MINUTE)
    stage.mailbox.exits(key, Cause.PREEMPTED)
    stage.engine.cancel(key)  # its own agent ended it; the provider took nothing
    stage.pass_time()
    assert stage.attempt(1).gone
    assert stage.money()[1] == BILLED


@pytest.mark.parametrize("stopped", [False, True])
def test_what_the_provider_took_back_is_free_also_after_it_was_told_to_stop(stage: Stage, stopped: bool) -> None:
    key = running(stage)
    if stopped:
        with stage.store.writing() as tx:
            tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
        stage.pass_time()
    stage.clock.advance(30 * MINUTE)
    stage.engine.take_back(key)
    stage.pass_time()
    assert stage.attempt(1).gone
    assert stage.money()[1] == FREE


@pytest.mark.parametrize("stopped", [False, True])
def test_a_machine_that_never_existed_is_free_also_after_it_was_told_to_stop(stage: Stage, stopped: bool) -> None:
    stage.offers = [replace(one, billing=Billing(minimum=MINUTE)) for one in stage.offers]
    stage.submit()
    stage.pass_time()
    begun = stage.clock.now()
    stage.engine.lies["j-1-1"] = Observation(EngineState.PENDING, begun)
    stage.pass_time(MINUTE)
    if stopped:
        with stage.store.writing() as tx:
            tx.append("j-1", [(None, ev.CancelRequested(by="ann"))], stage.clock.now())
    stage.engine.lies["j-1-1"] = Observation(EngineState.GONE, begun, stage.clock.now(), no_capacity=True)
    stage.pass_time(MINUTE)
    assert stage.attempt(1).gone
    assert stage.money()[1] == FREE
