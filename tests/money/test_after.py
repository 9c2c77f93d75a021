"""Jobs that come after others, in the money tests: no money is held for them before they begin."""

import pytest

from broker.app.jobs import jobs, submit
from broker.app.jobs.bills import bill_of
from broker.app.jobs.queue import queue
from broker.core.errors import InvalidInput, UnknownName
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.core.events.wait_reasons import AwaitsJobs, PredecessorFailed
from broker.core.job.file import parse_job
from broker.core.market.offers import MoneyKind
from broker.core.values.money import Money
from tests.actors import person
from tests.money.moves import job_text
from tests.money.promise import broken
from tests.money.test_arrays import _KEYS, ON_DEMAND
from tests.money.world import MINUTE, MoneyWorld


def enter(world: MoneyWorld, name: str, after: str = "", **said: object) -> JobView:
    text = job_text(name, {**dict.fromkeys(_KEYS, ""), **ON_DEMAND, "array": "", **said})
    text += f"after: {after}\n" if after else ""
    return submit.submit(world.broker, parse_job(text, file="job.yaml", now=world.clock.now()), by=person("ann"))


def until_closed(world: MoneyWorld, job: JobView) -> JobView:
    for _ in range(60):
        found = jobs.find(world.broker, job.id)
        if found.closed:
            return found
        world.passes(5 * MINUTE)
        world.do("tell", {})
        world.look()
    raise AssertionError(f"{found.id} {found.state} {found.waiting}")


def test_it_holds_nothing_until_it_begins_and_then_as_any_job(world: MoneyWorld) -> None:
    first = enter(world, "first")
    then = enter(world, "then", "first")
    last = enter(world, "last", "[{job: then, when: ended}, first]", array="range: 3, parallel: 2")
    world.look()
    assert bill_of(world.broker, first).held[MoneyKind.CASH] > Money.ZERO
    for one in (then, last):
        assert bill_of(world.broker, one).held == {}
    seen = queue(world.broker)
    assert ([one.view.id for one in seen.waiting], {view.id for view in seen.later}) == ([], {then.id, last.id})
    assert jobs.find(world.broker, last.id).waiting == AwaitsJobs(jobs=(then.id, first.id))
    ended = [until_closed(world, one) for one in (first, then, last)]
    assert [one.state for one in ended] == [JobState.SUCCEEDED] * 3
    starts = [jobs.find(world.broker, one).attempts[0].requested_at for one in (then.id, f"{last.id}-0")]
    assert ended[0].ended_at <= starts[0] <= ended[1].ended_at <= starts[1]  # type: ignore[operator]
    world.drain()
    assert not broken(world)


def test_it_never_begins_where_one_before_it_failed_and_costs_nothing(world: MoneyWorld) -> None:
    world.do("fate", {"runs": 600.0, "fails": True})
    first = enter(world, "first")
    then = enter(world, "then", "first")
    last = enter(world, "last", "then", array="range: 3")
    anyhow = enter(world, "anyhow", "{job: first, when: ended}")
    until_closed(world, first)
    for one, before, state in ((then, first, JobState.FAILED), (last, then, JobState.CANCELLED)):
        ended = until_closed(world, one)
        assert (ended.state, ended.attempts) == (JobState.CANCELLED, ())
        assert ended.ending == PredecessorFailed(job=before.id, state=state)
        assert bill_of(world.broker, ended).so_far == Money.ZERO
    assert until_closed(world, anyhow).attempts
    with pytest.raises(InvalidInput, match=r"failed: a job that comes after it would never begin"):
        enter(world, "late", "first")
    with pytest.raises(UnknownName):
        enter(world, "lost", "nobody")
    world.drain()
    assert not broken(world)


def test_it_is_cancelled_while_it_waits_and_looked_after_by_whoever_comes(world: MoneyWorld) -> None:
    first = enter(world, "first")
    then, other = enter(world, "then", "first"), enter(world, "other", "first")
    world.do("restart", {})
    jobs.cancel(world.broker, jobs.find(world.broker, then.id), by=person("ann"))
    world.look()
    assert jobs.find(world.broker, then.id).state is JobState.CANCELLED
    until_closed(world, first)
    world.do("restart", {})
    assert until_closed(world, other).state is JobState.SUCCEEDED
    world.drain()
    assert not broken(world)
