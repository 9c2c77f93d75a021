"""The queue placed together decides for real: who gets the machines that are free, who waits, and who rents."""

from datetime import timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from broker.app.jobs import jobs
from broker.app.jobs.queue import EntryClasses, QueuePlanner, explain_queue, hypothetical_views, queue
from broker.app.jobs.queue_documents import QueueResult
from broker.app.jobs.reasons import wait_text
from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from broker.cli.jobs.queue_view import queue_table
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.events.views import JobView
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.policy.policy import Facts, Grant
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.placement.planner import PlanInputs
from broker.placement.pricing.conditions import Conditions
from broker.placement.queue.queue import QueueEntry, entry_of
from broker.reconciler.controllers.placement import PlacementController
from broker.reconciler.visit_order import visit_order
from tests.actors import ANN, with_clock
from tests.controllers import Asking

POLICY = "version: 1\npolicy: t\nbudgets: [{name: all, amount: $10000, period: month}]\n"
WAITS = POLICY + "capacity: {wait_for_paid: 30h}\n"
KINDS = {"own": CapacityType.OWNED, "acme": CapacityType.ON_DEMAND, "cheap": CapacityType.SPOT}


@pytest.fixture
def site(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Two owned machines; the same can be rented at $10 an hour."""
    broker = with_clock(broker, ManualClock(broker.clock.now()))
    broker.store.activate_policy({"t.yaml": WAITS}, by="test")
    for place in ("preview", "queue"):
        monkeypatch.setattr(f"broker.app.jobs.{place}.market_for", lambda *_, **__: market(broker, "own", "acme"))
    return broker


def market(broker: Broker, *providers: str) -> PlanInputs:
    def offer(provider: str, **more: Any) -> Offer:
        price = {"own": "0", "acme": "10", "cheap": "3"}[provider]
        return Offer(
            provider, "us-1", None, "box", "H100", 1, KINDS[provider], Money.usd(price), broker.clock.now(), "test",
            cpus=8, memory_gib=64, availability=Availability.AVAILABLE, engine="local", interruption_rate=0.0, **more,
        )  # fmt: skip

    own = {"money": MoneyKind.AMORTISED, "slots": 2}
    found = [offer(provider, **(own if provider == "own" else {})) for provider in providers]
    return PlanInputs(found, Conditions(engines={"local": broker.engine("local").honours | {"several_nodes"}}), {})


def job(broker: Broker, name: str, more: str = "") -> Job:
    text = f"name: {name}\nrun: 'true'\nresources: {{accelerators: 'H100:1'}}\nmax_duration: 20h\nwork: 2h\n{more}"
    return parse_job(text, file="job.yaml", now=broker.clock.now())


def queued(broker: Broker, name: str, more: str = "", rested: timedelta = timedelta(minutes=11)) -> JobView:
    """In line, money held, nothing launched. ``rested``: how long ago a launch failed; for ten minutes the pool is left
    alone."""
    view = submit(broker, job(broker, name, more), by=ANN)
    if not view.attempts:
        return view
    with broker.store.writing() as tx:
        tx.append(view.id, [(1, ev.AttemptEnded(cause=Cause.NO_CAPACITY))], broker.clock.now())
    assert isinstance(broker.clock, ManualClock)
    broker.clock.advance(rested)
    return jobs.find(broker, name)


def look(broker: Broker, *providers: str, line: QueuePlanner | None = None) -> dict[str, str]:
    """One look of the reconciler at all that wait: by name, who runs it, or why it waits."""
    policy, line = broker.policy(), line or QueuePlanner(broker)
    place = PlacementController(
        broker.store, lambda _: market(broker, *(providers or ("own", "acme"))), lambda: policy,
        queue_decision=line.decision, missing_secrets=lambda job: job.secrets, refused=line.refused,
    )  # fmt: skip
    with broker.store.reading() as look_:
        waiting = look_.unclosed()
    for view in visit_order(waiting, broker.clock.now()):
        if all(attempt.over for attempt in view.attempts):
            Asking(place, broker.clock.now)(view)
    with broker.store.reading() as look_:
        views = look_.unclosed()
    return {
        view.job.name: view.latest.placement.offer.provider
        if view.latest is not None and not view.latest.over
        else wait_text(view.waiting)
        for view in views
    }


def test_a_gang_that_matters_gets_its_machines_together_and_the_others_wait(site: Broker) -> None:
    for name, more in (("a", ""), ("b", ""), ("gang", "num_nodes: 2\npriority: high\n")):
        queued(site, name, more)
    found = look(site)
    assert found["gang"] == "own"
    assert found["a"].startswith("waits for its turn on own/")
    assert found["b"].startswith("waits for its turn on own/")


def test_who_may_not_wait_by_policy_rents(site: Broker) -> None:
    site.store.activate_policy({"t.yaml": POLICY}, by="test")
    for name, more in (("a", ""), ("gang", "num_nodes: 2\npriority: high\n")):
        queued(site, name, more)
    assert look(site) == {"gang": "own", "a": "acme"}


def test_who_would_be_late_rents_and_leaves_the_machines_to_those_who_can_wait(site: Broker) -> None:
    for name in ("a", "b"):
        queued(site, name, "priority: high\n")
    queued(site, "hurried", "deadline: 3h\n")
    assert look(site) == {"a": "own", "b": "own", "hurried": "acme"}


def test_teams_share(site: Broker) -> None:
    for name, team in (("a", "one"), ("b", "one"), ("c", "two")):
        queued(site, name, f"team: {team}\n")
    found = look(site)
    assert found["c"] == "own"
    assert sorted(found[name] == "own" for name in "ab") == [False, True]


def test_who_begins_to_wait_beside_a_lone_gang_does_not_take_its_machines(
    site: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=count().__next__)  # a second from one look at it to the next
    monkeypatch.setattr("broker.app.jobs.queue.time", clock)
    queued(site, "a")
    look(site, "own")
    gang, line = queued(site, "gang", "num_nodes: 2\npriority: high\n"), QueuePlanner(site)
    assert line.decision(gang, site.clock.now()).taken == frozenset()
    assert line.decision(queued(site, "b"), site.clock.now()).wait is not None


def test_no_machine_is_kept_for_whose_secrets_are_not_here(site: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "to be submitted with")
    queued(site, "a", "num_nodes: 2\npriority: high\nsecrets: [TOKEN]\n")
    queued(site, "b")
    found = look(site, "own", line=QueuePlanner(site, lambda job: job.secrets))
    assert found["a"].startswith("waits for secrets TOKEN")
    assert found["b"] == "own"


def test_no_machine_is_kept_for_whom_the_gate_refuses(site: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.app.jobs.queue.market_for", lambda *_, **__: market(site, "own"))
    seconds = [0.0]
    monkeypatch.setattr("broker.app.jobs.queue.time.monotonic", lambda: seconds[0])
    queued(site, "a", "num_nodes: 2\npriority: high\nproject: long\n")
    queued(site, "b")
    short = "guardrails: [{name: short, max_job_duration: 10h, scope: {project: long}}]\n"
    site.store.activate_policy({"t.yaml": WAITS + short}, by="test")
    line = QueuePlanner(site)
    found = look(site, "own", line=line)
    seconds[0] += 15
    again = look(site, "own", line=line)
    assert found["a"].startswith("the job may run for 20h; the limit is 10h per job")
    assert found["b"].startswith("waits for its turn on own/")
    assert again["b"] == "own"


def test_no_machine_is_kept_for_whose_launch_there_just_failed(site: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.app.jobs.queue.market_for", lambda *_, **__: market(site, "own"))
    queued(site, "b")
    queued(site, "a", "num_nodes: 2\npriority: high\n", rested=timedelta(minutes=1))
    turns = {one.view.job.name: one.turn for one in queue(site).waiting}
    assert turns["a"].option is None
    assert turns["b"].start == 0
    assert look(site, "own") == {"a": "1 × a launch there failed a short while ago", "b": "own"}


def test_a_pool_that_was_left_alone_for_a_while_is_in_the_queue_again(site: Broker) -> None:
    queued(site, "a", rested=timedelta(minutes=9))
    pools = []
    for _ in range(2):
        option = queue(site).waiting[0].turn.option
        assert option is not None
        pools.append(option.name.split("/")[0])
        assert isinstance(site.clock, ManualClock)
        site.clock.advance(timedelta(minutes=2))
    assert pools == ["acme", "own"]


def test_a_clock_that_was_set_back_keeps_nobody_from_a_pool_for_longer(site: Broker) -> None:
    queued(site, "a", rested=timedelta(0))
    assert isinstance(site.clock, ManualClock)
    site.clock.time -= timedelta(minutes=30)  # by now its launch failed half an hour ahead
    option = queue(site).waiting[0].turn.option
    assert option is not None
    assert option.name.startswith("own/")


def test_whom_the_gate_refused_is_back_in_line_after_some_tries(site: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.app.jobs.queue.market_for", lambda *_, **__: market(site, "own"))
    seconds = [0.0]
    monkeypatch.setattr("broker.app.jobs.queue.time.monotonic", lambda: seconds[0])
    big, small = queued(site, "a", "num_nodes: 2\npriority: high\n"), queued(site, "b")
    line, now = QueuePlanner(site), site.clock.now()
    line.refused(big)
    found = []
    for _ in range(6):
        seconds[0] += 15
        pools = line.decision(big, now).taken  # a try of its own: on what is left over, or what is its turn
        found.append((len(pools), line.decision(small, now).first is not None))
    assert found == [(1, True)] * 4 + [(0, False)] * 2


def test_what_follows_the_round_is_what_the_queue_showed(site: Broker) -> None:
    for name in "abc":
        queued(site, name)
    shown = {one.view.job.name: one.turn.start for one in queue(site).waiting}
    found = look(site)
    assert {name for name, start in shown.items() if start == 0} == {name for name in "abc" if found[name] == "own"}


def test_jobs_that_are_not_submitted_are_placed_beside_those_that_wait(site: Broker) -> None:
    queued(site, "first", "priority: high\n")
    jobs = [job(site, "a"), job(site, "a"), job(site, "late", "deadline: 1h\n")]
    found = queue(site, hypothetical_views(site, jobs, by=ANN))
    by_name = {one.view.id: one for one in found.waiting}
    assert {name for name, one in by_name.items() if one.planned} == {"a", "a (2)", "late"}
    assert by_name["late"].turn.late
    assert all(one.turn.option is not None for one in found.waiting)
    with site.store.reading() as look_:
        assert len(look_.unclosed()) == 1, "nothing was submitted"


@pytest.mark.parametrize(
    ("providers", "more", "leaves_it"),
    [
        (("acme", "cheap"), "deadline: 20h\n", True),
        (("acme", "cheap"), "", False),
        (("acme", "cheap"), "value_of_time: $1\n", True),
        (("acme",), "deadline: 20h\n", False),
        (("own", "acme", "cheap"), "deadline: 20h\n", False),
    ],
    ids=["a deadline and spot", "neither deadline nor value", "time has its price", "no spot", "owned comes first"],
)
def test_where_a_strategy_has_a_say_submit_leaves_the_first_attempt_to_it(
    site: Broker, monkeypatch: pytest.MonkeyPatch, providers: tuple[str, ...], more: str, leaves_it: bool
) -> None:
    monkeypatch.setattr("broker.app.jobs.preview.market_for", lambda *_, **__: market(site, *providers))
    view = submit(site, job(site, "j", more), by=ANN)
    assert bool(view.attempts) is not leaves_it
    assert (view.state is JobState.QUEUED) is leaves_it


def test_paid_capacity_that_no_engine_reaches_is_told(site: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    queued(site, "waiting")
    now = site.clock.now()
    held = Holding(HoldingKind.RESERVATION, "H100", 4, "colo", "", now, now + timedelta(days=9))
    site.store.add_holding(held, by="ann")
    assert queue(site).waiting[0].out_of_reach == (), "an engine reaches machines of the same kind"
    monkeypatch.setattr("broker.app.jobs.queue.market_for", lambda *_, **__: market(site, "acme"))
    found = QueueResult.of(explain_queue(site)).waiting[0]
    assert "4 H100 at colo are paid for" in found.out_of_reach[0]
    assert found.expected_cost is not None
    assert Money.usd("20") < found.expected_cost < Money.usd("21"), "2 h rented at $10, and its start"
    assert found.reached is not None
    assert (found.reached.start, found.reached.expected_cost) == (now, Money.ZERO), "paid anyway"


def test_capacity_on_record_is_shared_out_at_its_electricity_by_the_order_of_the_queue(
    site: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two jobs, one machine of 1 kW at the policy's $0.50 a kWh and PUE 1.2: the first job in turn has it, at $1.20."""
    site.store.activate_policy({"t.yaml": WAITS + "assumptions: {kwh_usd: 0.5, pue: 1.2}\n"}, by="test")
    monkeypatch.setattr("broker.app.jobs.queue.market_for", lambda *_, **__: market(site, "acme"))
    now = site.clock.now()
    year = timedelta(days=365)
    site.store.add_holding(Holding(HoldingKind.OWNED, "H100", 1, "owned", "lab", now, now + year, watts=1000), by="ann")
    both = hypothetical_views(
        site, [job(site, "a", "priority: high\n"), job(site, "b", "value_of_time: $100\n")], by=ANN
    )
    first, second = explain_queue(site, both).waiting
    assert first.reached is not None
    assert first.reached.turn.option is not None
    assert first.reached.turn.option.cost == pytest.approx(1.2), "2 h"
    assert second.reached is None, "it would still rent: its time is dear"
    assert first.turn.option is not None
    assert first.turn.option.name.startswith("acme/"), "the real turn stays where a job can start"
    assert explain_queue(site, both).free == queue(site, both).free
    lines = [str(part) for part in queue_table(Console(), QueueResult.of(explain_queue(site, both)))]
    assert "a: starts now, $1.20 there; without it starts now, $20.83" in lines


def test_identical_jobs_are_looked_at_once_and_placed_as_if_each_were(
    site: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queued(site, "tried-before")
    alike = [job(site, f"{kind}-{n}", f"priority: {kind}\n") for n in range(3) for kind in ("high", "low")]
    also, looked_at = hypothetical_views(site, alike, by=ANN), [0]

    def counted(*words: Any, **more: Any) -> QueueEntry:
        looked_at[0] += 1
        return entry_of(*words, **more)

    monkeypatch.setattr("broker.app.jobs.queue.entry_of", counted)
    together = queue(site, also)
    assert looked_at == [3]
    monkeypatch.setattr(EntryClasses, "entry", lambda self, view, facts: self._compute(view, facts))
    assert queue(site, also) == together
    assert looked_at == [3 + 7]


def test_a_job_with_an_approval_of_its_own_is_in_no_class(site: Broker) -> None:
    queued(site, "waiting")
    known, looked_at, now = queue(site).waiting[0].turn.entry, list[str](), site.clock.now()

    def counted(view: JobView, _: Facts) -> QueueEntry:
        looked_at.append(view.id)
        return known

    one, two = hypothetical_views(site, [job(site, "one"), job(site, "two")], by=ANN)
    classes = EntryClasses(site.policy(), now, counted)
    given = Facts(now, grants=(Grant("bob", ("big",), Money.usd(9)),))
    for view, facts in ((one, Facts(now)), (two, Facts(now)), (two, given)):
        classes.entry(view, facts)
    assert looked_at == [one.id, two.id]
