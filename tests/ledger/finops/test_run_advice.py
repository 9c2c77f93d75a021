"""Advice on runs: each planted case is found with its arithmetic, and nothing is invented on clean runs."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.events.agent_events import Reading
from broker.core.market.offers import CapacityType, Offer
from broker.core.market.price_basis import PriceBasis
from broker.core.values.money import Money
from broker.ledger.finops.advice import AdviceKind, MonthAdvice
from broker.ledger.finops.run_advice import costs_by_job, run_advice
from broker.ledger.finops.units import HOUR, MeasuredAttempt, Targets

TARGETS = Targets(0.7, 0.5, 0.6, 0.05, 0.7)
NOW = datetime(2026, 11, 30, tzinfo=UTC)
PRICES = {
    (name, kind): PriceBasis(Offer("aws", "us", None, "m", name, 1, kind, Money.usd(usd), NOW, "api"), NOW)
    for name, kind, usd in (
        ("H100", CapacityType.ON_DEMAND, "3"),
        ("L4", CapacityType.ON_DEMAND, "0.70"),
        ("H100", CapacityType.SPOT, "1.20"),
    )
}


def ran(number: int = 1, **changes: Any) -> MeasuredAttempt:
    """100 GPU-hours of training on an H100 at $3; percent and GiB of what it used in ``changes``."""
    figures = {
        "gpu": 90.0,
        "gpu_idle": 0.0,
        "gpu_memory": 70.0,
        "gpu_waits_cpu": 0.0,
        "gpu_waits_disk": 0.0,
        "cpu": 40.0,
    }
    figures |= {name: changes.pop(name) for name in [*figures, "disk_read"] if name in changes}
    fields = {
        "team": "nlp", "project": "llm", "job": "train", "user": "ann", "workload": "training", "accelerator": "H100",
        "use": {name: Reading(samples=9, mean=figure, peak=figure) for name, figure in figures.items()},
    }  # fmt: skip
    return MeasuredAttempt(f"train-{number}", 1, 100 * HOUR, Money.usd("3"), **fields | changes)


def told(*attempts: MeasuredAttempt, targets: Targets = TARGETS) -> list[MonthAdvice]:
    return list(run_advice(attempts, targets, lambda name, kind: PRICES.get((name, kind))))


def test_a_card_larger_than_the_work() -> None:
    """9 GiB and 31 % of an H100's 989 TFLOPS keep an L4 of 121 TFLOPS busy for 2.5 times as long."""
    (said,) = told(ran(gpu=31.0, gpu_memory=9.0))
    slowdown = 0.31 * 989 / 121
    assert (said.kind, said.about) == (AdviceKind.RIGHT_SIZE, "nlp / llm: train")
    assert float(said.cost.dollars) == pytest.approx(300 - 70 * slowdown, abs=0.2)
    assert said.because.startswith("used 9 of 80 GiB of the H100 at 31% in 100.0 GPU-hours, $300.00: one L4 at $0.70")
    assert f"in about {slowdown:.1f} times the time, $177.46" in said.because
    assert not told(ran(gpu=31.0, gpu_memory=60.0)), "it needs the memory"
    assert not told(ran(gpu=31.0, gpu_memory=9.0, capacity_type=CapacityType.OWNED)), "it is paid anyhow"
    assert not told(ran(gpu=60.0, gpu_memory=9.0, workload="inference")), "above the target of inference"


