"""Row 1 of a plan is what a submission does now, also where a strategy decides that."""

import random
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from broker.app.jobs.preview import preview
from broker.app.jobs.submit import submit
from broker.app.market.strategy_history import record_market
from broker.app.wiring import Broker
from broker.core.errors import BrokerError
from broker.core.events.wait_reasons import StrategyWaits
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.clock import ManualClock
from broker.core.values.money import Money
from broker.placement.planner import PlanInputs
from broker.placement.pricing.conditions import Conditions
from broker.reconciler.controllers.placement import PlacementController
from broker.reconciler.controllers.strategy_advice import Strategist
from tests.actors import ANN, with_clock
from tests.controllers import Asking

BUDGET = "version: 1\npolicy: t\nbudgets: [{name: all, amount: $100000, period: month}]\n"
POLICIES = (
    BUDGET,
    BUDGET + "guardrails: [{name: dear, max_price_per_gpu_hour: $8}]\n",
    BUDGET + "guardrails: [{name: types, capacity_types: {deny: [spot]}}]\n",
    BUDGET + "defaults: {value_of_time: $5}\n",
)


@pytest.fixture
def site(broker: Broker) -> Broker:
    return with_clock(broker, ManualClock(broker.clock.now()))


def later(site: Broker) -> None:
    assert isinstance(site.clock, ManualClock)
    site.clock.advance(timedelta(minutes=1))


def random_market(broker: Broker, chance: random.Random) -> PlanInputs:
    def offer(number: int) -> Offer:
        spot = number % 3 < 2
        price = Money.usd(str(chance.randint(1, 6) if spot else chance.randint(4, 15)))
        return Offer(
            f"p{chance.randint(1, 3)}", "us-1", None, f"box{number}", "H100", 1,
            CapacityType.SPOT if spot else CapacityType.ON_DEMAND, price, broker.clock.now(), "test", cpus=8,
            memory_gib=64, availability=Availability.UNAVAILABLE if chance.random() < 0.2 else Availability.AVAILABLE,
            engine="local", interruption_rate=chance.choice([0.01, 0.1, 0.5]) if spot else 0.0,
        )  # fmt: skip

    conditions = Conditions(
        engines={"local": broker.engine("local").honours}, value_of_time=broker.policy().defaults.value_of_time
    )
    return PlanInputs([offer(number) for number in range(chance.randint(2, 7))], conditions, {})


def random_job(broker: Broker, chance: random.Random, name: str) -> Job:
    more = chance.choice(["", "deadline: 9h\n", "deadline: 11h\n", "deadline: 14h\n", "deadline: 40h\n"])
    more += chance.choice(["", "checkpoint: {every: 10m, size: 1GB}\n"])
    more += chance.choice(["", "", "max_cost: $60\n"])
    text = f"name: {name}\nrun: 'true'\nresources: {{accelerators: 'H100:1'}}\nmax_duration: 60h\nwork: 8h\n{more}"
    return parse_job(text, file="job.yaml", now=broker.clock.now())


@pytest.mark.parametrize("policy", POLICIES, ids=["budget", "price", "no spot", "value of time"])
def test_row_1_of_a_plan_is_where_the_job_starts(site: Broker, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    site.store.activate_policy({"t.yaml": policy}, by="test")
    by_strategy = 0
    for seed in range(25):
        chance = random.Random(seed)
        later(site)  # no poll tells of this market: a plan of the one before must be of the past
        market, job = random_market(site, chance), random_job(site, chance, f"j{seed}")

        def there(*_: Any, market: PlanInputs = market, **__: Any) -> PlanInputs:
            return market

        monkeypatch.setattr("broker.app.jobs.preview.market_for", there)
        seen = preview(site, job, by=ANN)
        if seen.exit_code:
            with pytest.raises(BrokerError):
                submit(site, job, by=ANN)
            continue
        view = submit(site, job, by=ANN)
        if not view.attempts:
            by_strategy += 1
            strategist = Strategist(partial(record_market, site.store))
            Asking(PlacementController(site.store, there, site.policy, advise=strategist.place), site.clock.now)(view)
            with site.store.reading() as look:
                view = next(one for one in look.unclosed() if one.id == view.id)
        if isinstance(view.waiting, StrategyWaits):
            assert seen.first is not None
            assert seen.first.placement is None, seed
            assert any(note.startswith("it waits first: ") for note in seen.plan.notes)
        else:
            assert view.latest is not None, (seed, view.waiting)
            assert seen.in_order[0].offer.id == view.latest.placement.offer.id, seed
            assert sorted(p.offer.id for p in seen.in_order) == sorted(p.offer.id for p in seen.plan.placements)
    assert by_strategy or policy == POLICIES[2], "no strategy was asked"


def test_a_plan_changes_nothing(site: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    site.store.activate_policy({"t.yaml": BUDGET}, by="test")
    market = random_market(site, random.Random(1))
    monkeypatch.setattr("broker.app.jobs.preview.market_for", lambda *_, **__: market)
    preview(site, random_job(site, random.Random(1), "j"), by=ANN)
    with site.store.reading() as look:
        assert (look.unclosed(), look.entries(), look.decisions()) == ([], [], [])
