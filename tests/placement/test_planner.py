"""Plans: ranking, deadlines, policies, fallbacks; and what must hold for any market."""

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.job.jobs import CheckpointPlan, Constraints, MachineRequest, Work
from broker.core.job.placements import Placement, Plan
from broker.core.job.reasons import Origin, Reason
from broker.core.market.offers import Availability, CapacityType, MoneyKind
from broker.core.values.money import Money
from broker.placement.planner import fallbacks
from tests.counts import FULL

Make = Any


def ids(plan: Plan) -> list[str]:
    return [placement.offer.id for placement in plan.placements]


def only_reason(plan: Plan) -> Reason:
    (rejection,) = plan.rejections
    return rejection.reason


class TestRanking:
    def test_by_expected_cost_not_by_price(self, make: Make) -> None:
        """Spot at half the price loses when it is taken away every hour and nothing is checkpointed."""
        offers = [make.spot("5", rate=0.15), make.offer("10")]
        with_checkpoints = make.plan(offers)
        without = make.plan(offers, make.job(checkpoint=CheckpointPlan()))
        assert with_checkpoints.best.offer.capacity_type is CapacityType.SPOT
        assert without.best.offer.capacity_type is CapacityType.ON_DEMAND

    def test_a_declared_capacity_order_goes_first(self, make: Make) -> None:
        offers = [make.spot("1", rate=0.0), make.offer("10"), make.offer("2", capacity_type=CapacityType.RESERVED)]
        order = replace(make.conditions, capacity_order=("on_demand", "reserved"))
        plan = make.plan(offers, conditions=order)
        assert [p.offer.capacity_type.value for p in plan.placements] == ["on_demand", "reserved", "spot"]

    def test_an_ordered_list_of_machines_goes_before_cost(self, make: Make) -> None:
        machines = (MachineRequest(accelerator="H100", count=8), MachineRequest(accelerator="A100", count=8))
        offers = [make.offer("1", accelerator="A100"), make.offer("50")]
        ordered = make.plan(offers, make.job(resources=machines, ordered=True))
        any_of = make.plan(offers, make.job(resources=machines))
        assert [p.offer.accelerator for p in ordered.placements] == ["H100", "A100"]
        assert [p.offer.accelerator for p in any_of.placements] == ["A100", "H100"]

    def test_unknown_work_ranks_by_the_price_of_a_useful_hour(self, make: Make) -> None:
        offers = [make.spot("9.9", rate=0.5), make.offer("10")]
        plan = make.plan(offers, make.job(work=None))
        assert plan.best.offer.capacity_type is CapacityType.ON_DEMAND
        assert plan.remaining is None

    def test_at_the_same_cost_the_faster_goes_first(self, make: Make) -> None:
        machines = (MachineRequest(accelerator="A100", count=8), MachineRequest(accelerator="H100", count=8))
        free = {"capacity_type": CapacityType.OWNED, "provider": "owned"}
        offers = [make.offer("0", accelerator=card, **free) for card in ("A100", "H100")]
        plan = make.plan(offers, make.job(resources=machines))
        assert [p.offer.accelerator for p in plan.placements] == ["H100", "A100"]

    def test_equal_offers_are_ranked_by_name(self, make: Make) -> None:
        offers = [make.offer(zone=f"us-east-1{letter}") for letter in "cabd"]
        assert ids(make.plan(offers)) == sorted(offer.id for offer in offers)


class TestDeadline:
    def test_what_finishes_too_late_is_turned_down(self, make: Make) -> None:
        plan = make.plan([make.offer()], make.job(deadline=timedelta(hours=20)))
        assert only_reason(plan) is Reason.MISSES_DEADLINE
        assert "18.3 min late" in plan.rejections[0].detail
        assert make.plan([make.offer()], make.job(deadline=timedelta(hours=21))).best is not None

    def test_it_counts_from_submission_or_is_a_time(self, make: Make) -> None:
        job = make.job(deadline=timedelta(hours=21))
        late = make.plan([make.offer()], job, submitted_at=make.now - timedelta(hours=1))
        assert only_reason(late) is Reason.MISSES_DEADLINE
        assert late.deadline == make.now + timedelta(hours=20)
        fixed = make.job(deadline=make.now + timedelta(hours=21))
        assert make.plan([make.offer()], fixed, submitted_at=datetime(2020, 1, 1, tzinfo=make.now.tzinfo)).best

    def test_interruptible_capacity_keeps_a_changeover_free(self, make: Make) -> None:
        offer = make.spot(rate=0.5)
        finish = make.plan([offer]).best.finish
        tight = make.job(deadline=finish + timedelta(minutes=7))
        enough = make.job(deadline=finish + timedelta(minutes=8))
        assert only_reason(make.plan([offer], tight)) is Reason.MISSES_DEADLINE
        assert make.plan([offer], enough).best is not None

    def test_less_work_left_may_still_make_it(self, make: Make) -> None:
        job = make.job(deadline=timedelta(hours=10))
        assert make.plan([make.offer()], job).best is None
        assert make.plan([make.offer()], job, remaining=timedelta(hours=9)).best is not None

    def test_unknown_work_is_turned_down_only_once_the_deadline_has_passed(self, make: Make) -> None:
        job = make.job(work=None, deadline=timedelta(hours=1))
        plan = make.plan([make.offer()], job)
        assert plan.best is not None
        assert any("no deadline can be guaranteed" in note for note in plan.notes)
        passed = make.plan([make.offer()], job, submitted_at=make.now - timedelta(hours=2))
        assert only_reason(passed) is Reason.MISSES_DEADLINE


