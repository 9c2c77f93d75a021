"""From a market and jobs to entries and a round: what options a job has, and long queues in time."""

import random
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.job.jobs import MachineRequest, Priority, Work
from broker.core.job.placements import Plan
from broker.core.market.offers import CapacityType
from broker.core.values.money import Money
from broker.placement.offer_index import Board
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.hazard import interruption_rate
from broker.placement.queue.queue import Free, QueueEntry, entry_of
from broker.placement.queue.search import place
from tests.counts import FULL
from tests.placement.test_offer_index import circumstances, jobs, market
from tests.steps import calls

Make = Any


def entry(make: Make, offers: list[Any], conditions: Conditions | None = None, **changed: Any) -> QueueEntry:
    board = Board.of(offers, interruption_rate)
    how = {
        "now": make.now,
        "submitted_at": make.now - timedelta(hours=1),
        "conditions": conditions or make.conditions,
    }
    found: QueueEntry = entry_of("j", make.job(**changed), board, **how)
    return found


def test_limited_pools_until_something_can_be_had_at_any_time(make: Make) -> None:
    owned = {"capacity_type": CapacityType.OWNED, "provider": "owned"}
    offers = [
        make.offer("0", slots=4, **owned),
        make.offer("3", slots=1, capacity_type=CapacityType.RESERVED),
        make.offer("10"),
        make.offer("12", provider="gcp"),
        make.offer("20", slots=9, provider="lambda"),
    ]
    found = entry(make, offers, deadline=timedelta(hours=30), team="nlp")
    assert [(o.pool is not None, o.name) for o in found.options] == [
        (True, offers[0].id), (True, offers[1].id), (False, offers[2].id),
    ]  # fmt: skip
    assert found.options[0].cost == 0 < found.options[1].cost < found.options[2].cost
    assert (found.deadline, found.handed_in, found.team, found.gpus) == (29.0, -1.0, "nlp", 8)
    assert 20 < found.needs < 21


def test_what_cannot_be_in_time_is_placed_late_rather_than_never(make: Make) -> None:
    found = entry(make, [make.offer("10")], deadline=timedelta(hours=3))
    assert len(found.options) == 1
    assert place([found], {})[0].late


def test_in_time_but_for_the_margin_that_a_plan_keeps_free(make: Make) -> None:
    offer = make.spot(rate=0.5)
    finish = make.plan([offer]).best.finish
    late = [place([entry(make, [offer], deadline=finish + timedelta(minutes=more))], {})[0].late for more in (0, 7, 8)]
    assert late == [True, True, False]


def test_of_unknown_length(make: Make) -> None:
    """It costs what an hour costs, as in its plan, and is weighed as if it took some hours."""
    cheap, dear = (entry(make, [make.offer(price)], work=None).options[0] for price in ("5", "10"))
    assert (cheap.cost, dear.cost) == (5, 10)
    assert dear.weighs == pytest.approx(2 * cheap.weighs)
    assert cheap.weighs > cheap.cost
    assert cheap.hours > 0


def expected(plan: Plan) -> list[str]:
    """Of its placements, the first eight on limited pools until one that can be had at any time, and that."""
    offers = [placement.offer for placement in plan.placements]
    first = next((place for place, offer in enumerate(offers) if offer.slots is None), len(offers))
    return [offer.id for offer in (*offers[:first][:8], *offers[first : first + 1])]


def test_at_most_eight_limited_pools(make: Make) -> None:
    """Of one group or of as many as there are pools; no dearer ones, and what can be had at any time in any case."""
    alike = [make.offer(str(n), slots=2, instance_type=f"t{n:02}") for n in range(1, 13)]
    apart = [replace(offer, region=f"r{n}", zone=None) for n, offer in enumerate(alike)]
    always = [make.offer("20"), make.offer("21", provider="gcp")]
    for limited in (alike, apart):
        found = entry(make, [*always, *reversed(limited)])
        assert [option.name for option in found.options] == [offer.id for offer in (*limited[:8], always[0])]
        assert [option.pool for option in found.options] == [*(offer.pool for offer in limited[:8]), None]
        assert len(entry(make, limited).options) == 8
    between = make.offer("4.5", instance_type="t04b")  # of the group of `alike` but for its machines
    assert [option.name for option in entry(make, [*alike, between]).options] == [
        *(offer.id for offer in alike[:4]), between.id,
    ]  # fmt: skip


