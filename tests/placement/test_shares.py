"""Parts of one machine: what each job is given by default, and that the sum never exceeds what there is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.core.job.jobs import CheckpointPlan, Job, MachineRequest
from broker.core.job.reasons import Reason
from broker.core.market.offers import Availability, CapacityType, Interconnect, MoneyKind, Offer
from broker.core.market.shares import MachineShare, total
from broker.core.values.money import Money
from broker.placement.planner import make_plan
from broker.placement.pricing.conditions import Conditions
from broker.placement.pricing.shares import current_price, offer_part, share_of, shortage

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
GIB = 1024


def machine(cpus: float = 64, memory: float = 512, gpus: int = 8, price: str = "0", **more: Any) -> Offer:
    return Offer(
        "owned", "local", None, "rack-3", "H100" if gpus else None, gpus, CapacityType.OWNED, Money.usd(price), NOW,
        "owned", cpus=cpus, memory_gib=memory, availability=Availability.AVAILABLE, interruption_rate=0.0, slots=1,
        engine="local", money=MoneyKind.AMORTISED, interconnect=Interconnect.NVLINK if gpus > 1 else None, **more,
    )  # fmt: skip


def job(wanted: MachineRequest, nodes: int = 1) -> Job:
    return Job(name="j", run="true", resources=(wanted,), num_nodes=nodes)


def plan(offer: Offer, wanted: MachineRequest, nodes: int = 1) -> Any:
    conditions = Conditions(engines={"local": frozenset({"workdir", "several_nodes"})})
    return make_plan(job(wanted, nodes), [offer], now=NOW, submitted_at=NOW, conditions=conditions)


@pytest.mark.parametrize(
    ("wanted", "share"),
    [
        (MachineRequest(accelerator="H100", count=2), MachineShare(12_000, 64 * GIB, (("H100", 2),))),
        (MachineRequest(accelerator="H100", count=8), MachineShare(48_000, 256 * GIB, (("H100", 8),))),
        (MachineRequest(accelerator="H100", count=1, cpus=30), MachineShare(30_000, 32 * GIB, (("H100", 1),))),
        (MachineRequest(), MachineShare(1000, 8 * GIB)),
        (MachineRequest(cpus=4), MachineShare(4000, 32 * GIB)),
        (MachineRequest(cpus=0.5, memory_gib=1), MachineShare(500, GIB)),
        (MachineRequest(memory_gib=100), MachineShare(1000, 100 * GIB)),
        (MachineRequest(instance_type="rack-3"), MachineShare(64_000, 512 * GIB, (("H100", 8),))),
    ],
)
def test_what_a_job_is_given_where_its_file_does_not_say(wanted: MachineRequest, share: MachineShare) -> None:
    assert share_of(machine(), wanted) == share


def test_one_slice_of_a_kind_takes_its_part_of_the_card_and_not_all() -> None:
    large, small = (replace(machine(gpus=1), accelerator=f"H100-{profile}") for profile in ("3g.40gb", "1g.10gb"))
    shares = [share_of(offer, MachineRequest(accelerator=offer.accelerator, count=1)) for offer in (large, small)]
    assert [(share.milli_cpus, share.mib) for share in shares] == [(24_000, 128 * GIB), (6_000, 32 * GIB)]
    many = replace(small, count=70)
    assert share_of(many, MachineRequest(accelerator="H100-1g.10gb", count=1)).milli_cpus == 685, "of ten cards"


def test_gpus_on_a_small_machine_get_a_fraction_of_a_cpu() -> None:
    assert share_of(machine(cpus=4), MachineRequest(accelerator="H100", count=1)).milli_cpus == 375


def test_a_placement_is_the_part_in_the_pool_of_the_whole() -> None:
    whole = machine(price="8")
    (placed,) = plan(whole, MachineRequest(accelerator="H100", count=2)).placements
    assert (placed.offer.machine, placed.gpus, placed.offer.cpus, placed.offer.memory_gib) == ("H100:2", 2, 12, 64)
    assert (placed.offer.pool, placed.offer.id) == (whole.pool, whole.id)
    assert (placed.offer.whole, placed.offer.capacity) == (whole.has, whole.capacity)
    assert placed.rate == Money.usd("2"), "a quarter of its GPUs, and less of the rest"


def test_the_assumed_time_to_save_leaves_time_for_work_to_a_job_that_saves_every_second() -> None:
    wanted = job(MachineRequest()).model_copy(update={"checkpoint": CheckpointPlan(every=timedelta(seconds=1))})
    conditions = Conditions(engines={"local": frozenset()})
    (placed,) = make_plan(wanted, [machine(gpus=0)], now=NOW, submitted_at=NOW, conditions=conditions).placements
    assert placed.useful_fraction > 0.9


def test_what_a_part_costs_follows_the_price_of_the_whole() -> None:
    (placed,) = plan(machine(price="8"), MachineRequest(accelerator="H100", count=2)).placements
    assert current_price(machine(price="12"), placed.offer) == Money.usd("3")
    assert current_price(machine(price="12"), machine(price="8")) == Money.usd("12")


def test_the_cpus_and_the_gpus_of_a_machine_are_one_capacity() -> None:
    assert machine().capacity == machine(gpus=0).capacity == "owned/local/rack-3"
    assert machine().pool != machine(gpus=0).pool


@pytest.mark.parametrize(
    ("wanted", "reason", "detail"),
    [
        (MachineRequest(cpus=65), Reason.TOO_FEW_CPUS, "has 64, needs 65"),
        (MachineRequest(memory_gib=513), Reason.TOO_LITTLE_MEMORY, "has 512 GiB, needs 513 GiB"),
        (MachineRequest(accelerator="H100", count=9), Reason.TOO_FEW_ACCELERATORS, "has H100:8, needs H100:9"),
    ],
)
def test_what_is_larger_than_the_machine_is_refused_with_the_figures(
    wanted: MachineRequest, reason: Reason, detail: str
) -> None:
    offer = machine() if wanted.accelerator else machine(gpus=0)
    (refused,) = plan(offer, wanted).rejections
    assert (refused.reason, refused.detail) == (reason, detail)


def test_several_nodes_get_one_part_that_holds_all_of_them() -> None:
    wanted = MachineRequest(accelerator="H100", count=2)
    (placed,) = plan(machine(price="8"), wanted, nodes=3).placements
    assert (placed.nodes, placed.gpus, placed.offer.cpus, placed.offer.memory_gib) == (1, 6, 36, 192)
    assert placed.rate == Money.usd("6"), "three quarters of its GPUs"
    assert placed.throughput == plan(machine(), wanted).placements[0].throughput


def test_more_nodes_than_fit_on_the_machine_are_refused_with_the_figures() -> None:
    (refused,) = plan(machine(cpus=4, memory=8, gpus=0), MachineRequest(cpus=3), nodes=2).rejections
    assert refused.reason is Reason.TOO_FEW_MACHINES
    assert refused.detail == "has 4 CPUs, 8 GiB; 2 nodes on one machine need 6 CPUs, 12 GiB"
    busy = replace(machine(cpus=4, memory=8, gpus=0), left=MachineShare(1000, 8 * GIB))
    (refused,) = plan(busy, MachineRequest(), nodes=2).rejections
    assert refused.detail == "1 CPU, 8 GiB free, needs 2 CPUs, 4 GiB"


def test_an_image_is_refused_by_its_name() -> None:
    wanted = MachineRequest(accelerator="H100", count=1, image="docker:nvcr.io/nvidia/pytorch:25.01-py3")
    (refused,) = plan(machine(), wanted).rejections
    assert refused.reason is Reason.ENGINE_CANNOT
    assert refused.detail.startswith("local cannot do: image docker:nvcr.io/nvidia/pytorch:25.01-py3 (container images")


def test_what_is_in_use_is_told() -> None:
    offer = machine(cpus=4, memory=8, gpus=0)
    busy = replace(offer, left=offer.has - MachineShare(3000, 2 * GIB))
    (refused,) = plan(busy, MachineRequest(cpus=2)).rejections
    assert refused.reason is Reason.TOO_FEW_MACHINES
    assert refused.detail == "1 CPU, 6 GiB free, needs 2 CPUs, 4 GiB"
    assert plan(busy, MachineRequest(cpus=1)).placements


def test_machines_that_are_elsewhere_are_had_whole() -> None:
    rented = replace(machine(), engine="slurm")
    assert not rented.divided
    assert offer_part(rented, MachineRequest(accelerator="H100", count=2)) is rented


def requests() -> st.SearchStrategy[MachineRequest]:
    plain = st.builds(
        MachineRequest,
        cpus=st.none() | st.floats(0.001, 70),
        memory_gib=st.none() | st.floats(0.001, 600),
        instance_type=st.sampled_from([None, None, None, "rack-3"]),
    )
    with_gpus = st.builds(
        lambda one, count: one.model_copy(update={"accelerator": "H100", "count": count, "instance_type": None}),
        plain, st.integers(1, 9),
    )  # fmt: skip
    return plain | with_gpus


@given(st.floats(0.1, 256), st.floats(0.1, 4096), st.integers(0, 16), st.lists(st.tuples(requests(), st.booleans())))
def test_what_is_given_never_exceeds_the_machine(
    cpus: float, memory: float, gpus: int, asked: list[tuple[MachineRequest, bool]]
) -> None:
    """Jobs come, and some go again, in any order and of any size."""
    offers = [machine(cpus, memory, gpus), machine(cpus, memory, 0)]
    running: list[MachineShare] = []
    for wanted, one_goes in asked:
        if one_goes and running:
            running.pop(0)
        for offer in offers:
            there = replace(offer, left=offer.has - total(running))
            found = plan(there, wanted).placements
            if found:
                assert not shortage(there, wanted)
                running.append(found[0].offer.has)
                break
    used = total(running)
    assert used.milli_cpus < cpus * 1000 + 0.6  # thousandths, rounded
    assert used.mib <= memory * GIB
    assert used.gpu_count <= gpus


shares = st.builds(
    MachineShare,
    st.integers(0, 10_000),
    st.integers(0, 10_000),
    st.dictionaries(st.sampled_from(["H100", "L4"]), st.integers(1, 8)).map(lambda found: tuple(sorted(found.items()))),
)


@given(shares, shares, shares)
def test_shares_add_up_exactly(a: MachineShare, b: MachineShare, c: MachineShare) -> None:
    assert (a + b) + c == a + (b + c)
    assert (a + b) - b == a
    assert a + b >= a
    assert (a < b) == (not a >= b)
    assert 0 <= a.part_of(b) <= 1
    assert a.at_most(b) == b.at_most(a)
    assert a.most(b) >= a
