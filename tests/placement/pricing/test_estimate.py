"""Every dollar of an expected cost: recomputed by hand, and adding up."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from broker.core.job.jobs import CheckpointPlan, Data, MachineRequest, Work
from broker.core.job.placements import Placement
from broker.core.market.offers import Billing, CapacityType
from broker.core.values.money import Money
from broker.placement.pricing.data_cost import keeping_rate
from broker.placement.pricing.estimate import Estimator, effective_price, margin
from broker.placement.pricing.hazard import FAILURES_PER_GPU_HOUR, SPOT_PER_MACHINE_HOUR, interruption_rate
from broker.placement.pricing.run_model import Effort, run_model

Make = Any
ON_H100 = Work(duration=timedelta(hours=20), accelerator="H100", count=8)


def estimate(make: Make, offer: Any, job: Any, *, remaining: timedelta | None = None, **conditions: Any) -> Placement:
    effort = Effort.of(job, replace(make.conditions, **conditions), remaining)
    machine = job.resources[0] if job.resources else MachineRequest()
    placement = Estimator(effort, make.now, interruption_rate).placement(offer, machine)
    assert placement is not None
    assert placement.expected_cost == sum((term.amount for term in placement.terms), Money.ZERO)
    return placement


def amounts(placement: Placement) -> dict[str, str]:
    return {term.name: term.amount.rounded() for term in placement.terms}


def test_work_without_interruptions_by_hand(make: Make) -> None:
    """20 h at $10; 40 checkpoints of 10 GB at 0.5 GB/s are 20 s each; 5 min of start-up."""
    placement = estimate(make, make.offer("10"), make.job())
    assert amounts(placement) == {"compute": "$200.00", "checkpoints": "$2.22", "start-up": "$0.83"}
    assert placement.duration is not None
    assert placement.duration.total_seconds() == pytest.approx((20 + 800 / 3600 + 5 / 60) * 3600)
    assert placement.finish == make.now + placement.duration
    assert placement.useful_fraction == pytest.approx(20 / (20 + 800 / 3600))


def test_interruptions_cost_lost_work_and_restarts(make: Make) -> None:
    placement = estimate(make, make.spot("4", rate=0.1), make.job())
    assert amounts(placement).keys() == {"compute", "checkpoints", "lost work", "restarts", "start-up"}
    # About two interruptions in 20 h, each losing a quarter of an hour and 8 min of start and restore.
    by_name = {term.name: term for term in placement.terms}
    assert float(by_name["lost work"].amount.dollars) == pytest.approx(2 * 0.25 * 4, rel=0.1)
    assert float(by_name["restarts"].amount.dollars) == pytest.approx(2 * 8 / 60 * 4, rel=0.1)
    assert "interruptions expected" in by_name["restarts"].how
    assert "8 min each" in by_name["restarts"].how


def test_every_term_says_its_rate(make: Make) -> None:
    placement = estimate(make, make.spot("4"), make.job(num_nodes=2))
    assert placement.rate == Money.usd("8")
    assert all("$8.00/h for 2 machines" in term.how for term in placement.terms)
    assert placement.gpus == 16


def test_work_is_converted_between_accelerators(make: Make) -> None:
    job = make.job(work=Work(duration=timedelta(hours=30), accelerator="A100", count=8))
    placement = estimate(make, make.offer(), job)
    assert placement.throughput == pytest.approx(989 / 312, rel=0.01)
    assert "× what A100:8 does" in placement.terms[0].how
    assert float(placement.terms[0].amount.dollars) == pytest.approx(300 / placement.throughput, rel=1e-6)


def test_idle_accelerators_of_a_larger_machine_do_no_work(make: Make) -> None:
    job = make.job(
        resources=(MachineRequest(accelerator="H100", count=2),), work=ON_H100.model_copy(update={"count": 2})
    )
    assert estimate(make, make.offer(count=8), job).throughput == 1.0


def test_work_on_whatever_machine_takes_as_long_anywhere(make: Make) -> None:
    job = make.job(work=Work(duration=timedelta(hours=20)))
    assert estimate(make, make.offer(), job).throughput == 1.0


def test_an_unknown_card_is_taken_as_equal_and_says_so(make: Make) -> None:
    job = make.job(resources=(MachineRequest(accelerator="Oddity", count=8),))
    placement = estimate(make, make.offer(accelerator="Oddity"), job)
    assert placement.throughput == 1.0
    assert "not known" in placement.terms[0].how


def test_unknown_work_costs_one_hour_and_has_no_finish(make: Make) -> None:
    placement = estimate(make, make.spot("4"), make.job(work=None))
    assert (placement.expected_cost, placement.duration, placement.finish) == (Money.usd("4"), None, None)
    assert placement.useful_fraction < 1
    assert effective_price(placement) > Money.usd("4")


def test_unknown_work_is_as_useful_as_a_long_job(make: Make) -> None:
    """Also where checkpoints are hours apart: then interruptions cost hours."""
    seldom = CheckpointPlan(every=timedelta(hours=5), size=10_000_000_000)
    unknown, long = (
        estimate(make, make.spot("4", rate=0.2), make.job(work=work, checkpoint=seldom))
        for work in (None, ON_H100.model_copy(update={"duration": timedelta(hours=500)}))
    )
    assert unknown.useful_fraction == pytest.approx(long.useful_fraction)


@pytest.mark.parametrize("every", [None, *(timedelta(hours=hours) for hours in (1, 2, 4, 6, 8, 12, 24, 1000))])
@pytest.mark.parametrize("rate", [0.02, 0.2, 0.6, 2.0])
def test_unknown_work_with_checkpoints_is_never_less_useful_than_without(
    make: Make, every: timedelta | None, rate: float
) -> None:
    with_them, without = (
        estimate(make, make.spot("4", rate=rate), make.job(work=None, checkpoint=plan)).useful_fraction
        for plan in (CheckpointPlan(every=every, size=10_000_000_000), CheckpointPlan())
    )
    overhead = 0.0 if every is None or every > timedelta(hours=6) else 0.01
    assert with_them >= without - overhead


@given(
    length=st.none() | st.floats(0.1, 200),
    interval=st.floats(0.05, 300),
    rate=st.floats(0, 5),
    throughput=st.integers(1, 8),
)
def test_checkpoints_that_cost_nothing_never_make_a_job_less_useful(
    length: float | None, interval: float, rate: float, throughput: int
) -> None:
    # What takes longer than e^50 h is not told apart.
    assume(length is None or rate * length / throughput < 50)
    on_one = Work(duration=timedelta(hours=1), accelerator="H100", count=1)
    without = Effort(
        nodes=1, remaining=None, work=length, reference=on_one, resuming=False, checkpoints=False, interval=None,
        size=None, write=0.0, restart=0.0, data_size=0, data_origins=(), start_up=0.1, store_location=None,
    )  # fmt: skip
    with_them = replace(without, checkpoints=True, interval=interval)
    runs = [run_model(effort, "H100", throughput, rate, 0.1).run for effort in (with_them, without)]
    assert runs[0].useful_fraction >= runs[1].useful_fraction * (1 - 1e-9)


def test_unknown_work_of_a_gang_without_checkpoints_is_still_tried_on_spot(make: Make) -> None:
    """Nobody knows that it is too long for sixteen machines of which one is lost every 25 min."""
    job = make.job(work=None, num_nodes=16, checkpoint=CheckpointPlan())
    seldom, often = (estimate(make, make.spot(rate=rate), job).useful_fraction for rate in (0.02, 0.15))
    assert often < seldom < 0.5


def test_before_the_first_checkpoint_there_is_nothing_to_load(make: Make) -> None:
    job = make.job(checkpoint=CheckpointPlan(every=timedelta(hours=30), restart=timedelta(minutes=30)))
    restarts = {term.name: term for term in estimate(make, make.spot(rate=0.1), job).terms}["restarts"]
    assert "5 min each" in restarts.how
    going_on = estimate(make, make.spot(rate=0.1), job, remaining=timedelta(hours=10))
    assert "35 min each" in {term.name: term for term in going_on.terms}["restarts"].how


def test_unknown_work_compares_accelerators_by_what_they_do(make: Make) -> None:
    machines = (MachineRequest(accelerator="A100", count=8), MachineRequest(accelerator="H100", count=8))
    effort = Effort.of(make.job(work=None, resources=machines), make.conditions)
    placement = Estimator(effort, make.now, interruption_rate).placement(make.offer("10"), machines[1])
    assert placement is not None
    assert effective_price(placement) < Money.usd("4")


def test_without_checkpoints_an_interruption_costs_everything(make: Make) -> None:
    with_them = estimate(make, make.spot("4", rate=0.1), make.job())
    without = estimate(make, make.spot("4", rate=0.1), make.job(checkpoint=CheckpointPlan()))
    # (e^(0.1·20) - 1)/0.1 = 63.9 h of running instead of 20.
    assert without.expected_cost > with_them.expected_cost * 3


def test_hopeless_is_no_placement(make: Make) -> None:
    effort = Effort.of(make.job(checkpoint=CheckpointPlan()), make.conditions)
    machine = MachineRequest(accelerator="H100", count=8)
    assert Estimator(effort, make.now, interruption_rate).placement(make.spot(rate=1.0), machine) is None
    assert Estimator(effort, make.now, interruption_rate).placement(make.spot(rate=1e6), machine) is None


def test_what_is_turned_down_for_interruptions_is_told_its_interval(make: Make) -> None:
    seldom = CheckpointPlan(every=timedelta(hours=15), size=10_000_000_000)
    plan = make.plan([make.spot(rate=0.5)], make.job(checkpoint=seldom))
    assert [rejection.detail for rejection in plan.rejections] == [
        "one interruption in 2 h expected, a checkpoint every 15 h (`checkpoint.every`)"
    ]


def test_owned_machines_need_no_start_up(make: Make) -> None:
    placement = estimate(make, make.offer("0", capacity_type=CapacityType.OWNED), make.job())
    assert placement.expected_cost == Money.ZERO
    assert "start-up" not in amounts(placement)


def test_going_on_from_a_checkpoint_counts_what_is_left_and_the_restore(make: Make) -> None:
    placement = estimate(make, make.offer("10"), make.job(), remaining=timedelta(hours=5))
    assert amounts(placement)["compute"] == "$50.00"
    assert amounts(placement)["start-up"] == "$1.33"  # 5 min of start-up, 3 min of restore


def test_a_job_with_all_its_work_left_has_nothing_to_restore(make: Make) -> None:
    all_left = estimate(make, make.offer("10"), make.job(), remaining=timedelta(hours=20))
    assert all_left == estimate(make, make.offer("10"), make.job())


def test_data_elsewhere_is_paid_once_per_start(make: Make) -> None:
    job = make.job(data=Data(location="aws/us-west-2", size=500_000_000_000))
    assert amounts(estimate(make, make.offer(), job))["data egress"] == "$10.00"
    assert float(amounts(estimate(make, make.spot(rate=0.1), job))["data egress"][1:]) == pytest.approx(30, rel=0.05)
    here = make.job(data=Data(location="aws/us-east-1", size=500_000_000_000))
    assert "data egress" not in amounts(estimate(make, make.offer(), here))


def test_checkpoints_stored_elsewhere_pay_egress(make: Make) -> None:
    placement = estimate(make, make.offer(), make.job(), store_location="gcp/us-central1")
    # 40 checkpoints of 10 GB at $0.09.
    assert amounts(placement)["checkpoint egress"] == "$36.00"
    going_on = estimate(make, make.offer(), make.job(), remaining=timedelta(hours=10), store_location="gcp/us-central1")
    assert amounts(going_on)["restore egress"] == "$1.20"


def test_the_providers_minimum_and_steps_are_billed(make: Make) -> None:
    short = make.job(work=ON_H100.model_copy(update={"duration": timedelta(minutes=10)}), checkpoint=CheckpointPlan())
    hourly = make.offer("6", billing=Billing(minimum=timedelta(hours=1), granularity=timedelta(hours=1)))
    placement = estimate(make, hourly, short)
    assert placement.expected_cost == Money.usd("6")
    assert "at least 1 h" in placement.terms[-1].how


def test_a_gang_is_interrupted_as_often_as_all_its_machines(make: Make) -> None:
    assert estimate(make, make.spot(rate=0.1), make.job(num_nodes=4)).interruptions_per_hour == pytest.approx(0.4)


def test_margin_is_a_changeover_weighted_with_its_probability(make: Make) -> None:
    estimator = Estimator(Effort.of(make.job(), make.conditions), make.now, interruption_rate)
    machine = MachineRequest(accelerator="H100", count=8)
    steady, shaky = (estimator.placement(offer, machine) for offer in (make.offer(), make.spot(rate=0.5)))
    assert steady is not None
    assert shaky is not None
    assert margin(steady, estimator.effort) == timedelta(0)
    assert timedelta(minutes=7.9) < margin(shaky, estimator.effort) <= timedelta(minutes=8)


class TestPriors:
    def test_the_providers_figure_wins(self, make: Make) -> None:
        assert interruption_rate(make.spot(rate=0.01)) == 0.01

    def test_spot_is_taken_away_and_everything_fails_now_and_then(self, make: Make) -> None:
        assert interruption_rate(make.spot(rate=None)) == pytest.approx(
            SPOT_PER_MACHINE_HOUR + 8 * FAILURES_PER_GPU_HOUR
        )
        assert interruption_rate(make.offer(interruption_rate=None)) == pytest.approx(8 * FAILURES_PER_GPU_HOUR)
        cpu = make.offer(interruption_rate=None, accelerator=None, count=0)
        assert interruption_rate(cpu) == FAILURES_PER_GPU_HOUR


@pytest.mark.parametrize("capacity", [CapacityType.SPOT, CapacityType.OWNED])
def test_a_gang_whose_data_and_checkpoints_lie_elsewhere_by_hand(make: Make, capacity: CapacityType) -> None:
    """48 h on two machines at $12.50, each lost every 1/0.12 h; 20 GB every 30 min to aws/us-west-2, 200 GB of data."""
    owned = capacity is CapacityType.OWNED
    job = make.job(
        num_nodes=2,
        work=Work(duration=timedelta(hours=48), accelerator="H100", count=8),
        data=Data(location="gcp/us-central1", size=200_000_000_000),
        checkpoint=CheckpointPlan(
            every=timedelta(minutes=30), size=20_000_000_000, restart=timedelta(minutes=3), keep=2
        ),
    )
    place = {"provider": "owned", "region": "attic"} if owned else {}
    offer = make.spot("12.50", rate=0.12, capacity_type=capacity, **place)
    store: dict[str, Any] = {"store_location": "aws/us-west-2", "keeping": keeping_rate("aws/us-west-2")}
    placement = estimate(make, offer, job, **store)

    hazard, write, start = 2 * 0.12, 20 / 2 / 0.5 / 3600, 0.0 if owned else 5 / 60
    interruptions = 96 * (math.exp(hazard * (0.5 + write)) - 1)
    running = interruptions / hazard
    restarts = interruptions * (start + 3 / 60)
    hours = running + restarts + start
    dollars = {
        "compute": 48 * 25,
        "checkpoints": 96 * write * 25,
        "lost work": (running - 48 - 96 * write) * 25,
        "restarts": restarts * 25,
        "start-up": start * 25,
        "data egress": 200 * 0.12 * (1 + interruptions),
        "checkpoint egress": 0 if owned else 20 * 0.02 * 96,
        "restore egress": 20 * (0.09 if owned else 0.02) * interruptions,
        "keeping checkpoints": 2 * 20 * 0.023 * hours / 730,
    }
    terms = {term.name: float(term.amount.dollars) for term in placement.terms}
    assert terms == pytest.approx({name: amount for name, amount in dollars.items() if amount}, abs=2e-6)
    assert placement.duration is not None
    assert placement.duration / timedelta(hours=1) == pytest.approx(hours)
    assert placement.useful_fraction == pytest.approx(48 / (running + restarts))
    assert float(effective_price(placement).dollars) == pytest.approx(25 * (running + restarts) / 48)
    # To first order this is the formula: 1 / (1 + δ/τ + τ/2M + restart/M).
    assert placement.useful_fraction == pytest.approx(
        1 / (1 + write / 0.5 + 0.25 * hazard + (start + 3 / 60) * hazard), rel=0.01
    )


def test_without_known_work_the_data_is_still_read_once(make: Make) -> None:
    """A hold must cover what a start moves, however long the job runs."""
    data = Data(location="aws/us-east-1", size=100 * 10**9)
    offer = make.offer("10", provider="gcp", region="us-central1")
    placement = estimate(make, offer, make.job(work=None, data=data))
    (term,) = (term for term in placement.terms if term.name == "data egress")
    assert (term.amount, term.per_start) == (Money.usd("9.00"), Money.usd("9.00"))
