"""Arrays in the money tests: the holds, and that each task is done once, at the correct cost, whatever is killed."""

import random
from collections import Counter

import pytest

from broker.app.jobs import approvals, jobs, submit
from broker.app.jobs.alternatives import JobLimits
from broker.app.jobs.bills import bill_of
from broker.app.jobs.extension import extend
from broker.app.jobs.resume import retried_job
from broker.core.errors import InvalidInput, NotAllowed, UnknownName
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.job.arrays import INDEX_VARIABLE
from broker.core.job.file import parse_job
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from tests.actors import person
from tests.counts import FULL
from tests.money.moves import job_text
from tests.money.promise import broken
from tests.money.world import MINUTE, MoneyWorld

ON_DEMAND = {"machine": "H100:1", "nodes": 1, "capacity": "on_demand", "providers": "aws", "max_duration": "3h"}


def enter(world: MoneyWorld, array: str, **said: object) -> JobView:
    text = job_text("sweep", {**dict.fromkeys(_KEYS, ""), **ON_DEMAND, "array": array, **said})
    return submit.submit(world.broker, parse_job(text, file="job.yaml", now=world.clock.now()), by=person("ann"))


_KEYS = (
    "max_cost", "work", "deadline", "value_of_time", "team", "project", "workload", "environment", "priority",
    "unattended", "checkpoint", "retry", "data", "sensitive",
)  # fmt: skip


def tasks(world: MoneyWorld, array: JobView) -> list[JobView]:
    with world.store.reading() as look:
        return list(look.tasks_of(array.id))


def again(world: MoneyWorld, array: JobView) -> JobView:
    return jobs.find(world.broker, array.id)


def until_closed(world: MoneyWorld, array: JobView, looks: int = 400) -> JobView:
    for _ in range(looks):
        world.passes(5 * MINUTE)
        world.do("tell", {})  # stored prices become stale
        world.look()
        if again(world, array).closed:
            break
    last = again(world, array)
    assert last.closed, (
        last.waiting,
        [f"{one.id} {one.state} {one.waiting}" for one in tasks(world, array) if not one.closed],
    )
    return last


def test_money_is_held_for_those_that_begin_and_not_for_all(world: MoneyWorld) -> None:
    single = enter(world, "")
    alone = bill_of(world.broker, single).held[MoneyKind.CASH]
    array = enter(world, "range: 1000, parallel: 4")
    bill = bill_of(world.broker, array)
    assert bill.held == {MoneyKind.CASH: alone * 4}
    assert bill.tasks is not None
    assert (bill.tasks.started, bill.tasks.open) == (4, 4)
    with world.store.reading() as look:
        assert look.balance(array.id) == {}, "an array has no money of its own"
        assert {view.id for view in look.jobs()} == {array.id, single.id}, "one row"


def test_an_array_is_refused_as_a_whole_with_what_would_pass(world: MoneyWorld) -> None:
    world.do("policy", {"amount": "$30", "period": "month"})
    with pytest.raises(NotAllowed) as caught:
        enter(world, "range: 50, parallel: 8")
    allowed = int(caught.value.message.split("only ")[1].split()[0])
    assert 1 <= allowed < 8
    assert f"write `parallel: {allowed}`" in caught.value.hint
    assert world.views() == []
    with world.store.reading() as look:
        assert look.entries() == []
    enter(world, f"range: 50, parallel: {allowed}")


def test_tasks_follow_each_other_and_the_array_ends_with_the_last(world: MoneyWorld) -> None:
    array = until_closed(world, enter(world, "range: 7, parallel: 3"))
    assert array.state is JobState.SUCCEEDED
    assert [(task.id, task.state) for task in sorted(tasks(world, array), key=lambda task: task.id)] == [
        (f"{array.id}-{number}", JobState.SUCCEEDED) for number in range(7)
    ]
    paid = sum((bill_of(world.broker, task).so_far for task in tasks(world, array)), Money.ZERO)
    assert bill_of(world.broker, array).so_far == paid > Money.ZERO
    world.drain()
    assert not broken(world)


def test_each_task_is_retried_by_itself_and_one_that_fails_stops_no_other(world: MoneyWorld) -> None:
    world.do("fate", {"runs": 1800.0, "fails": True})
    array = enter(world, "range: 3, parallel: 3", retry=1)
    world.look()
    world.passes(25 * MINUTE)
    world.do("fate", {"runs": 1800.0})  # for machines requested from now on
    array = until_closed(world, array)
    assert [task.failures for task in tasks(world, array)] == [1, 1, 1]
    assert array.state is JobState.SUCCEEDED
    world.do("fate", {"runs": 1800.0, "fails": True})
    failed = until_closed(world, enter(world, "range: 3, parallel: 1"))
    assert failed.state is JobState.FAILED
    assert Counter(task.state for task in tasks(world, failed)) == {JobState.FAILED: 3}
    assert [task.job.task.index for task in jobs.failed_tasks(world.broker, failed) if task.job.task] == [0, 1, 2]


