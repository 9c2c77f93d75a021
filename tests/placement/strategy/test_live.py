"""A plan as a strategy sees it: what there is to decide on, and what is not for a strategy to decide."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.job.jobs import CheckpointPlan, Job, Work
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.money import Money
from broker.placement.planner import make_plan
from broker.placement.pricing.conditions import Conditions
from broker.placement.strategy.live import (
    LiveJob,
    StrategyChoices,
    better_pool,
    changeover_of,
    placement_order,
    situation,
    strategy_choices,
)
from broker.placement.strategy.situation import Mode, StrategyDecision

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
CONDITIONS = Conditions(engines={"stage": frozenset()}, sandbox=True)
JOB = Job(
    name="j", run="x", work=Work(duration=10 * HOUR), deadline=20 * HOUR, checkpoint=CheckpointPlan(every=HOUR / 12)
)


def offer(zone: str, capacity: CapacityType, price: str) -> Offer:
    return Offer(
        "stage", "here", zone, "box", None, 0, capacity, Money.usd(price), NOW, "test", cpus=4, memory_gib=16,
        availability=Availability.AVAILABLE, engine="stage",
        interruption_rate=0.1 if capacity is CapacityType.SPOT else 0.0,
    )  # fmt: skip


OFFERS = [
    offer("a", CapacityType.SPOT, "1"),
    offer("b", CapacityType.SPOT, "0.4"),
    offer("od", CapacityType.ON_DEMAND, "3"),
]


def seen(job: Job = JOB, offers: list[Offer] = OFFERS, conditions: Conditions = CONDITIONS) -> StrategyChoices | None:
    in_time = make_plan(job, offers, now=NOW, submitted_at=NOW, conditions=conditions)
    free = job.model_copy(update={"deadline": None})
    anyhow = make_plan(free, offers, now=NOW, submitted_at=NOW, conditions=conditions)
    return strategy_choices(job, conditions, in_time, anyhow, NOW, 10 * HOUR, 300)


def test_work_and_prices_are_those_of_the_steady_machine() -> None:
    found = seen()
    assert found is not None
    assert found.steady.offer.zone == "od"
    assert found.task.work == pytest.approx(36_000 * 1.1)  # half a minute of writing in every five
    assert sorted(found.price.values()) == [0.4, 1.0]


@pytest.mark.parametrize(
    ("job", "offers", "conditions"),
    [
        (JOB.model_copy(update={"deadline": None}), OFFERS, CONDITIONS),
        (JOB, OFFERS[:2], CONDITIONS),
        (JOB, [*OFFERS, offer("own", CapacityType.OWNED, "0.1")], CONDITIONS),
        (JOB, OFFERS, replace(CONDITIONS, capacity_order=("on_demand",))),
    ],
    ids=["no deadline", "nothing steady", "steady and cheaper", "an order above cost"],
)
def test_what_is_left_to_the_plan(job: Job, offers: list[Offer], conditions: Conditions) -> None:
    assert seen(job, offers, conditions) is None


def test_a_job_that_saves_nothing_may_lose_all_of_its_work() -> None:
    unsaved = JOB.model_copy(update={"checkpoint": CheckpointPlan()})
    assert changeover_of(unsaved, CONDITIONS, 0.1) > 36_000
    assert changeover_of(JOB, CONDITIONS, 0.1) < 1_200


def test_a_pool_just_taken_back_rests_while_there_is_another() -> None:
    found = seen()
    assert found is not None
    b, a = sorted(found.price, key=lambda pool: found.price[pool])
    idle = LiveJob(NOW, 10 * HOUR)
    assert set(situation(found, idle, NOW, frozenset({b})).spot) == {a}
    assert set(situation(found, idle, NOW, frozenset({a, b})).spot) == {a, b}


def test_moving_must_pay_for_itself_several_times() -> None:
    found = seen()
    assert found is not None
    b, a = sorted(found.price, key=lambda pool: found.price[pool])
    here = LiveJob(NOW + HOUR, 9 * HOUR, found.spot[a], NOW, running=True)
    assert better_pool(found, situation(found, here, NOW, frozenset())) == b
    nearly = LiveJob(NOW + HOUR, HOUR / 4, found.spot[a], NOW, running=True)
    assert better_pool(found, situation(found, nearly, NOW, frozenset())) is None
    booting = LiveJob(NOW, 9 * HOUR, found.spot[a], NOW)
    assert better_pool(found, situation(found, booting, NOW, frozenset())) is None


def test_what_was_decided_comes_first_and_the_rest_follows() -> None:
    found = seen()
    assert found is not None
    plan = make_plan(JOB, OFFERS, now=NOW, submitted_at=NOW, conditions=CONDITIONS)
    (a,) = (pool for pool, price in found.price.items() if price == 1)
    order = [p.offer.zone for p in placement_order(StrategyDecision(Mode.SPOT, a), found, plan)]
    assert order == ["a", "b", "od"]
    assert placement_order(StrategyDecision(Mode.ON_DEMAND), found, plan)[0].offer.zone == "od"
    assert placement_order(StrategyDecision(Mode.IDLE), found, plan) == ()