@given(seed=st.integers(0, 10**9))
@settings(max_examples=400 if FULL else 15, deadline=None)
def test_alone_in_the_queue_a_job_gets_what_its_plan_has_first(make: Make, seed: int) -> None:
    """Whatever it and the policies say of time, orders, machines and deadlines, and for the same money."""
    chance = random.Random(seed)
    job, conditions = jobs(make, chance), circumstances(make, chance)
    offers = market(make, chance, 60)
    always = chance.choice((0.5, 0.1, 0.0))
    offers = [replace(o, slots=4) if o.slots is None and chance.random() >= always else o for o in offers]
    plan = make.plan(offers, job, conditions=conditions)
    best = plan.best
    how = {"now": make.now, "submitted_at": make.now, "conditions": conditions}
    lined_up = entry_of("j", job, Board.of(offers, interruption_rate), **how)
    if best is not None:
        assert [option.name for option in lined_up.options] == expected(plan)
    (turn,) = place([lined_up], {o.pool: Free.of(o.slots) for o in offers if o.slots is not None})
    if best is None:
        assert turn.late
    else:
        assert turn.option is not None
        assert (turn.option.name, turn.start, turn.late) == (best.offer.id, 0, False)
        assert round(turn.option.cost * 1e6) == best.expected_cost.micros


def test_a_job_waits_for_as_much_as_its_time_is_worth(make: Make) -> None:
    """20 h at $1 with two hours of waiting, or at $3 now."""
    offers = [make.offer("1", slots=1, capacity_type=CapacityType.RESERVED), make.offer("3")]
    taken = {offers[0].pool: Free.of(0, [(2, 1)])}

    def start(value: str) -> float:
        return place([entry(make, offers, value_of_time=Money.usd(value))], taken)[0].start

    assert (start("15"), start("25")) == (2, 0)
    assert (
        place([entry(make, offers, value_of_time=Money.usd("25"), deadline=timedelta(hours=90))], taken)[0].start == 2
    )


def test_time_that_is_worth_nothing_is_not_time_that_nobody_priced(make: Make) -> None:
    """20 h at $1 with twenty hours of waiting, or at $1.50 now: $0 of the job or its policy waits as long as that."""
    offers = [make.offer("1", slots=1, capacity_type=CapacityType.RESERVED), make.offer("1.5")]
    taken = {offers[0].pool: Free.of(0, [(20, 1)])}
    of_policy = replace(make.conditions, value_of_time=Money.ZERO)

    def told(policy: Conditions | None = None, **changed: Any) -> tuple[float | None, float]:
        one = entry(make, offers, policy, **changed)
        return one.value_of_time, place([one], taken)[0].start

    assert told() == (None, 0)
    assert told(value_of_time=Money.ZERO) == told(of_policy) == (0, 20)
    assert told(of_policy, value_of_time=Money.usd("1")) == (1, 0)
    # The deadline rules: waiting is weighed as for a job that says nothing of time.
    assert told(value_of_time=Money.ZERO, deadline=timedelta(hours=90)) == (None, 0)


def test_a_long_queue_on_a_large_market(make: Make) -> None:
    """Whoever looks at so many offers for each job takes few steps, and no machine is given twice."""
    jobs, offers = (2_000, 5_000) if FULL else (150, 500)
    chance = random.Random(3)
    listed = [
        make.offer(
            "1" if n % 20 == 0 else str(chance.randint(5, 90)),
            provider=chance.choice(("aws", "gcp", "azure")),
            region=f"r{chance.randint(1, 9)}",
            instance_type=f"t{n}",
            accelerator=chance.choice(("H100", "A100", "L4")),
            count=chance.choice((1, 4, 8)),
            slots=chance.randint(1, 12) if n % 20 == 0 else None,
        )
        for n in range(offers)
    ]
    asked = []
    for n in range(jobs):
        machine = MachineRequest(accelerator=chance.choice(("H100", "A100", "L4")), count=chance.choice((1, 4, 8)))
        job = make.job(
            name=f"j{n}",
            team=chance.choice("abcd"),
            priority=chance.choice(tuple(Priority)),
            resources=(machine,),
            num_nodes=chance.choice((1, 1, 2)),
            work=Work(duration=timedelta(hours=chance.randint(1, 40))),
            deadline=chance.choice((None, timedelta(hours=60))),
        )
        asked.append(job)
    board = Board.of(listed, interruption_rate)
    how = {"now": make.now, "submitted_at": make.now, "conditions": make.conditions}
    entries = [entry_of(job.name, job, board, **how) for job in asked]
    assert calls(lambda: [entry_of(job.name, job, board, **how) for job in asked[:20]]) < 20 * 5_000
    turns = place(entries, {o.pool: Free.of(o.slots) for o in listed if o.slots is not None}, effort=2_000)
    assert len(turns) == jobs
    assert all(turn.option and not turn.late for turn in turns)
    of_pool = defaultdict(list)
    for turn in turns:
        assert turn.option
        if turn.option.pool:
            of_pool[turn.option.pool].append(turn)
    assert of_pool
    slots = {o.pool: o.slots for o in listed}
    for pool, mine in of_pool.items():
        for at in (turn.start + 1e-6 for turn in mine):
            assert sum(t.entry.nodes for t in mine if t.start <= at < (t.finish or 0)) <= slots[pool]
