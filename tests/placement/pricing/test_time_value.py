"""Cost against time: what an hour until the finish is worth moves the ranking, makes jobs wait, and makes them move."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.job.jobs import CheckpointPlan, Job, MachineRequest, Work
from broker.core.job.placements import Placement, Plan
from broker.core.market.offers import Availability, CapacityType, Offer
from broker.core.values.figures import estimate
from broker.core.values.money import Money
from broker.placement.offer_index import Board
from broker.placement.planner import make_plan
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.time_value import better_place, find_spot_wait, value_of_time

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
CONDITIONS = Conditions(engines={"stage": frozenset()}, sandbox=True)
JOB = Job(
    name="j",
    run="x",
    work=Work(duration=10 * HOUR, accelerator="A100", count=1),
    resources=(MachineRequest(accelerator="A100", count=1), MachineRequest(accelerator="H100", count=1)),
    checkpoint=CheckpointPlan(every=HOUR / 2),
)


def offer(gpu: str, price: str, capacity: CapacityType = CapacityType.ON_DEMAND, zone: str = "a") -> Offer:
    return Offer(
        "stage", "here", zone, f"box-{gpu}", gpu, 1, capacity, Money.usd(price), NOW, "test", cpus=4, memory_gib=16,
        availability=Availability.AVAILABLE, engine="stage",
        interruption_rate=0.1 if capacity is CapacityType.SPOT else 0.0,
    )  # fmt: skip


# An H100 does about three times the work of an A100: here it costs more for the same work.
SLOW, FAST = offer("A100", "2"), offer("H100", "8")
SPOT = offer("A100", "0.7", CapacityType.SPOT, "b")


def plan(*offers: Offer, value: str | None = None, job: Job = JOB, conditions: Conditions = CONDITIONS) -> Plan:
    worth = None if value is None else Money.usd(value)
    asked = job.model_copy(update={"value_of_time": worth})
    return make_plan(asked, offers, now=NOW, submitted_at=NOW, conditions=conditions)


def first(found: Plan) -> Placement:
    assert found.best is not None
    return found.best


def test_who_is_in_a_hurry_pays_for_a_faster_machine() -> None:
    assert first(plan(SLOW, FAST)).offer == SLOW
    assert first(plan(SLOW, FAST, value="0.10")).offer == SLOW
    assert first(plan(SLOW, FAST, value="20")).offer == FAST


def test_the_money_stays_as_it_is() -> None:
    calm, hurried = plan(SLOW), plan(SLOW, value="3")
    assert first(hurried).expected_cost == first(calm).expected_cost
    duration = first(calm).duration
    assert duration is not None
    assert first(hurried).surcharge == Money.usd("3").scaled(duration / HOUR)


@given(st.lists(st.integers(0, 5000), min_size=2, max_size=5))
def test_the_dearer_time_is_the_sooner_it_is_done_and_never_for_less_money(cents: list[int]) -> None:
    best = [first(plan(SLOW, FAST, SPOT, value=f"{value / 100:.2f}")) for value in sorted(cents)]
    for calmer, hastier in pairwise(best):
        assert calmer.duration is not None
        assert hastier.duration is not None
        assert hastier.duration <= calmer.duration
        assert hastier.expected_cost >= calmer.expected_cost


@pytest.mark.parametrize("value", [None, "0.10", "20"])
def test_a_board_ranks_the_same(value: str | None) -> None:
    job = JOB.model_copy(update={"value_of_time": None if value is None else Money.usd(value)})
    offers = [SLOW, FAST, SPOT]
    board = Board.of(offers, CONDITIONS.hazard)
    ranked = list(board.ranked(board.judge(job, now=NOW, submitted_at=NOW, conditions=CONDITIONS)))
    assert ranked == list(make_plan(job, offers, now=NOW, submitted_at=NOW, conditions=CONDITIONS).placements)


def test_the_job_s_word_comes_before_the_policy_s_and_a_deadline_before_both() -> None:
    policy = replace(CONDITIONS, value_of_time=Money.usd(5))
    assert value_of_time(JOB, policy) == Money.usd(5)
    assert value_of_time(JOB.model_copy(update={"value_of_time": Money.usd(1)}), policy) == Money.usd(1)
    assert value_of_time(JOB.model_copy(update={"value_of_time": Money.ZERO}), policy) == Money.ZERO
    assert value_of_time(JOB.model_copy(update={"deadline": 20 * HOUR}), policy) == Money.ZERO


def waits(value: str, *, away: float = 2.0, waited: timedelta = timedelta(0)) -> bool:
    here, gone = plan(SLOW), plan(SPOT).placements
    return find_spot_wait(here.best, gone, lambda offer: away, Money.usd(value), waited) is not None


def test_it_waits_for_spot_while_that_is_worth_the_time() -> None:
    # Some $20 on demand and some $8 on spot: two hours may cost $12.
    assert waits("1")
    assert not waits("10")
    assert not waits("1", away=24)
    assert not waits("0")


def test_what_stays_away_for_long_is_not_waited_for_any_longer() -> None:
    assert waits("1", waited=3 * HOUR)
    assert not waits("1", waited=24 * HOUR)


def test_why_it_waits_is_told_in_whole_cents() -> None:
    # Once it has waited longer than capacity is away on average, what waiting is worth changes by the millisecond.
    waited = 3 * HOUR + timedelta(milliseconds=7)
    found = find_spot_wait(plan(SLOW).best, plan(SPOT).placements, lambda offer: 2.0, Money.usd(1), waited)
    assert found is not None
    assert re.search(r" is expected back in 3 h: .* by \$\d+\.\d\d$", found.why)
    assert [estimate(Money(micros)) for micros in (0, 9_999, 10_000, 12_345_678)] == [
        "$0.00", "less than $0.01", "$0.01", "$12.35",
    ]  # fmt: skip


def test_with_nothing_to_start_on_there_is_nothing_to_weigh() -> None:
    assert find_spot_wait(None, plan(SPOT).placements, lambda offer: 2.0, Money.usd(1), timedelta(0)) is None


def test_it_moves_for_several_times_what_the_move_costs_and_for_no_less() -> None:
    here, there = first(plan(SLOW)), first(plan(SPOT))

    def moves(left: float, value: str = "1") -> bool:
        return better_place(here, [here, there], left, 0.2, Money.usd(value)) is there

    assert moves(10)
    assert not moves(0.3)
    assert not moves(10, "0")
    assert better_place(there, [here, there], 10, 0.2, Money.usd(1)) is None