def test_cancelling_stops_all_tasks_and_starts_no_other(world: MoneyWorld) -> None:
    array = enter(world, "range: 100, parallel: 5")
    world.look()
    jobs.cancel(world.broker, array, by=person("ann"))
    assert all(task.cancel_requested for task in tasks(world, array))
    array = until_closed(world, array)
    assert array.state is JobState.CANCELLED
    assert len(tasks(world, array)) == 5
    assert bill_of(world.broker, array).held == {}
    whole = retried_job(world.broker, array, by=person("ann")).array
    assert whole is not None
    assert whole.only == tuple(range(100)), "a retry that succeeds has run all tasks, those that never began, too"
    with pytest.raises(NotAllowed):
        jobs.cancel(world.broker, enter(world, "range: 2"), by=person("bob"))


def test_the_beginning_of_its_id_finds_the_array_and_not_its_tasks(world: MoneyWorld) -> None:
    array = enter(world, "range: 12, parallel: 12")
    assert jobs.find(world.broker, array.id[:-1]).id == array.id
    assert jobs.find(world.broker, f"{array.id}-").id == array.id, "all that match are its tasks"
    assert jobs.find(world.broker, f"{array.id}-1").id == f"{array.id}-1", "also where 10 and 11 begin so"
    assert jobs.find(world.broker, "sweep-7").id == f"{array.id}-7", "by its name"
    single = enter(world, "range: 1")
    assert jobs.find(world.broker, f"{single.id}-").id == f"{single.id}-0"
    enter(world, "")
    with pytest.raises(UnknownName):
        jobs.find(world.broker, "swee")


def test_what_goes_on_from_a_task_is_no_task(world: MoneyWorld) -> None:
    world.do("fate", {"runs": 1800.0, "fails": True})
    array = until_closed(world, enter(world, "range: 2, parallel: 2"))
    task = jobs.find(world.broker, f"{array.id}-1")
    anew = retried_job(world.broker, task, by=person("ann"), from_start=True)
    assert anew.task is None
    assert anew.envs[INDEX_VARIABLE] == "1"
    new = submit.submit(world.broker, anew, by=person("ann"))
    assert new.id not in {one.id for one in tasks(world, array)}
    with world.store.reading() as look:
        assert new.id in {one.id for one in look.jobs()}, "a row of its own"
        assert look.task_counts(array.id).started == 2


def test_all_tasks_together_cost_no_more_than_the_array_may(world: MoneyWorld) -> None:
    world.do("fate", {"runs": 10 * 3600.0})  # longer than a task's share of the money lasts
    array = enter(world, "range: 30, parallel: 3", max_cost="$50", max_duration="3h")
    limits = [task.max_cost or Money.ZERO for task in tasks(world, array)]
    assert len(limits) > 1
    assert sum(limits, Money.ZERO) <= Money.usd("50")
    for _ in range(60):
        world.passes(10 * MINUTE)
        world.do("tell", {})
        world.look()
    assert bill_of(world.broker, array).so_far <= Money.usd("50")
    one = next(task for task in tasks(world, array) if not task.state.final)
    with pytest.raises(InvalidInput, match="more than is left of the array"):
        extend(world.broker, one, JobLimits(Money.usd("49"), None), by=person("ann"))
    world.drain()
    assert not broken(world)


def test_a_limit_that_running_tasks_would_not_keep_is_refused(world: MoneyWorld) -> None:
    array = enter(world, "range: 4, parallel: 1")
    with pytest.raises(InvalidInput, match="has no max_cost"):
        extend(world.broker, again(world, array), JobLimits(Money.usd(1_000_000), None), by=person("ann"))
    assert again(world, array).max_cost is None


def test_a_first_limit_of_an_array_covers_what_its_tasks_have_spent_and_may_spend(world: MoneyWorld) -> None:
    world.do("fate", {"runs": 3600.0})
    array = enter(world, "range: 4, parallel: 1")
    while len(tasks(world, array)) < 2:
        world.passes(5 * MINUTE)
        world.do("tell", {})
        world.look()
    (second,) = [task for task in tasks(world, array) if not task.state.final]
    limit = Money.usd(100)
    extend(world.broker, second, JobLimits(limit, None), by=person("ann"))
    with pytest.raises(InvalidInput, match="less than its tasks have spent and may spend"):
        extend(world.broker, again(world, array), JobLimits(limit, None), by=person("ann"))


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(4 if FULL else 1))
def test_each_task_is_done_exactly_once_whatever_is_killed(world: MoneyWorld, seed: int) -> None:
    """Brokers are killed between any two ticks, agents and machines die, the provider takes machines back."""
    chance = random.Random(seed)
    capacity = chance.choice(("on_demand", "spot"))
    array = enter(world, "range: 9, parallel: 4", capacity=capacity, max_duration="10d", max_cost="$900")
    for _ in range(60):
        name, said = chance.choice(
            (
                ("restart", {}), ("preempt", {"machine": chance.randrange(4), "noticed": chance.random() < 0.5}),
                ("lose", {"machine": chance.randrange(4)}), ("kill_agent", {"machine": chance.randrange(4)}),
                *((("wait", {"span": "10m", "looks": chance.choice((1, 2, 3))}),) * 12),
            )
        )  # fmt: skip
        world.do(name, said)
        world.do("tell", {})
        assert not world.found, world.found[0]
        if again(world, array).closed:
            break
    array = until_closed(world, array)
    assert array.state is JobState.SUCCEEDED
    assert Counter(task.job.task.index for task in tasks(world, array) if task.job.task) == dict.fromkeys(range(9), 1)
    world.drain()
    assert not broken(world)


