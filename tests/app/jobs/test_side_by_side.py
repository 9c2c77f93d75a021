"""Jobs side by side on one machine of our own: placed, queued and given their turn by CPUs, memory and GPUs."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.app.jobs.preview import NoFeasibleCapacity, preview
from broker.app.jobs.queue import QueuePlanner, queue
from broker.app.jobs.queue_documents import SharedMachine
from broker.app.jobs.submit import submit
from broker.app.market.market import subtract_other_stores
from broker.app.wiring import Broker
from broker.cli.jobs.queue_view import free_line
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.job.reasons import Reason
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.market.shares import MachineShare, total
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.ledger.journal import StaleJobView
from broker.placement.planner import PlanInputs
from broker.placement.pricing.conditions import Conditions
from broker.reconciler.controllers.placement import PlacementController
from broker.reconciler.visit_order import visit_order, waits_for_machine
from tests.actors import ANN, with_clock
from tests.controllers import Asking

GPUS = 4


@pytest.fixture
def site(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """A machine with 8 CPUs, 32 GiB and four L4."""
    broker = with_clock(broker, ManualClock(broker.clock.now()))
    for place in ("preview", "queue"):
        monkeypatch.setattr(f"broker.app.jobs.{place}.market_for", lambda *_, **__: market(broker))
    return broker


def offer(broker: Broker, gpus: int, **more: Any) -> Offer:
    return Offer(
        "owned", "local", None, "box", "L4" if gpus else None, gpus, CapacityType.OWNED, Money.ZERO,
        broker.clock.now(), "owned", cpus=8, memory_gib=32, availability=Availability.AVAILABLE, engine="local",
        interruption_rate=0.0, money=MoneyKind.AMORTISED, slots=1, **more,
    )  # fmt: skip


def market(broker: Broker) -> PlanInputs:
    conditions = Conditions(engines={"local": broker.engine("local").honours})
    return PlanInputs([offer(broker, GPUS), offer(broker, 0)], conditions, {})


def job(broker: Broker, name: str, resources: str, more: str = "") -> Job:
    text = f"name: {name}\nrun: 'true'\nresources: {{{resources}}}\nmax_duration: 20h\nwork: 2h\n{more}"
    return parse_job(text, file="job.yaml", now=broker.clock.now())


def enter(broker: Broker, name: str, resources: str, more: str = "") -> JobView:
    return submit(broker, job(broker, name, resources, more), by=ANN)


def end(broker: Broker, name: str) -> None:
    (view,) = [view for view in views(broker) if view.job.name == name and not view.state.final]
    assert view.latest is not None
    with broker.store.writing() as tx:
        tx.append(view.id, [(view.latest.number, ev.AttemptEnded(cause=Cause.NO_CAPACITY))], broker.clock.now())
        tx.append(view.id, [(None, ev.JobEnded(state=JobState.CANCELLED))], broker.clock.now())


def views(broker: Broker) -> list[JobView]:
    with broker.store.reading() as look:
        return list(look.unclosed())


def look(broker: Broker) -> set[str]:
    """One look of the reconciler at all that wait; who runs afterwards."""
    line, policy = QueuePlanner(broker), broker.policy()
    place = PlacementController(broker.store, lambda _: market(broker), lambda: policy, queue_decision=line.decision)
    for view in visit_order(views(broker), broker.clock.now()):
        if waits_for_machine(view):
            with suppress(StaleJobView):  # as the loop does, which looks again
                Asking(place, broker.clock.now)(view)
    return running(broker)


def running(broker: Broker) -> set[str]:
    return {view.job.name for view in views(broker) if view.latest is not None and not view.latest.over}


def given_now(broker: Broker) -> MachineShare:
    with broker.store.reading() as look_:
        return total(one.share for one in look_.live_attempts())


def test_two_run_side_by_side_the_third_waits_and_starts_when_one_ends(site: Broker) -> None:
    for name in ("a", "b", "c"):
        enter(site, name, "cpus: 4")
    assert running(site) == {"a", "b"}
    assert look(site) == {"a", "b"}
    (waiting,) = queue(site).waiting
    assert (waiting.view.job.name, waiting.turn.option and waiting.turn.option.pool) == ("c", "owned/local/box")
    assert waiting.start == site.clock.now() + timedelta(hours=2)
    end(site, "a")
    assert look(site) == {"b", "c"}


def test_the_queue_and_the_plan_tell_what_is_free(site: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    site.store.record_poll("owned", started=site.clock.now(), finished=site.clock.now(), offers=market(site).offers)
    enter(site, "train", "accelerators: 'L4:3'")
    enter(site, "small", "cpus: 2, memory: 4GiB")
    for told in (queue(site).machines, preview(site, job(site, "x", "cpus: 1"), by=ANN).machines):
        (one,) = map(SharedMachine.of, told)
        assert (one.name, one.jobs) == ("owned/local/box", 2)
        assert free_line(one).plain == "box: 2 of 8 CPUs, 16 of 32 GiB and 1 of 4 L4 free; 2 jobs here"


def test_jobs_with_and_without_gpus_share_the_cpus(site: Broker) -> None:
    enter(site, "train", "accelerators: 'L4:4'")  # six of eight CPUs, half the memory
    enter(site, "small", "cpus: 2")
    assert running(site) == {"train", "small"}
    enter(site, "late", "cpus: 1")
    assert running(site) == {"train", "small"}


def test_gpus_are_counted_by_the_job_and_not_by_the_machine(site: Broker) -> None:
    for number in range(5):
        enter(site, f"j{number}", "accelerators: 'L4:1'")
    assert running(site) == {"j0", "j1", "j2", "j3"}
    with site.store.reading() as look_:
        assert [(one.gpus, one.milli_cpus) for one in look_.live_attempts()] == [(1, 1000)] * 4


def test_what_becomes_free_goes_to_the_priority_that_needs_all_of_it(site: Broker) -> None:
    enter(site, "a", "cpus: 8")
    for name, cpus, priority in (("b", 4, "normal"), ("large", 8, "high"), ("c", 4, "normal")):
        enter(site, name, f"cpus: {cpus}", f"priority: {priority}\n")
    end(site, "a")
    assert look(site) == {"large"}
    end(site, "large")
    assert look(site) == {"b", "c"}


def test_memory_alone_makes_a_job_wait(site: Broker) -> None:
    enter(site, "a", "cpus: 1, memory: 20GB")
    enter(site, "b", "cpus: 1, memory: 20GB")
    assert running(site) == {"a"}


@pytest.mark.parametrize(
    ("resources", "reason", "figures"),
    [
        ("cpus: 9", Reason.TOO_FEW_CPUS, "has 8, needs 9"),
        ("cpus: 1, memory: 33GiB", Reason.TOO_LITTLE_MEMORY, "has 32 GiB, needs 33 GiB"),
        ("accelerators: 'L4:5'", Reason.TOO_FEW_ACCELERATORS, "has L4:4, needs L4:5"),
    ],
)
def test_what_is_larger_than_the_machine_is_refused_at_once(
    site: Broker, resources: str, reason: Reason, figures: str
) -> None:
    wanted = job(site, "big", resources)
    with pytest.raises(NoFeasibleCapacity):
        submit(site, wanted, by=ANN)
    told = [(one.reason, one.detail) for one in preview(site, wanted, by=ANN).plan.rejections]
    assert (reason, figures) in told


def test_two_who_place_at_once_never_give_more_than_there_is(site: Broker) -> None:
    """Two reconcilers, each with its own look at the queue."""
    enter(site, "first", "cpus: 8")
    for number in range(6):
        enter(site, f"j{number}", "cpus: 3")
    end(site, "first")
    assert isinstance(site.clock, ManualClock)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: look(site), range(2)))
    assert len(running(site)) == 2
    assert given_now(site).milli_cpus == 6000


def test_what_jobs_of_other_stores_have_is_not_there_for_ours(site: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = MachineShare(6000, 1024, (("L4", 3),))
    monkeypatch.setattr(type(site.engine("local")), "given_to_others", lambda _, store: theirs)
    found = subtract_other_stores(site, market(site).offers)
    assert [one.left for one in found] == [one.has - theirs for one in market(site).offers]
    monkeypatch.setattr(
        "broker.app.jobs.preview.market_for",
        lambda *_, **__: replace(market(site), offers=subtract_other_stores(site, market(site).offers)),
    )
    enter(site, "small", "cpus: 2")
    enter(site, "large", "cpus: 3")
    assert running(site) == {"small"}
    monkeypatch.setattr(
        "broker.app.jobs.queue.market_for",
        lambda *_, **__: replace(market(site), offers=subtract_other_stores(site, market(site).offers)),
    )
    (waiting,) = queue(site).waiting
    assert waiting.start == site.clock.now() + timedelta(hours=1), "when theirs are gone is not known"


asked = st.tuples(st.integers(1, 10), st.integers(1, 36), st.integers(0, 5), st.sampled_from(["low", "normal", "high"]))


@given(st.lists(asked | st.none(), min_size=1, max_size=8))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_order_of_jobs_and_ends_gives_more_than_the_machine_has(
    new_site: Callable[[], Broker], steps: list[tuple[int, int, int, str] | None]
) -> None:
    site = new_site()
    whole = offer(site, GPUS).has
    for number, step in enumerate(steps):
        if step is None:
            if running(site):
                end(site, min(running(site)))
            look(site)
        else:
            cpus, memory, gpus, priority = step
            resources = f"cpus: {cpus}, memory: {memory}GiB" + (f", accelerators: 'L4:{gpus}'" if gpus else "")
            fits = cpus <= 8 and memory <= 32 and gpus <= GPUS
            try:
                enter(site, f"j{number}", resources, f"priority: {priority}\n")
            except NoFeasibleCapacity:
                assert not fits
            else:
                assert fits
        now = given_now(site)
        assert (now.milli_cpus <= whole.milli_cpus, now.mib <= whole.mib, now.gpu_count <= GPUS) == (True,) * 3


@pytest.fixture
def new_site(site: Broker) -> Callable[[], Broker]:
    """The same machine with nothing on it."""

    def new() -> Broker:
        for view in views(site):
            if view.latest is not None and not view.latest.over:
                end(site, view.job.name)
            elif not view.state.final:
                with site.store.writing() as tx:
                    tx.append(view.id, [(None, ev.JobEnded(state=JobState.CANCELLED))], site.clock.now())
        return site

    return new
