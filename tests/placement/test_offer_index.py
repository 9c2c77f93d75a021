"""A board ranks as `make_plan` does, whatever the market and the job."""

import math
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.job.jobs import CheckpointPlan, Constraints, Data, Job, MachineRequest, Work
from broker.core.job.placements import Placement
from broker.core.job.reasons import Reason
from broker.core.market.offers import Availability, Billing, CapacityType, Interconnect, MoneyKind, Offer
from broker.core.values.money import Money
from broker.placement.offer_index import Board
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.hazard import interruption_rate
from tests.counts import FULL

Make = Any
CARDS = ("H100", "A100", "A100-80GB")


def mostly(chance: random.Random, usual: Any, *others: Any) -> Any:
    """``usual`` in nine of ten."""
    return usual if chance.random() < 0.9 else chance.choice(others)


def market(make: Make, chance: random.Random, number: int) -> list[Offer]:
    """Offers of a few kinds, those of one alike but for name, price and size, each with a twin that differs in one
    thing; what may be amiss with an offer is fine in nine of ten."""
    kinds = [
        make.offer(
            provider=chance.choice(("aws", "gcp")),
            region=mostly(chance, "us-east-1", "us-west-2"),
            zone=mostly(chance, "a", None, "b"),
            accelerator=mostly(chance, card, None),
            count=mostly(chance, 8, 1, 4),
            capacity_type=chance.choice(tuple(CapacityType)),
            interruption_rate=mostly(chance, chance.choice((None, 0.0, 0.2)), 50.0),
            interconnect=mostly(chance, Interconnect.NVLINK, None, Interconnect.NONE),
        )
        for card in (*CARDS, chance.choice(CARDS))
    ]
    hourly = Billing(granularity=timedelta(hours=1))
    apart = {"region": "us-west-2"}, {"billing": hourly}, {"interconnect": Interconnect.PCIE}, {"zone": "b"}
    kinds += [replace(kind, **chance.choice(apart)) for kind in kinds]
    return [
        replace(
            chance.choice(kinds),
            instance_type=f"type-{n}",
            price=mostly(chance, Money.usd(str(chance.randint(1, 9))), None, Money.ZERO),
            as_of=make.now - timedelta(minutes=mostly(chance, 5, 90)),
            availability=mostly(chance, Availability.AVAILABLE, *Availability),
            slots=chance.choice((None, mostly(chance, 4, 0, 1))),
            engine=mostly(chance, "cloud", None, "other"),
            money=mostly(chance, MoneyKind.CASH, MoneyKind.SANDBOX, MoneyKind.AMORTISED),
            reference=mostly(chance, False, True),
            cpus=mostly(chance, 192.0, None, 16.0),
        )
        for n in range(number)
    ]


def jobs(make: Make, chance: random.Random) -> Job:
    machines = [
        MachineRequest(
            accelerator=card,
            count=mostly(chance, chance.choice((4, 8)), 1),
            at_least=mostly(chance, True, False),
            cpus=chance.choice((None, 100.0)),
            infra=mostly(chance, None, "aws", "gcp/us-*/a"),
        )
        for card in chance.sample(CARDS, chance.randint(1, 3))
    ]
    if chance.random() < 0.2:
        machines.append(chance.choice((MachineRequest(), machines[0])))
    job: Job = make.job(
        resources=tuple(machines),
        ordered=chance.random() < 0.3,
        num_nodes=chance.choice((1, 1, 2)),
        work=chance.choice((None, Work(duration=timedelta(hours=20), accelerator="A100", count=8))),
        deadline=chance.choice((None, None, timedelta(hours=chance.choice((3, 18, 40, 60))))),
        data=chance.choice((Data(), Data(location="aws/us-east-1", size=10**12))),
        checkpoint=chance.choice((CheckpointPlan(), CheckpointPlan(every=timedelta(minutes=30), size=10**10))),
        value_of_time=chance.choice((None, Money.ZERO, Money.usd(chance.randint(1, 40)))),
        constraints=Constraints(
            capacity_types=mostly(chance, (), (CapacityType.SPOT, CapacityType.ON_DEMAND)),
            regions=mostly(chance, (), ("us-e*",)),
            interconnect=chance.choice((None, Interconnect.NVLINK)),
        ),
    )
    return job


