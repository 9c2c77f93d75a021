"""A job for which no capacity is to be had, or whose launches fail, tries on without growing, and not for ever."""

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.errors import BrokerError, NoCapacity
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.wait_reasons import LaunchesFailed
from broker.core.job.jobs import Job, Retry
from broker.core.ports import EngineState, Observation
from broker.core.values.money import Money
from tests.reconciler.rehearsal import MINUTE, Stage, finish, retrying, settled_and_closed

HOUR = timedelta(hours=1)


class SoldOut(list[BrokerError]):
    """Refusals without end."""

    def __bool__(self) -> bool:
        return True

    def pop(self, index: object = -1) -> BrokerError:
        return NoCapacity("sold out: " + "no machine of that kind in this zone for the moment; " * 5)


def test_a_pool_without_capacity_is_asked_ever_less_often(stage: Stage) -> None:
    stage.offers = [stage.offers[1]]
    stage.engine.refuse = SoldOut()
    stage.submit()
    for _ in range(24 * 4):
        stage.clock.advance(15 * MINUTE)
        stage.reconciler.tick()
    assert 20 < stage.view.attempt_count < 30, "once an hour after the first"
    stage.engine.refuse = []
    for _ in range(61):
        if not stage.engine.submitted:
            stage.pass_time(MINUTE)
    assert stage.engine.submitted == [f"j-1-{stage.view.attempt_count}"], "capacity that is back is found"
    stage.mailbox.starts(stage.engine.submitted[0])
    stage.pass_time()
    finish(stage, stage.engine.submitted[0])
    settled_and_closed(stage)


def doomed(stage: Stage, by: timedelta, times: int) -> None:
    """Time passes on an engine whose machines come up, and never get as far as the agent."""
    for _ in range(times):
        stage.clock.advance(by)
        stage.reconciler.tick()
        for machine in stage.engine.machines.values():
            if machine.gone_at is None and stage.clock.now() - machine.since > MINUTE:
                machine.gone_at = stage.clock.now()


@pytest.mark.parametrize(("limit", "launched"), [pytest.param(None, 10, marks=pytest.mark.system), (3, 3)])
def test_launches_that_fail_in_a_row_pause_the_job_with_the_evidence(
    stage: Stage, limit: int | None, launched: int
) -> None:
    retry = Retry() if limit is None else Retry(launches=limit)
    stage.submit(retrying(0).model_copy(update={"retry": retry}))
    doomed(stage, 5 * MINUTE, 24 * 12)
    view = stage.view
    assert (view.state, len(stage.engine.submitted)) == (JobState.PAUSED_BUDGET, launched)
    assert isinstance(view.waiting, LaunchesFailed)
    assert (view.waiting.count, view.waiting.cause) == (launched, Cause.LAUNCH_FAILED)
    assert any(pool.startswith("stage/od/") for pool in view.waiting.pools)
    assert stage.money()[0] == Money.ZERO, "it holds nothing while it waits for a person"
    assert stage.money()[1] > Money.ZERO, "machines that came up were billed"
    with stage.store.writing() as tx:
        tx.append("j-1", [(None, ev.Extended(by="ann"))], stage.clock.now())
    stage.pass_time(HOUR, times=2)
    key = f"j-1-{launched + 1}"
    assert stage.engine.submitted[-1] == key, "whoever mended it lets it go on"


def test_an_agent_that_spoke_starts_the_count_anew(stage: Stage) -> None:
    stage.submit(retrying(0).model_copy(update={"retry": Retry(launches=3)}))
    while stage.view.failed_launches < 2:
        doomed(stage, 5 * MINUTE, 1)
    while not stage.view.attempts[-1].handle or stage.view.attempts[-1].over:
        stage.pass_time(MINUTE)
    key = stage.engine.submitted[-1]
    stage.mailbox.starts(key)
    stage.pass_time()
    assert stage.view.failed_launches == 0
    assert stage.view.state is JobState.RUNNING


def test_capacity_that_is_not_to_be_had_pauses_nothing(stage: Stage) -> None:
    stage.engine.refuse = SoldOut()
    stage.submit(retrying(0).model_copy(update={"retry": Retry(launches=2)}))
    for _ in range(16):
        stage.clock.advance(3 * HOUR)
        stage.reconciler.tick()
    assert stage.view.state is JobState.INTERRUPTED
    assert stage.view.failed_launches == 0


def test_machines_that_start_and_fail_are_billed_and_do_not_go_on_for_ever(stage: Stage) -> None:
    """Each is booked from when it may exist, though it never comes up; what is held pays for so many and no more."""
    stage.offers = [replace(stage.offers[1], price=Money.usd("98"))]
    stage.submit(Job(name="j", run="x", max_cost=Money.usd("150")), hold="150")
    launched = 0
    for _ in range(12 * 15):
        stage.clock.advance(4 * MINUTE)
        stage.reconciler.tick()
        for key, machine in stage.engine.machines.items():
            age = stage.clock.now() - machine.since
            starting = Observation(EngineState.PENDING, machine.since)
            failed = Observation(EngineState.GONE, machine.since, machine.since + 16 * MINUTE, evidence="no answer")
            stage.engine.lies[key] = starting if age < 16 * MINUTE else failed
        launched = len(stage.engine.submitted)
    spent = stage.money()[1]
    assert launched <= 10
    assert spent >= Money.usd("98").for_duration(15 * MINUTE) * launched
    assert spent <= Money.usd("185"), "the hold, and what it takes to stop"
    assert stage.view.state is JobState.PAUSED_BUDGET
