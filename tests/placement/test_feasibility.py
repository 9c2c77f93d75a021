"""Every reason strikes when it should, in the documented order, and says what was missing."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.jobs import Constraints, Job, MachineRequest, Model
from broker.core.job.reasons import Reason
from broker.core.market.offers import Availability, CapacityType, Interconnect, MoneyKind
from broker.core.values.money import Money
from broker.placement.feasibility import PreparedJob, fit, rejection_of, request_served

Make = Any
H100 = MachineRequest(accelerator="H100", count=8)
CPU = MachineRequest(cpus=8, memory_gib=32)
A_CPU_MACHINE = {"accelerator": None, "count": 0, "instance_type": "c7i.4xlarge", "cpus": 16.0, "memory_gib": 32.0}

# (what is odd about the offer, what is odd about the job, the reason, a part of its detail)
CASES: list[tuple[dict[str, Any], dict[str, Any], Reason, str]] = [
    ({"money": MoneyKind.SANDBOX}, {}, Reason.SANDBOX_NOT_ASKED_FOR, ""),
    ({}, {"constraints": Constraints(providers=("gcp", "lambda*"))}, Reason.WRONG_PROVIDER, "aws"),
    ({}, {"constraints": Constraints(regions=("eu-*",))}, Reason.WRONG_REGION, "eu-*"),
    ({}, {"constraints": Constraints(capacity_types=(CapacityType.SPOT,))}, Reason.WRONG_CAPACITY_TYPE, "spot"),
    ({}, {"resources": (H100.model_copy(update={"infra": "gcp"}),)}, Reason.WRONG_PROVIDER, "gcp"),
    ({}, {"resources": (H100.model_copy(update={"infra": "aws/us-west-2"}),)}, Reason.WRONG_REGION, "aws/us-west-2"),
    ({}, {"resources": (H100.model_copy(update={"infra": "*/*/us-east-1b"}),)}, Reason.WRONG_REGION, "us-east-1a"),
    (
        {"zone": None},
        {"resources": (H100.model_copy(update={"infra": "aws/us-east-1/us-east-1a"}),)},
        Reason.WRONG_REGION,
        "not known",
    ),
    (
        {},
        {"resources": (H100.model_copy(update={"capacity_types": (CapacityType.SPOT,)}),)},
        Reason.WRONG_CAPACITY_TYPE,
        "on_demand",
    ),
    ({"accelerator": "A100"}, {}, Reason.WRONG_ACCELERATOR, "has A100:8, needs H100:8"),
    (A_CPU_MACHINE, {}, Reason.WRONG_ACCELERATOR, "has cpu"),
    ({"count": 4}, {}, Reason.TOO_FEW_ACCELERATORS, "has H100:4, needs H100:8"),
    ({"count": 16}, {}, Reason.TOO_MANY_ACCELERATORS, "has H100:16, needs H100:8"),
    ({}, {"resources": (CPU,)}, Reason.NOT_A_CPU_OFFER, "H100:8"),
    (
        {},
        {"resources": (H100.model_copy(update={"instance_type": "a3-*"}),)},
        Reason.WRONG_INSTANCE_TYPE,
        "p5.48xlarge",
    ),
    ({"cpus": 4.0}, {"resources": (H100.model_copy(update={"cpus": 96.0}),)}, Reason.TOO_FEW_CPUS, "has 4, needs 96"),
    ({"cpus": None}, {"resources": (H100.model_copy(update={"cpus": 1.0}),)}, Reason.TOO_FEW_CPUS, "unknown"),
    ({}, {"resources": (H100.model_copy(update={"memory_gib": 4096.0}),)}, Reason.TOO_LITTLE_MEMORY, "4096 GiB"),
    (
        {"interconnect": Interconnect.PCIE},
        {"constraints": Constraints(interconnect=Interconnect.NVLINK)},
        Reason.INTERCONNECT_TOO_WEAK,
        "has pcie, needs nvlink",
    ),
    (
        {"interconnect": None},
        {"constraints": Constraints(interconnect=Interconnect.PCIE)},
        Reason.INTERCONNECT_TOO_WEAK,
        "not known",
    ),
    (
        {"availability": Availability.UNAVAILABLE, "unavailable_because": "InsufficientInstanceCapacity"},
        {},
        Reason.UNAVAILABLE,
        "InsufficientInstanceCapacity",
    ),
    ({"availability": Availability.NO_QUOTA, "unavailable_because": "0 of 8"}, {}, Reason.NO_QUOTA, "0 of 8"),
    ({"slots": 0}, {}, Reason.TOO_FEW_MACHINES, "has 0, needs 1"),
    ({"slots": 3}, {"num_nodes": 4}, Reason.TOO_FEW_MACHINES, "has 3, needs 4"),
    ({"price": None}, {}, Reason.NO_PRICE, "not known"),
    ({"price": "0"}, {}, Reason.NO_PRICE, "is not a possible price"),
    ({"price": "-1"}, {}, Reason.NO_PRICE, "is not a possible price"),
    ({"max_age": timedelta(minutes=4)}, {}, Reason.STALE_PRICE, "5 min old; the limit is 4 min"),
    ({"engine": None}, {}, Reason.NO_ENGINE, "aws"),
    ({"engine": None, "term_months": 12}, {}, Reason.NEEDS_COMMITMENT, "12 months"),
    ({"engine": "skypilot"}, {}, Reason.ENGINE_NOT_INSTALLED, "'skypilot' is not installed"),
    ({}, {"setup": "pip install x", "secrets": ("TOKEN",)}, Reason.ENGINE_CANNOT, "secrets, setup"),
]


@pytest.mark.parametrize(
    ("offer_is", "job_is", "reason", "detail"), CASES, ids=lambda value: getattr(value, "value", "")
)
def test_each_reason(make: Make, offer_is: dict[str, Any], job_is: dict[str, Any], reason: Reason, detail: str) -> None:
    offer = make.offer(**offer_is)
    found = rejection_of(offer, PreparedJob.of(make.job(**job_is), make.conditions, make.now))
    assert found is not None
    assert (found.offer_id, found.reason) == (offer.id, reason)
    assert detail in found.detail


def test_machines_elsewhere_need_run_folders_in_reach(make: Make) -> None:
    conditions = replace(make.conditions, out_of_reach=frozenset({make.offer().engine or ""}))
    found = rejection_of(make.offer(), PreparedJob.of(make.job(), conditions, make.now))
    assert found is not None
    assert found.reason is Reason.RUNS_OUT_OF_REACH
    assert "GPUBROKER_RUNS" in found.detail


def test_the_first_check_in_the_documented_order_names_the_reason(make: Make) -> None:
    """An offer wrong in every way is mended step by step; the reasons come in order."""
    job = make.job(
        setup="make",
        num_nodes=2,
        resources=(MachineRequest(accelerator="H100", count=8, infra="aws/us-east-1", cpus=64, memory_gib=512),),
        constraints=Constraints(
            providers=("aws",), regions=("us-*",), capacity_types=(CapacityType.SPOT,), interconnect=Interconnect.NVLINK
        ),
    )
    offer = make.offer(
        None, money=MoneyKind.SANDBOX, provider="gcp", region="eu-1", accelerator="A100", count=4, cpus=1.0,
        memory_gib=1.0, interconnect=Interconnect.PCIE, availability=Availability.UNAVAILABLE, slots=1,
        max_age=timedelta(0), engine=None,
    )  # fmt: skip
    pool_failed = replace(offer, provider="aws", region="us-east-1", accelerator="H100", count=8).pool.replace(
        "on_demand", "spot"
    )
    mending: list[tuple[Reason, dict[str, Any]]] = [
        (Reason.SANDBOX_NOT_ASKED_FOR, {"money": MoneyKind.CASH}),
        (Reason.WRONG_PROVIDER, {"provider": "aws"}),
        (Reason.WRONG_REGION, {"region": "us-west-1"}),
        (Reason.WRONG_CAPACITY_TYPE, {"capacity_type": CapacityType.SPOT}),
        (Reason.WRONG_REGION, {"region": "us-east-1"}),
        (Reason.WRONG_ACCELERATOR, {"accelerator": "H100"}),
        (Reason.TOO_FEW_ACCELERATORS, {"count": 8}),
        (Reason.TOO_FEW_CPUS, {"cpus": 64.0}),
        (Reason.TOO_LITTLE_MEMORY, {"memory_gib": 512.0}),
        (Reason.INTERCONNECT_TOO_WEAK, {"interconnect": Interconnect.NVLINK}),
        (Reason.UNAVAILABLE, {"availability": Availability.UNKNOWN}),
        (Reason.TOO_FEW_MACHINES, {"slots": 2}),
        (Reason.LAUNCH_FAILED_LATELY, {"zone": "us-east-1z"}),
        (Reason.NO_PRICE, {"price": Money(1)}),
        (Reason.STALE_PRICE, {"max_age": None}),
        (Reason.NO_ENGINE, {"engine": "cloud"}),
        (Reason.ENGINE_CANNOT, {}),
    ]
    request = PreparedJob.of(job, make.conditions, make.now, {pool_failed: (Reason.LAUNCH_FAILED_LATELY, "sold out")})
    for reason, mended in mending:
        found = rejection_of(offer, request)
        assert found is not None
        assert found.reason is reason
        offer = replace(offer, **mended)


def test_patterns_match_whole_names_whatever_their_case(make: Make) -> None:
    def serves(**limits: Any) -> bool:
        job = make.job(constraints=Constraints(**limits))
        return rejection_of(make.offer(), PreparedJob.of(job, make.conditions, make.now)) is None

    assert serves(regions=("us-*",))
    assert serves(regions=("eu-*", "US-EAST-[12]"))
    assert serves(providers=("*",))
    assert not serves(regions=("us",))
    assert not serves(regions=("east-1",))


class TestSeveralMachines:
    A100 = MachineRequest(accelerator="A100", count=8)

    def request(self, make: Make, *machines: MachineRequest, ordered: bool = False) -> PreparedJob:
        return PreparedJob.of(make.job(resources=machines, ordered=ordered), make.conditions, make.now)

    def test_any_of_them_will_do(self, make: Make) -> None:
        request = self.request(make, self.A100, H100)
        assert fit(make.offer(), request) == 1
        assert fit(make.offer(accelerator="A100"), request) == 0

    def test_the_one_that_came_furthest_gives_the_reason(self, make: Make) -> None:
        request = self.request(make, H100.model_copy(update={"cpus": 500.0}), self.A100)
        found = rejection_of(make.offer(), request)
        assert found is not None
        assert found.reason is Reason.TOO_FEW_CPUS

    def test_unordered_takes_the_one_that_uses_most_of_the_machine(self, make: Make) -> None:
        one = MachineRequest(accelerator="H100", count=1, at_least=True)
        assert fit(make.offer(), self.request(make, one, H100)) == 1
        assert fit(make.offer(), self.request(make, one, H100, ordered=True)) == 0


def test_more_accelerators_than_asked_only_where_the_job_says_so_or_nothing_is_rented(make: Make) -> None:
    def found(at_least: bool, **offer: Any) -> Reason | None:
        wanted = MachineRequest(accelerator="H100", count=2, at_least=at_least)
        request = PreparedJob.of(make.job(resources=(wanted,)), make.conditions, make.now)
        rejection = rejection_of(make.offer(**offer), request)
        return rejection.reason if rejection else None

    assert found(False) is Reason.TOO_MANY_ACCELERATORS
    assert found(True) is None
    assert found(False, capacity_type=CapacityType.OWNED) is None
    assert found(False, capacity_type=CapacityType.RESERVED, money=MoneyKind.AMORTISED) is None


def test_an_instance_type_says_which_accelerators_it_has(make: Make) -> None:
    job = make.job(resources=(MachineRequest(instance_type="p5.48xlarge"),))
    placement = make.plan([make.offer()], job).placements[0]
    assert (placement.offer.machine, placement.gpus) == ("H100:8", 8)


def test_the_request_served_is_the_one_that_matched_not_the_first_of_that_accelerator(make: Make) -> None:
    other = H100.model_copy(update={"infra": "gcp", "image": "docker:other"})
    job = make.job(resources=(other, H100.model_copy(update={"infra": "aws", "image": "docker:mine"})))
    served = request_served(make.offer(), job)
    assert served is not None
    assert served.image == "docker:mine"
    assert request_served(make.offer(provider="azure"), job) is None


def test_one_accelerator_needs_no_interconnect(make: Make) -> None:
    job = make.job(
        resources=(MachineRequest(accelerator="H100", count=1),),
        constraints=Constraints(interconnect=Interconnect.NVLINK),
    )
    request = PreparedJob.of(job, make.conditions, make.now)
    assert rejection_of(make.offer(count=1, interconnect=None), request) is None


def test_cpu_jobs_use_gpu_machines_only_where_the_policy_lets_them(make: Make) -> None:
    job = make.job(resources=(CPU,))
    cpu, gpu = make.offer(**A_CPU_MACHINE), make.offer()
    strict = PreparedJob.of(job, make.conditions, make.now)
    assert rejection_of(cpu, strict) is None
    assert rejection_of(gpu, strict) is not None
    assert rejection_of(gpu, PreparedJob.of(job, replace(make.conditions, cpu_jobs_on_gpus=True), make.now)) is None


def test_a_job_without_resources_is_a_cpu_job(make: Make) -> None:
    job = Job(name="plain", run="echo")
    assert rejection_of(make.offer(**A_CPU_MACHINE), PreparedJob.of(job, make.conditions, make.now)) is None


def test_sandbox_is_let_in_by_name_or_in_its_own_store(make: Make) -> None:
    offer = make.offer(provider="sandbox", money=MoneyKind.SANDBOX)
    by_name = make.job(constraints=Constraints(providers=("sandbox",)))
    by_pattern = make.job(constraints=Constraints(providers=("*",)))
    assert rejection_of(offer, PreparedJob.of(by_name, make.conditions, make.now)) is None
    assert rejection_of(offer, PreparedJob.of(make.job(), replace(make.conditions, sandbox=True), make.now)) is None
    found = rejection_of(offer, PreparedJob.of(by_pattern, make.conditions, make.now))
    assert found is not None
    assert found.reason is Reason.SANDBOX_NOT_ASKED_FOR


def test_stale_prices_pass_where_the_policy_lets_them_and_reference_prices_have_no_age(make: Make) -> None:
    old = make.offer(as_of=make.now - timedelta(days=3))
    assert (
        rejection_of(old, PreparedJob.of(make.job(), replace(make.conditions, allow_stale_prices=True), make.now))
        is None
    )
    assert rejection_of(replace(old, reference=True), PreparedJob.of(make.job(), make.conditions, make.now)) is None


def test_owned_and_prepaid_capacity_may_be_free(make: Make) -> None:
    request = PreparedJob.of(make.job(), make.conditions, make.now)
    assert rejection_of(make.offer("0", capacity_type=CapacityType.OWNED), request) is None
    prepaid = make.offer("0", capacity_type=CapacityType.RESERVED, money=MoneyKind.AMORTISED)
    assert rejection_of(prepaid, request) is None


def test_a_model_must_be_sized_first(make: Make) -> None:
    job = Job(name="big", run="train", model=Model(parameters=7e9))
    with pytest.raises(InvalidInput, match="no machines"):
        PreparedJob.of(job, make.conditions, make.now)