def circumstances(make: Make, chance: random.Random) -> Conditions:
    """What policies and the installation may say."""
    base: Conditions = make.conditions
    return replace(
        base,
        allow_reference_prices=chance.random() < 0.5,
        capacity_order=chance.choice(((), ("reserved", "spot"), ("owned", "reserved"))),
        cpu_jobs_on_gpus=chance.random() < 0.5,
        store_location=chance.choice((None, "gcp/us-west-2")),
        start_up=timedelta(minutes=chance.choice((0, 30))),
        value_of_time=chance.choice((None, Money.ZERO, Money.usd("7"))),
        carbon=mostly(chance, None, lambda offer: 5.0 * offer.count if offer.provider == "aws" else None),
    )


def test_the_markets_are_worth_the_ranking(make: Make) -> None:
    """What is said of any market below would be said of empty plans else."""
    seen = []
    for seed in range(60):
        chance = random.Random(seed)
        offers, job = market(make, chance, 120), jobs(make, chance)
        plan = make.plan(offers, job, conditions=circumstances(make, chance))
        groups = [len(members) for of in Board.of(offers, interruption_rate).groups.values() for members in of]
        limited = sum(one.offer.slots is not None for one in plan.placements)
        seen.append((len(plan.placements), max(groups), limited))
    assert sum(placements > 10 for placements, _, _ in seen) >= 40
    assert all(largest > 5 for _, largest, _ in seen)
    assert sum(limited > 8 for _, _, limited in seen) >= 35


@given(seed=st.integers(0, 10**9))
@settings(max_examples=150 if FULL else 15, deadline=None)
def test_the_ranking_is_the_plans(make: Make, seed: int) -> None:
    chance = random.Random(seed)
    offers, job = market(make, chance, 120), jobs(make, chance)
    conditions = circumstances(make, chance)
    excluded = {chance.choice(offers).pool: (Reason.LAUNCH_FAILED_LATELY, "failed")}

    def deny(placement: Placement) -> str | None:
        dirty = conditions.carbon is not None and (placement.kg_co2e_per_hour or math.inf) > 40
        return "no" if dirty or int(placement.offer.instance_type.removeprefix("type-")) % 7 == 0 else None

    how: dict[str, Any] = {"conditions": conditions, "excluded": excluded, "deny": deny}
    plan = make.plan(offers, job, **how)
    board = Board.of(offers, interruption_rate)
    ranked = list(board.ranked(board.judge(job, now=make.now, submitted_at=make.now, **how)))
    assert ranked == list(plan.placements)
    assert board.best(job, 3, now=make.now, submitted_at=make.now, **how) == list(plan.placements[:3])
    limited = [placement for placement in ranked if placement.offer.slots is not None]
    few = board.ranked(board.judge(job, now=make.now, submitted_at=make.now, **how), most_limited=2)
    assert list(few) == [placement for placement in ranked if placement not in limited[2:]]


def test_only_what_can_win_is_priced(make: Make) -> None:
    offers = [make.offer(str(price), instance_type=f"t{price}") for price in range(1, 500)]
    offers += [make.offer(str(price), provider="gcp", instance_type=f"t{price}") for price in range(50, 500)]
    asked: list[Placement] = []
    board = Board.of(offers, interruption_rate)

    def allowed(placement: Placement) -> None:
        asked.append(placement)

    board.best(make.job(), 5, now=make.now, submitted_at=make.now, conditions=make.conditions, deny=allowed)
    assert len(asked) <= 6


def test_emissions_are_not_for_a_board(make: Make) -> None:
    board = Board.of([], interruption_rate)
    judge = board.judge(make.job(), now=make.now, submitted_at=make.now, conditions=Conditions(by_carbon=True))
    with pytest.raises(ValueError, match="cost alone"):
        next(board.ranked(judge))
