"""A job that could rent at once waits for a machine of our own that is about to be free, where its policy lets it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.app.jobs import jobs
from broker.app.jobs.preview import preview
from broker.app.jobs.reasons import wait_text
from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from broker.core.events import events as ev
from broker.core.events.outcomes import Cause, JobState
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.placement.planner import PlanInputs
from broker.placement.pricing.conditions import Conditions
from broker.reconciler.controllers.placement import PlacementController
from tests.actors import ANN, with_clock
from tests.controllers import Asking

POLICY = """\
version: 1
policy: t
budgets: [{name: all, amount: $1000, period: month}]
"""
WAITS = POLICY + "capacity: {wait_for_paid: 3h}\n"


@pytest.fixture
def site(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """One owned machine, and the same to be rented at $10 an hour."""
    clock = ManualClock(broker.clock.now())
    broker = with_clock(broker, clock)
    broker.store.activate_policy({"t.yaml": WAITS}, by="test")
    monkeypatch.setattr("broker.app.jobs.preview.market_for", lambda *_, **__: market(broker))
    return broker


def market(broker: Broker) -> PlanInputs:
    def offer(provider: str, kind: CapacityType, price: str, **more: Any) -> Offer:
        return Offer(
            provider, "us-1", None, "box", "H100", 1, kind, Money.usd(price), broker.clock.now(), "test", cpus=8,
            memory_gib=64, availability=Availability.AVAILABLE, engine="local", interruption_rate=0.0, **more,
        )  # fmt: skip

    own = offer("owned", CapacityType.OWNED, "0", money=MoneyKind.AMORTISED, slots=1)
    engines = {"local": broker.engine("local").honours}
    return PlanInputs([own, offer("acme", CapacityType.ON_DEMAND, "10")], Conditions(engines=engines), {})


def job(broker: Broker, name: str, work: str = "2h", deadline: str = "") -> Job:
    text = f"name: {name}\nrun: 'true'\nresources: {{accelerators: 'H100:1'}}\nmax_duration: 20h\nwork: {work}\n"
    return parse_job(text + deadline, file="job.yaml", now=broker.clock.now())


def placing(broker: Broker) -> Asking:
    return Asking(PlacementController(broker.store, lambda _: market(broker), broker.policy), broker.clock.now)


def where(broker: Broker, name: str) -> str:
    attempt = jobs.find(broker, name).latest
    return attempt.placement.offer.provider if attempt else ""


def test_it_waits_and_the_plan_and_the_job_say_why(site: Broker) -> None:
    submit(site, job(site, "first"), by=ANN)
    assert where(site, "first") == "owned"
    seen = preview(site, job(site, "second"), by=ANN)
    assert seen.waiting is not None
    assert any("waits for box (owned)" in note for note in seen.plan.notes)
    view = submit(site, job(site, "second"), by=ANN)
    assert (view.state, view.attempts) == (JobState.QUEUED, ())
    assert wait_text(view.waiting).startswith("waits for box (owned), expected to be free at ")
    assert "saves $" in wait_text(view.waiting)
    assert not placing(site)(view), "and goes on waiting, without a word more"


def test_the_machine_that_is_free_again_is_its(site: Broker) -> None:
    first = submit(site, job(site, "first"), by=ANN)
    view = submit(site, job(site, "second"), by=ANN)
    with site.store.writing() as tx:
        tx.append(first.id, [(1, ev.AttemptEnded(cause=Cause.COMPLETED))], site.clock.now())
    assert placing(site)(view)
    assert where(site, "second") == "owned"


def test_it_rents_when_it_has_waited_for_long_enough(site: Broker) -> None:
    submit(site, job(site, "first"), by=ANN)
    view = submit(site, job(site, "second"), by=ANN)
    assert isinstance(site.clock, ManualClock)
    site.clock.advance(timedelta(hours=3))  # the first one is overdue: nobody knows when it will be done
    assert placing(site)(view)
    assert where(site, "second") == "acme"


@pytest.mark.parametrize(
    ("policy", "work", "deadline"),
    [(POLICY, "2h", ""), (WAITS, "2h", "deadline: 3h\n"), (WAITS.replace("3h", "1h"), "2h", "")],
    ids=["not by this policy", "the deadline would not hold", "too long a wait"],
)
def test_otherwise_it_rents_at_once(site: Broker, policy: str, work: str, deadline: str) -> None:
    site.store.activate_policy({"t.yaml": policy}, by="test")
    submit(site, job(site, "first"), by=ANN)
    submit(site, job(site, "second", work, deadline), by=ANN)
    assert where(site, "second") == "acme"


def test_of_two_files_the_shorter_wait_holds(site: Broker) -> None:
    other = "version: 1\ncapacity: {wait_for_paid: 1h}\n"
    site.store.activate_policy({"a.yaml": WAITS, "b.yaml": other}, by="test")
    assert site.policy().defaults.wait_for_paid == timedelta(hours=1)


def test_it_waits_for_a_block_that_was_bought_and_begins_in_time(site: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned into it before it is there; once it is, the job begins in it."""
    assert isinstance(site.clock, ManualClock)
    begins = site.clock.now() + timedelta(hours=2)

    def with_block(*_: object, **__: object) -> PlanInputs:
        found = market(site)
        [_own, rented] = found.offers
        block = replace(
            rented, provider="block", capacity_type=CapacityType.RESERVED, price=Money.ZERO,
            money=MoneyKind.AMORTISED, slots=1,
        )  # fmt: skip
        if site.clock.now() < begins:
            return replace(found, offers=[rented], coming=[(block, begins)])
        return replace(found, offers=[rented, block])

    monkeypatch.setattr("broker.app.jobs.preview.market_for", with_block)
    seen = preview(site, job(site, "planned"), by=ANN)
    assert any(f"expected to be free at {begins:%Y-%m-%d %H:%M} UTC" in note for note in seen.plan.notes)
    late = job(site, "late", deadline="deadline: 3h\n")
    assert preview(site, late, by=ANN).waiting is None, "its deadline would not hold from then"
    view = submit(site, job(site, "planned"), by=ANN)
    assert (view.state, view.attempts) == (JobState.QUEUED, ())
    ask = Asking(PlacementController(site.store, with_block, site.policy), site.clock.now)
    assert not ask(view)
    site.clock.advance(timedelta(hours=2))
    assert ask(view)
    assert where(site, "planned") == "block"
