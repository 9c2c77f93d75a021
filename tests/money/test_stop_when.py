"""Tasks that are far behind are stopped early, in the money tests: their past time is paid, the rest of their hold is
released, and the array continues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from broker.app.jobs import submit
from broker.app.jobs.bills import bill_of
from broker.app.jobs.resume import retried
from broker.app.results.jobs import TaskStates
from broker.core.errors import InvalidInput
from broker.core.events.agent_events import MetricsReported
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import BehindOthers, Completed
from broker.core.job.file import parse_job
from broker.core.job.stop_when import MetricGoal
from broker.core.values.money import Money
from broker.runfolder.node_state import Dated
from tests.actors import person
from tests.money.moves import job_text
from tests.money.promise import broken
from tests.money.test_arrays import _KEYS, ON_DEMAND, again, tasks
from tests.money.world import MINUTE, MoneyWorld

BAD = 6  # the number of the task that is far behind
RULE = "stop_when: {metric: loss, goal: minimize, min_tasks: 3, from_step: 10}\n"


def enter(world: MoneyWorld, array: str, **said: object) -> JobView:
    text = job_text("sweep", {**dict.fromkeys(_KEYS, ""), **ON_DEMAND, "array": array, **said}) + RULE
    return submit.submit(world.broker, parse_job(text, file="job.yaml", now=world.clock.now()), by=person("ann"))


def played(world: MoneyWorld, array: JobView, loss: Callable[[int, int], float], *, kill: bool = False) -> JobView:
    """The array at its end. Each task reports every five minutes: its minutes as the step, and its loss at
    that step.
    """
    for look in range(200):
        for machine in world.cloud.live():
            node = world.folders.node(machine.key)
            if not node.journal or not machine.agent_works(world.clock.true):
                continue
            number = int(machine.key.split("-")[-2])
            step = int((world.clock.true - node.journal[0].at) / MINUTE)
            told = MetricsReported(step=step, metrics={"loss": loss(number, step)})
            journal = (*node.journal, Dated(world.clock.true, told))
            world.folders.nodes[machine.key] = replace(node, journal=journal)
        if kill and look % 3 == 2:
            world.do("restart", {})
        world.passes(5 * MINUTE)
        world.do("tell", {})
        world.look()
        if again(world, array).closed:
            return again(world, array)
    raise AssertionError([f"{one.id} {one.state} {one.waiting}" for one in tasks(world, array)])


@pytest.mark.parametrize("kill", [pytest.param(False, marks=pytest.mark.system), True], ids=["", "killed"])
def test_a_task_far_behind_is_stopped_and_the_others_are_not(world: MoneyWorld, kill: bool) -> None:
    array = enter(world, "range: 9, parallel: 4")
    array = played(world, array, lambda number, step: 9.0 if number == BAD else 1.0, kill=kill)
    assert (array.state, array.ending) == (JobState.SUCCEEDED, Completed()), "it counts as no failure"
    all_tasks = {one.job.task.index: one for one in tasks(world, array) if one.job.task}
    assert {n: one.state for n, one in all_tasks.items() if n != BAD} == dict.fromkeys(
        {*range(9)} - {BAD}, JobState.SUCCEEDED
    )
    stopped = all_tasks[BAD]
    assert stopped.state is JobState.STOPPED
    reason = stopped.ending
    assert isinstance(reason, BehindOthers)
    assert (reason.metric, reason.goal, reason.best, reason.median) == ("loss", MetricGoal.MINIMIZE, 9.0, 1.0)
    assert reason.step >= 10
    assert reason.tasks >= 3
    assert [one.cause for one in stopped.attempts] == [Cause.STOPPED_EARLY]
    ran = (stopped.attempts[0].gone_at or world.clock.now()) - (stopped.attempts[0].up_since or world.clock.now())
    assert timedelta(0) < ran < timedelta(minutes=25), "not to its end"
    bills = {number: bill_of(world.broker, one) for number, one in all_tasks.items()}
    assert bills[BAD].held == {}
    assert Money.ZERO < bills[BAD].so_far < min(bill.so_far for number, bill in bills.items() if number != BAD)
    whole = bill_of(world.broker, array)
    assert whole.so_far == sum((bill.so_far for bill in bills.values()), Money.ZERO)
    assert array.job.array is not None
    assert whole.tasks is not None
    counted = TaskStates.of(array.job.array, whole.tasks)
    assert (counted.succeeded, counted.stopped, counted.failed, counted.cancelled) == (8, 1, 0, 0)
    with pytest.raises(InvalidInput, match="no task"):
        retried(world.broker, array, by=person("ann"))
    assert retried(world.broker, stopped, by=person("ann"), from_start=True).stop_when is None
    world.drain()
    assert not broken(world)


def test_nobody_is_stopped_before_enough_have_succeeded(world: MoneyWorld) -> None:
    array = played(world, enter(world, "range: 4, parallel: 4"), lambda number, step: 9.0 if number == 2 else 1.0)
    assert [one.state for one in tasks(world, array)] == [JobState.SUCCEEDED] * 4