class TestPolicies:
    def test_the_market_speaks_before_the_policy(self, make: Make) -> None:
        """A reference price that could not be launched anyhow does not blame the policy."""
        offer = make.offer(reference=True, engine=None)
        assert only_reason(make.plan([offer])).origin is Origin.MARKET
        late = make.plan([make.offer(reference=True)], make.job(deadline=timedelta(hours=1)))
        assert only_reason(late) is Reason.MISSES_DEADLINE

    def test_reference_prices_need_permission(self, make: Make) -> None:
        offer = make.offer(reference=True, source="pricebook", max_age=None)
        plan = make.plan([offer])
        assert only_reason(plan) is Reason.REFERENCE_PRICE
        assert any("1 offer would match at a reference price" in note for note in plan.remarks)
        allowed = replace(make.conditions, allow_reference_prices=True)
        assert make.plan([offer], conditions=allowed).best is not None

    def test_denials_are_counted_with_their_words(self, make: Make) -> None:
        def deny(placement: Placement) -> str | None:
            return "max $9 per hour (team.yaml:4)" if placement.rate > Money.usd("9") else None

        plan = make.plan([make.offer("10"), make.offer("8", zone="us-east-1b")], deny=deny)
        assert [p.rate for p in plan.placements] == [Money.usd("8")]
        assert (plan.rejections[0].reason, plan.rejections[0].detail) == (
            Reason.DENIED_BY_POLICY,
            "max $9 per hour (team.yaml:4)",
        )

    def test_excluded_pools_are_left_out(self, make: Make) -> None:
        offer = make.offer()
        plan = make.plan([offer], excluded={offer.pool: (Reason.LAUNCH_REFUSED, "no such image")})
        assert only_reason(plan) is Reason.LAUNCH_REFUSED
        assert plan.rejections[0].detail == "no such image"


def test_endless_interruptions_are_a_reason_of_their_own(make: Make) -> None:
    plan = make.plan([make.spot(rate=3)], make.job(checkpoint=CheckpointPlan()))
    assert only_reason(plan) is Reason.TOO_OFTEN_INTERRUPTED
    assert plan.rejections[0].detail == "one interruption in 20 min expected"


def test_another_hazard_can_be_put_in(make: Make) -> None:
    plan = make.plan([make.spot(rate=0.1)], conditions=replace(make.conditions, hazard=lambda offer: 0.0))
    assert plan.best.interruptions_per_hour == 0


class TestFallbacks:
    def test_the_hold_is_for_the_dearest_fallback_not_for_todays_spot_price(self, make: Make) -> None:
        offers = [make.spot("3"), *(make.offer(str(price), zone=f"z{price}") for price in (10, 11, 12, 90))]
        plan = make.plan(offers)
        assert [p.rate.dollars for p in fallbacks(plan)] == [3, 10, 11, 12]

    def test_of_spot_alone_the_first_ten(self, make: Make) -> None:
        spot = [make.spot(str(price), zone=f"z{price:02}") for price in range(1, 20)]
        assert [p.rate.dollars for p in fallbacks(make.plan(spot))] == list(range(1, 11))
        assert fallbacks(make.plan([])) == ()


# What must hold for any market.

_OFFER = st.fixed_dictionaries(
    {
        "price": st.one_of(st.none(), st.integers(0, 60).map(str)),
        "zone": st.sampled_from(["us-east-1a", "us-east-1b", "us-west-2a"]),
        "region": st.sampled_from(["us-east-1", "us-west-2"]),
        "provider": st.sampled_from(["aws", "gcp", "sandbox"]),
        "accelerator": st.sampled_from(["H100", "A100", "L4"]),
        "count": st.sampled_from([1, 8, 16]),
        "capacity_type": st.sampled_from(list(CapacityType)),
        "money": st.sampled_from(list(MoneyKind)),
        "availability": st.sampled_from(list(Availability)),
        "slots": st.sampled_from([None, 0, 1, 4]),
        "engine": st.sampled_from([None, "cloud", "other"]),
        "reference": st.booleans(),
        "interruption_rate": st.sampled_from([None, 0.0, 0.1, 0.7]),
        "max_age": st.sampled_from([None, timedelta(minutes=1), timedelta(hours=1)]),
    }
)
_JOB = st.fixed_dictionaries(
    {
        "num_nodes": st.sampled_from([1, 2]),
        "ordered": st.booleans(),
        "resources": st.sampled_from(
            [
                (MachineRequest(accelerator="H100", count=8),),
                (MachineRequest(accelerator="A100", count=8), MachineRequest(accelerator="H100", count=1)),
            ]
        ),
        "deadline": st.sampled_from([None, timedelta(hours=30)]),
        "checkpoint": st.sampled_from([CheckpointPlan(), CheckpointPlan(every=timedelta(minutes=30))]),
        "constraints": st.sampled_from([Constraints(), Constraints(regions=("us-e*",))]),
    }
)


