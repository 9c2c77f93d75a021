"""Identical jobs are planned once per market; whatever a plan depends on makes a new one."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.app.jobs import plan_cache
from broker.app.jobs.preview import Preview, plan_job
from broker.app.jobs.submit import submit
from broker.app.market.market import fresh_reading, freshen
from broker.app.runs_root import claim
from broker.app.wiring import Broker
from broker.core.errors import NotAllowed
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause
from broker.core.market.offers import CapacityType
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.economics.reserve.holdings import Holding, HoldingKind
from broker.placement.planner import PlanInputs
from tests.actors import ANN, BOB
from tests.app.jobs.test_queue import POLICY, job, market, site

__all__ = ["site"]  # the fixture of the other module
NAMED = "guardrails: [{name: names, max_job_cost: $9000, when: 'job.name != \"x\"'}]\n"


@pytest.fixture
def plans(site: Broker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the jobs for which a plan was made; the market is unlimited."""
    made: list[str] = []
    freshen(site)
    with fresh_reading(site):  # so that this process knows that no source is due
        pass
    claim(site)  # the first submission would, and the place of run folders is one of the things that plans depend on

    def counted(broker: Broker, one: Any, *words: Any) -> Preview:
        made.append(one.name)
        return plan_job(broker, one, *words)

    monkeypatch.setattr(plan_cache, "plan_job", counted)
    monkeypatch.setattr("broker.app.jobs.preview.market_for", lambda *_, **__: market(site, "acme"))
    return made


def poll(site: Broker) -> None:
    now, offer = site.clock.now(), market(site, "acme").offers[0]
    site.store.record_poll("other", started=now, finished=now, offers=[replace(offer, price=Money.usd("11"))])


def later(site: Broker) -> None:
    assert isinstance(site.clock, ManualClock)
    site.clock.advance(timedelta(seconds=3))


def another_policy(site: Broker) -> None:
    site.store.activate_policy({"t.yaml": POLICY.replace("$10000", "$20000")}, by="test")


def test_jobs_that_differ_in_name_alone_share_a_plan(site: Broker, plans: list[str]) -> None:
    views = [submit(site, job(site, name), by=ANN) for name in ("a", "b", "c")]
    assert plans == ["a"]
    assert [view.job.name for view in views] == ["a", "b", "c"]
    assert len({view.id for view in views}) == 3
    with site.store.reading() as look:
        assert all(look.balance(view.id) for view in views), "each has a hold of its own"


@pytest.mark.parametrize("change", [poll, later, another_policy])
def test_a_plan_serves_only_while_nothing_it_depends_on_has_changed(
    site: Broker, plans: list[str], change: Callable[[Broker], None]
) -> None:
    submit(site, job(site, "a"), by=ANN)
    change(site)
    submit(site, job(site, "b"), by=ANN)
    assert plans == ["a", "b"]


def test_other_jobs_and_other_people_have_plans_of_their_own(site: Broker, plans: list[str]) -> None:
    submit(site, job(site, "a"), by=ANN)
    submit(site, job(site, "b", "team: nlp\n"), by=ANN)
    submit(site, job(site, "c"), by=BOB)
    assert plans == ["a", "b", "c"]


def test_a_condition_may_read_the_name(site: Broker, plans: list[str]) -> None:
    site.store.activate_policy({"t.yaml": POLICY + NAMED}, by="test")
    submit(site, job(site, "a"), by=ANN)
    submit(site, job(site, "b"), by=ANN)
    assert plans == ["a", "b"]


def test_where_capacity_is_on_record_each_job_has_a_plan_of_its_own(site: Broker, plans: list[str]) -> None:
    """It begins and ends by the clock, without a change of the store."""
    a_moment = timedelta(milliseconds=1)
    begins = site.clock.now() + a_moment
    held = Holding(HoldingKind.RESERVATION, "H100", 4, "colo", "", begins, begins + timedelta(days=9))
    site.store.add_holding(held, by="ann")
    submit(site, job(site, "a"), by=ANN)
    assert isinstance(site.clock, ManualClock)
    site.clock.advance(a_moment)
    submit(site, job(site, "b"), by=ANN)
    assert plans == ["a", "b"]


def limited(site: Broker) -> PlanInputs:
    """Two cheap machines, and any number of dear ones."""
    found = market(site, "cheap", "acme")
    cheap, dear = found.offers
    return replace(found, offers=[replace(cheap, slots=2, capacity_type=CapacityType.ON_DEMAND), dear])


def test_a_plan_serves_while_the_machine_that_it_chose_is_free(
    site: Broker, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.app.jobs.preview.market_for", lambda *_, **__: limited(site))
    views = [submit(site, job(site, name), by=ANN) for name in ("a", "b", "c", "d")]
    assert plans[:2] == ["a", "c"]
    places = [view.attempts[0].placement.offer.provider for view in views]
    assert places == ["cheap", "cheap", "acme", "acme"]


def test_a_machine_that_has_become_free_is_seen_by_the_next_job(
    site: Broker, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.app.jobs.preview.market_for", lambda *_, **__: limited(site))
    first, *_ = [submit(site, job(site, name), by=ANN) for name in ("a", "b", "c")]
    with site.store.writing() as tx:
        tx.append(first.id, [(1, ev.AttemptEnded(cause=Cause.NO_CAPACITY))], site.clock.now())
    there = submit(site, job(site, "d"), by=ANN)
    assert plans == ["a", "c", "d"]
    assert there.attempts[0].placement.offer.provider == "cheap"


def test_a_refusal_is_never_from_memory(site: Broker, plans: list[str]) -> None:
    """Without a placement nothing is written, so that no transaction would show that the policies are others."""
    denies = POLICY + "guardrails: [{name: dear, max_price_per_gpu_hour: $1}]\n"
    site.store.activate_policy({"t.yaml": denies}, by="test")
    with pytest.raises(NotAllowed):
        submit(site, job(site, "a"), by=ANN)
    another_policy(site)
    assert submit(site, job(site, "b"), by=ANN).attempts
    assert plans[-1] == "b"
