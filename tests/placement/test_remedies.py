"""The first fix of each rejection, applied to the job file, takes the rejection away."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from broker.core.documents import print_document
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from broker.core.job.reasons import Reason
from broker.core.market.offers import CapacityType, Interconnect, MoneyKind, Offer
from broker.placement.feasibility import PreparedJob
from broker.placement.remedies import FIXES_ELSEWHERE, NEAREST_LAST, matching_otherwise, remedy
from tests.placement.conftest import ENGINE

Make = Any
FILE: dict[str, Any] = {"run": "python train.py", "resources": {"accelerators": "H100:8"}}
CPU_MACHINE = {"accelerator": None, "count": 0, "interconnect": None}


def job_of(data: dict[str, Any], make: Make) -> Job:
    return parse_job(print_document(data), file="job.yaml", now=make.now)


def applied(data: dict[str, Any], changes: Any) -> dict[str, Any]:
    changed = deepcopy(data)
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        place = changed.setdefault(section, {}) if section else changed
        place.pop(name, None)
        if value is not None:
            place[name] = value
    return {key: value for key, value in changed.items() if value != {}}


CASES: list[tuple[Reason, dict[str, Any], dict[str, Any], str]] = [
    (Reason.WRONG_ACCELERATOR, {"accelerator": "A100-80GB"}, {}, "`accelerators: [H100:8, A100-80GB:8]`"),
    (Reason.WRONG_ACCELERATOR, CPU_MACHINE, {}, "remove `accelerators:` from `resources:`"),
    (Reason.TOO_FEW_ACCELERATORS, {"count": 4}, {}, "`accelerators: H100:4` under `resources:`; no machine has more"),
    (Reason.TOO_FEW_ACCELERATORS, {}, {"resources.accelerators": "H100:16"}, "with `num_nodes: 2`"),
    (Reason.TOO_MANY_ACCELERATORS, {"accelerator": "V100"}, {"resources.accelerators": "V100:1"},
     "`accelerators: V100:1+`"),
    (Reason.NOT_A_CPU_OFFER, {}, {"resources": {"cpus": 4}}, "`accelerators: H100:8` under `resources:`"),
    (Reason.TOO_FEW_CPUS, {"cpus": 96.0}, {"resources.cpus": 128}, "`cpus: 96`"),
    (Reason.TOO_FEW_CPUS, {"cpus": None}, {"resources.cpus": 128}, "remove `cpus:`"),
    (Reason.TOO_LITTLE_MEMORY, {"memory_gib": 512.0}, {"resources.memory": 1024}, "`memory: 512`"),
    (Reason.TOO_FEW_CPUS, {"cpus": 32.0, "memory_gib": 256.0}, {"resources.cpus": 64, "resources.memory": 900},
     "`cpus: 32` under `resources:`, `memory: 256` under `resources:`"),
    (Reason.TOO_LITTLE_MEMORY, {"memory_gib": 768.0, "engine": None}, {"resources.memory": 900}, "remove `memory:`"),
    (Reason.TOO_MANY_ACCELERATORS, {"accelerator": "V100"},
     {"resources.accelerators": ["T4:1", "L4:1", "A10:1", "V100:1"]},
     "`accelerators: [V100:1+, T4:1+, L4:1+]`"),
    (Reason.WRONG_CAPACITY_TYPE, {"capacity_type": CapacityType.SPOT}, {}, "on_demand, spot]` under `resources:`"),
    (Reason.WRONG_CAPACITY_TYPE, {}, {"resources.use_spot": True}, "no spot price of such a machine is known"),
    (Reason.WRONG_CAPACITY_TYPE, {}, {"constraints": {"capacity_types": ["spot"]}},
     "`capacity_types: [spot, on_demand]`"),
    (Reason.WRONG_PROVIDER, {}, {"constraints": {"providers": ["gcp"]}},
     "`providers: [gcp, aws]` under `constraints:`"),
    (Reason.WRONG_PROVIDER, {}, {"resources.infra": "gcp"}, "remove `infra:` from `resources:`"),
    (Reason.WRONG_REGION, {}, {"constraints": {"regions": ["eu-*"]}}, "`regions: [eu-*, us-east-1]`"),
    (Reason.WRONG_REGION, {}, {"resources.infra": "aws/us-west-2"}, "such as us-east-1"),
    (Reason.WRONG_INSTANCE_TYPE, {}, {"resources.instance_type": "p4d.24xlarge"}, "`instance_type: p5.48xlarge`"),
    (Reason.INTERCONNECT_TOO_WEAK, {"interconnect": Interconnect.PCIE}, {"constraints": {"interconnect": "nvlink"}},
     "`interconnect: pcie`"),
    (Reason.INTERCONNECT_TOO_WEAK, {"interconnect": None}, {"constraints": {"interconnect": "nvlink"}},
     "remove `interconnect:`"),
    (Reason.TOO_FEW_MACHINES, {"slots": 3}, {"num_nodes": 4}, "`num_nodes: 3`"),
    (Reason.ENGINE_CANNOT, {}, {"setup": "pip install x"}, "remove `setup:`"),
    (Reason.ENGINE_CANNOT, {}, {"resources.image_id": "docker:x"}, "remove `image_id:` from `resources:`"),
    (Reason.SANDBOX_NOT_ASKED_FOR, {"money": MoneyKind.SANDBOX}, {}, "`providers: [sandbox]`"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "offer", "more", "says"), CASES)
def test_the_first_fix_takes_the_rejection_away(
    make: Make, reason: Reason, offer: dict[str, Any], more: dict[str, Any], says: str
) -> None:
    data, engines = applied(FILE, more), {ENGINE: frozenset({"several_nodes"})}
    offered: Offer = make.offer(**offer)
    if reason is Reason.SANDBOX_NOT_ASKED_FOR:
        offered = replace(offered, provider="sandbox")
    refused = make.plan([offered], job_of(data, make))
    assert refused.reasons() == {reason}
    fix = remedy(reason, job_of(data, make), [offered], engines)
    assert says in str(fix)
    assert fix.changes
    assert reason not in make.plan([offered], job_of(applied(data, fix.changes), make)).reasons()


@pytest.mark.parametrize(
    ("reason", "key", "small", "large"),
    [
        (Reason.TOO_FEW_CPUS, "cpus", {"cpus": 96.0}, {"cpus": 128.0}),
        (Reason.TOO_LITTLE_MEMORY, "memory", {"memory_gib": 512.0}, {"memory_gib": 1024.0}),
    ],
)
def test_the_fix_of_an_amount_fits_a_machine_on_which_the_job_can_start(
    make: Make, reason: Reason, key: str, small: dict[str, Any], large: dict[str, Any]
) -> None:
    """Not the largest of all: no engine may run jobs on that one."""
    offers = [make.offer(**large, engine=None), make.offer(**small)]
    data = applied(FILE, {f"resources.{key}": 2048})
    prepared = PreparedJob.of(job_of(data, make), make.conditions, make.now)
    fitting = matching_otherwise(reason, prepared, offers)
    fix = remedy(reason, job_of(data, make), fitting, {})
    assert fix.changes == {f"resources.{key}": f"{next(iter(small.values())):g}"}
    assert make.plan(offers, job_of(applied(data, fix.changes), make)).placements


def test_every_reason_has_a_fix_without_offers_too(make: Make) -> None:
    assert set(NEAREST_LAST) == set(Reason)
    for reason in Reason:
        assert str(remedy(reason, make.job(), [], {}))
    assert set(FIXES_ELSEWHERE) < set(Reason)


def test_offers_that_only_their_capacity_type_excludes_are_found(make: Make) -> None:
    """Where no spot price is known, smaller spot machines are not what is wrong."""
    job = job_of(applied(FILE, {"resources.use_spot": True}), make)
    fits, small = make.offer(), make.offer(count=1)
    prepared = PreparedJob.of(job, make.conditions, make.now)
    assert matching_otherwise(Reason.WRONG_CAPACITY_TYPE, prepared, [fits, small]) == [fits]
    assert matching_otherwise(Reason.TOO_FEW_ACCELERATORS, prepared, [small]) == []