def test_a_machine_without_an_agent_is_given_up_by_a_broker_that_restarts_at_every_look(world: MoneyWorld) -> None:
    array = enter(world, "range: 1")
    for _ in range(3):
        world._tick()
    world.clock.true += 5 * MINUTE  # the agent starts, and dies before its first report
    (machine,) = world.cloud.live()
    world.cloud.kill_agent(machine)
    for _ in range(12):
        world.passes(10 * MINUTE)
        world.look()
        world.do("restart", {})
    assert machine.gone_at is not None
    assert machine.gone_at - machine.since < 90 * MINUTE, "nobody but the broker could end it"
    assert jobs.find(world.broker, array.id).state is JobState.SUCCEEDED, "another machine did the work"


def test_a_task_paused_for_money_continues_when_money_is_there(world: MoneyWorld) -> None:
    world.do("fate", {"runs": 3600.0})
    world.do("policy", {"amount": "$25", "period": "month"})
    array = enter(world, "range: 3, parallel: 1", capacity="spot", providers="gcp", max_duration="2h")
    for _ in range(3):
        world.passes(5 * MINUTE)
        world.look()
    other = enter(world, "", max_duration="4h", providers="aws")
    world.do("price", {"pool": "gcp-spot", "times": "6", "told": True})
    world.do("preempt", {"machine": 0, "noticed": False})
    for _ in range(20):
        world.passes(2 * MINUTE)
        world.look()
    (paused,) = tasks(world, array)
    assert paused.state is JobState.PAUSED_BUDGET
    assert again(world, array).waiting == paused.waiting is not None, "the array says why it waits"
    jobs.cancel(world.broker, other, by=person("ann"))
    for _ in range(3):
        world.passes(5 * MINUTE)
        world.look()
    assert (again(world, array).waiting, tasks(world, array)[0].waiting) == (None, None)
    world.do("price", {"pool": "gcp-spot", "times": "0.2", "told": True})
    assert until_closed(world, array).state is JobState.SUCCEEDED


def test_rules_about_a_job_see_all_tasks_of_an_array(world: MoneyWorld) -> None:
    """Forty tasks of $12 each are one job of $480 with as many GPUs as run at once; budgets see task by task."""
    budget = "version: 1\nbudgets:\n  - {name: all, amount: $100, period: month}\nguardrails:\n  - "

    def submitted(rule: str, array: str, **said: object) -> JobView:
        world.store.activate_policy({"stage.yaml": budget + rule}, by="cat")
        return enter(world, array, **said)

    with pytest.raises(NotAllowed, match=r"the job may cost \$4\d\d"):
        submitted("{name: dear, max_job_cost: $400}", "range: 40, parallel: 2")
    assert submitted("{name: dear, max_job_cost: $400}", "range: 40, parallel: 2", max_cost="$300").max_cost
    for asks in ("cost: $100", "gpus: 3"):
        with pytest.raises(NotAllowed, match="does not wait for an approval"):
            submitted(f"{{name: big, approve_above: {{{asks}, approvers: [cat]}}}}", "range: 40, parallel: 4")
    when = (
        "{name: night, freeze: {from: 2020-01-01, to: 2030-01-01}, when: 'placement.gpus > 3 || spend.asked > 400.0'}"
    )
    with pytest.raises(NotAllowed):
        submitted(when, "range: 40, parallel: 2")
    assert submitted(when, "range: 3, parallel: 2")


def test_a_standing_grant_for_an_array_is_used_by_all_its_tasks_also_those_to_come(world: MoneyWorld) -> None:
    rule = "version: 1\nbudgets:\n  - {name: all, amount: $999, period: month}\nguardrails:\n"
    rule += "  - {name: big, approve_above: {cost: $20, approvers: [cat]}}\n"
    world.store.activate_policy({"stage.yaml": rule}, by="cat")
    world.do("fate", {"runs": 1800.0})
    world.do("ahead", {"user": "ann", "total": "$40", "days": 9})
    array = enter(world, "range: 3, parallel: 2")
    held = sum(bill_of(world.broker, array).held.values(), Money.ZERO)
    used = approvals.standing_grants(world.broker)[0].used
    assert Money.ZERO < held < used == held.share(3, 2), "three tasks, of which two hold money"
    with pytest.raises(NotAllowed, match="does not wait for an approval"):
        enter(world, "range: 2, parallel: 1")
    assert until_closed(world, array).state is JobState.SUCCEEDED
    paid = bill_of(world.broker, array).so_far
    assert approvals.standing_grants(world.broker)[0].used == paid > Money.ZERO