@settings(max_examples=150 if FULL else 15, deadline=None)
@given(job_is=_JOB, offers_are=st.lists(_OFFER, max_size=12), seed=st.integers(0, 99))
def test_counts_add_up_and_order_of_offers_does_not_matter(
    make: Make, job_is: dict[str, Any], offers_are: list[dict[str, Any]], seed: int
) -> None:
    offers = [make.offer(instance_type=f"type-{place}", **fields) for place, fields in enumerate(offers_are)]
    job = make.job(**job_is)
    plan = make.plan(offers, job)
    assert plan.offers_seen == len(offers) == len(plan.placements) + len(plan.rejections)
    assert {*ids(plan), *(r.offer_id for r in plan.rejections)} == {offer.id for offer in offers}
    assert all(isinstance(rejection.reason, Reason) for rejection in plan.rejections)
    for placement in plan.placements:
        assert placement.expected_cost == sum((term.amount for term in placement.terms), Money.ZERO)
        assert all(term.how for term in placement.terms)
    shuffled = random.Random(seed).sample(offers, len(offers))
    again = make.plan(shuffled, job)
    assert again.placements == plan.placements
    assert again.notes == plan.notes


@settings(max_examples=100 if FULL else 15, deadline=None)
@given(job_is=_JOB, offers_are=st.lists(_OFFER, min_size=1, max_size=10), extra=_OFFER)
def test_an_infeasible_offer_never_changes_the_ranking(
    make: Make, job_is: dict[str, Any], offers_are: list[dict[str, Any]], extra: dict[str, Any]
) -> None:
    offers = [make.offer(instance_type=f"type-{place}", **fields) for place, fields in enumerate(offers_are)]
    job = make.job(**job_is)
    infeasible = make.offer(instance_type="extra", **(extra | {"price": None}))
    assert make.plan([infeasible, *offers], job).placements == make.plan(offers, job).placements


@settings(max_examples=150 if FULL else 15, deadline=None)
@given(
    job_is=_JOB,
    offers_are=st.lists(_OFFER, min_size=2, max_size=10),
    which=st.integers(0, 9),
    less=st.integers(1, 10_000_000),
)
def test_a_cheaper_price_never_ranks_a_pool_worse(
    make: Make, job_is: dict[str, Any], offers_are: list[dict[str, Any]], which: int, less: int
) -> None:
    offers = [make.offer(instance_type=f"type-{place}", **fields) for place, fields in enumerate(offers_are)]
    job = make.job(**job_is)
    before = make.plan(offers, job)
    chosen = offers[which % len(offers)]
    if chosen.id not in ids(before) or chosen.price is None or chosen.price.micros <= less:
        return
    cheaper = replace(chosen, price=chosen.price - Money(less))
    after = make.plan([cheaper if offer is chosen else offer for offer in offers], job)
    assert ids(after).index(chosen.id) <= ids(before).index(chosen.id)


@settings(max_examples=150 if FULL else 15, deadline=None)
@given(offer_is=_OFFER, hours=st.floats(0, 200), more=st.floats(0, 50), job_is=_JOB)
def test_more_work_left_never_costs_less_nor_ends_sooner(
    make: Make, offer_is: dict[str, Any], hours: float, more: float, job_is: dict[str, Any]
) -> None:
    feasible: dict[str, Any] = {"price": "10", "availability": Availability.AVAILABLE, "slots": None, "engine": "cloud"}
    feasible |= {"reference": False, "max_age": None, "provider": "aws", "money": MoneyKind.CASH, "count": 8}
    offer = make.offer(**(offer_is | feasible))
    job = make.job(**(job_is | {"deadline": None, "work": Work(duration=timedelta(hours=300))}))
    less = make.plan([offer], job, remaining=timedelta(hours=hours)).best
    greater = make.plan([offer], job, remaining=timedelta(hours=hours + more)).best
    if less is None:
        assert greater is None
    elif greater is not None:
        # Each term is rounded to the micro-dollar on its own.
        assert greater.expected_cost.micros >= less.expected_cost.micros - len(less.terms)
        assert greater.duration >= less.duration


@pytest.mark.parametrize("seed", range(3))
def test_the_same_market_gives_the_same_plan(make: Make, seed: int) -> None:
    chance = random.Random(seed)
    offers = [make.spot(str(chance.randint(1, 9)), zone=f"zone-{place}") for place in range(200)]
    assert make.plan(offers) == make.plan(list(offers))