def test_small_jobs_on_held_cards_would_fit_on_fewer() -> None:
    held: dict[str, Any] = {"capacity_type": CapacityType.OWNED, "gpu": 25.0, "gpu_memory": 9.0}
    jobs = [ran(number, job=f"job{number}", **held) for number in range(6)]
    large = ran(7, job="large", gpu=25.0, gpu_memory=60.0, capacity_type=CapacityType.OWNED)
    (said,) = told(*jobs, large)
    assert (said.kind, said.about, said.cost) == (AdviceKind.SHARE_CARDS, "nlp: H100", Money.usd("1200"))
    assert "6 jobs would fit on 2 cards at a time: nlp / llm: job0, nlp / llm: job1," in said.because
    assert said.because.endswith("used at most 9 of 80 GiB and 25% of one H100 each")
    assert "`accelerators: H100-2g.20gb`" in said.do, "a slice of 1g has a seventh of the compute"
    (idler,) = told(*(replace(job, use=ran(**held | {"gpu": 12.0}).use) for job in jobs))
    assert ("6 jobs would fit on 1 card " in idler.because, "`accelerators: H100-1g.10gb`" in idler.do) == (True, True)
    again = [replace(job, job="job", begin=number % 3 * 50 * HOUR) for number, job in enumerate(jobs)]
    (said,) = told(*again)
    assert said.because.startswith("4 jobs would fit on 2 cards at a time: nlp / llm: job used"), "two begin, then two"
    assert said.cost == Money.usd("900"), "of 2, 4, 4, and 2 cards, one, two, two, and one in 50 hours each"
    on_l4 = [replace(job, accelerator="L4") for job in jobs]
    (small,) = told(*on_l4)
    assert "`accelerators: L4:0.5` with `sharing: soft`" in small.do
    for apart in (
        [replace(job, team=job.job) for job in jobs],  # cards of several teams are not shared
        [replace(job, gpus=8) for job in jobs],
        [replace(job, accelerator="H100-3g.40gb") for job in jobs],
        [ran(number, job=f"job{number}", **held | {"gpu": 60.0}) for number in range(6)],
        [replace(job, begin=number * 100 * HOUR) for number, job in enumerate(jobs)],  # one after the other
        jobs[:1],
    ):
        assert not told(*apart)


def test_a_gpu_that_waits_for_data() -> None:
    (said,) = told(ran(gpu=45.0, gpu_memory=9.0, gpu_waits_cpu=43.0, cpu=97.0))
    assert (said.kind, said.cost) == (AdviceKind.DATA_WAIT, Money.usd("129"))
    assert "waited for data 43% of 100.0 GPU-hours: CPU at 97%" in said.because
    assert "workers" in said.do
    (disks,) = told(ran(gpu_waits_disk=20.0, disk_read=180.0))
    assert "disks, which gave 180 MB/s" in disks.because


def test_work_that_spot_could_have_done() -> None:
    fits: dict[str, Any] = {"may_use_spot": True, "checkpoint_gap": timedelta(minutes=6)}
    (said,) = told(ran(**fits))
    assert (said.kind, said.cost) == (AdviceKind.SPOT, Money.usd("180"))
    assert "(checkpoints every 6 min): $120.00 instead of $300.00" in said.because
    for other in ({"may_use_spot": False}, {"checkpoint_gap": None}, {"checkpoint_gap": timedelta(hours=3)}):
        assert not told(ran(**fits | other)), other
    assert not told(ran(**fits, capacity_type=CapacityType.SPOT))


def test_idle_hours_with_their_owners() -> None:
    """Half of the hours of the second run: a quarter in all, less what waits for data."""
    (said,) = told(ran(), ran(2, gpu_idle=50.0, gpu_waits_cpu=10.0, user="bob"))
    assert (said.kind, said.cost) == (AdviceKind.IDLE_RUN, Money.usd("120"))
    assert "40.0 of 200.0 GPU-hours of ann, bob were idle" in said.because
    assert not told(ran(gpu_idle=50.0), targets=replace(TARGETS, idle=0.5)), "a policy allows it"


def test_the_cost_of_a_job_is_that_of_all_its_attempts() -> None:
    again = replace(ran(1), attempt=2)
    assert costs_by_job([ran(1), again, ran(2)]) == {"nlp / llm: train": Money.usd("450")}


clean = st.builds(
    ran,
    number=st.integers(1, 9),
    job=st.sampled_from(["train", "tune", "serve"]),
    workload=st.sampled_from(["training", "batch"]),
    accelerator=st.sampled_from(["H100", "A100", "L4"]),
    gpu=st.floats(70, 100),
    gpu_idle=st.floats(0, 5),
    gpu_memory=st.floats(1, 80),
    gpu_waits_cpu=st.floats(0, 4.9),
    gpu_waits_disk=st.floats(0, 4.9),
    cpu=st.floats(0, 100),
    capacity_type=st.sampled_from(list(CapacityType)),
    may_use_spot=st.booleans(),
    checkpoint_gap=st.one_of(st.none(), st.timedeltas(timedelta(minutes=61), timedelta(days=1))),
)


@given(st.lists(clean, max_size=8))
@settings(max_examples=100, deadline=None)
def test_nothing_is_advised_on_clean_runs(attempts: list[MeasuredAttempt]) -> None:
    assert told(*attempts) == []
