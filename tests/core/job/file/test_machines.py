"""``resources`` in every form that SkyPilot knows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.file import parse_job, print_job
from broker.core.job.jobs import Job, MachineRequest
from broker.core.market.offers import CapacityType

NOW = datetime(2026, 11, 21, tzinfo=UTC)
H100 = MachineRequest(accelerator="H100", count=8)
A100 = MachineRequest(accelerator="A100", count=8)


def job(resources: str) -> Job:
    read = parse_job(f"name: x\nrun: true-ish\nresources: {resources}\n", file="x.yaml", now=NOW)
    assert parse_job(print_job(read), file="y.yaml", now=NOW) == read
    return read


def problem(resources: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        job(resources)
    (only,) = caught.value.problems
    assert only.line >= 3
    return f"{only.key}: {only.message}"


@pytest.mark.parametrize(
    ("resources", "requests", "ordered"),
    [
        ("{accelerators: H100:8}", (H100,), False),
        ("{accelerators: 'h100 : 8'}", (H100,), False),
        ("{gpus: H100:8}", (H100,), False),
        ("{accelerators: {H100: 8}}", (H100,), False),
        ("{accelerators: {H100: 8.0}}", (H100,), False),
        ("{accelerators: {H100:8, A100:8}}", (H100, A100), False),
        ("{accelerators: {H100:8: null, A100: 8}}", (H100, A100), False),
        ("{accelerators: [H100:8]}", (H100,), False),
        ("{accelerators: [H100:8, A100:8]}", (H100, A100), True),
        ("{accelerators: [H100:8, A100:8, H100:8]}", (H100, A100), True),
        ("{accelerators: H100}", (MachineRequest(accelerator="H100", count=1),), False),
        ("{any_of: [{accelerators: H100:8}, {accelerators: A100:8}]}", (H100, A100), False),
        ("{ordered: [{accelerators: H100:8}, {accelerators: A100:8}]}", (H100, A100), True),
        ("{ordered: [{accelerators: H100:8}]}", (H100,), True),
        ("{cpus: 4+, memory: 16GB}", (MachineRequest(cpus=4, memory_gib=16),), False),
        ("{}", (MachineRequest(),), False),
        ("", (MachineRequest(),), False),
        ("{any_of: [{}, {cpus: 8}]}", (MachineRequest(), MachineRequest(cpus=8)), False),
        ("{use_spot: true}", (MachineRequest(capacity_types=(CapacityType.SPOT,)),), False),
        ("{use_spot: yes}", (MachineRequest(capacity_types=(CapacityType.SPOT,)),), False),
        (
            "{use_spot: false}",
            (
                MachineRequest(
                    capacity_types=(CapacityType.OWNED, CapacityType.RESERVED, CapacityType.ON_DEMAND)
                ),
            ),
            False,
        ),
        ("{capacity_types: [owned]}", (MachineRequest(capacity_types=(CapacityType.OWNED,)),), False),
        ("{infra: AWS/us-east-1}", (MachineRequest(infra="aws/us-east-1"),), False),
        ("{infra: k8s/arn:aws:eks/cluster/me}", (MachineRequest(infra="kubernetes/arn:aws:eks/cluster/me"),), False),
        ("{infra: '*'}", (MachineRequest(),), False),
        ("{cloud: GCP}", (MachineRequest(infra="gcp"),), False),
        ("{cloud: aws, region: us-east-1, zone: 1a}", (MachineRequest(infra="aws/us-east-1/1a"),), False),
        ("{region: us-east-1}", (MachineRequest(infra="*/us-east-1"),), False),
        ("{zone: us-east-1a}", (MachineRequest(infra="*/*/us-east-1a"),), False),
        ("{instance_type: p5.48xlarge}", (MachineRequest(instance_type="p5.48xlarge"),), False),
        ("{disk_size: 100}", (MachineRequest(disk_gib=100),), False),
        ("{disk_size: 512MB}", (MachineRequest(disk_gib=0.5),), False),
        ("{image_id: 'docker:pytorch/pytorch'}", (MachineRequest(image="docker:pytorch/pytorch"),), False),
    ],
)  # fmt: skip
def test_forms(resources: str, requests: tuple[MachineRequest, ...], ordered: bool) -> None:
    read = job(resources)
    assert (read.resources, read.ordered) == (requests, ordered)


def test_entries_take_what_stands_beside_the_list_and_override_it() -> None:
    read = job("{cpus: 8, use_spot: true, any_of: [{accelerators: H100:8}, {cpus: 16, use_spot: false}]}")
    assert [(request.accelerator, request.cpus, request.capacity_types[0]) for request in read.resources] == [
        ("H100", 8, CapacityType.SPOT),
        (None, 16, CapacityType.OWNED),
    ]


def test_several_accelerators_are_combined_with_each_entry_of_any_of() -> None:
    read = job("{accelerators: {H100:8, A100:8}, any_of: [{infra: aws}, {infra: gcp}]}")
    assert [(request.accelerator, request.infra) for request in read.resources] == [
        ("H100", "aws"), ("A100", "aws"), ("H100", "gcp"), ("A100", "gcp"),
    ]  # fmt: skip


def test_a_machine_image_is_a_need_that_an_engine_must_be_able_to_meet() -> None:
    assert "image" in job("{image_id: 'docker:x'}").needs
    assert "image" not in job("{cpus: 1}").needs


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("{accelerators: H10O:8}", "resources.accelerators: unknown accelerator 'H10O'; did you mean 'H100'?"),
        ("{accelerators: {H100: 8, A10000: 1}}", "resources.accelerators.A10000: unknown accelerator 'A10000'"),
        ("{accelerators: [H100, Q1:2]}", "resources.accelerators[1]: unknown accelerator 'Q1'"),
        ("{accelerators: H100:0}", "resources.accelerators: 0 accelerators per machine"),
        ("{accelerators: {H100: -1}}", "resources.accelerators.H100: expected a whole number of accelerators"),
        ("{accelerators: {H100: 0.5}}", "resources.accelerators.H100: expected a whole number of accelerators"),
        ("{accelerators: {H100:8: 8}}", "resources.accelerators.H100:8: names its number twice"),
        ("{accelerators: 8}", "resources.accelerators: expected an accelerator"),
        ("{accelerators: []}", "resources.accelerators: is empty"),
        ("{accelerators: H100, gpus: H100}", "resources.gpus: repeats `accelerators`"),
        ("{use_spot: true, capacity_types: [spot]}", "resources.use_spot: repeats `capacity_types`"),
        ("{infra: aws, region: us-east-1}", "resources.infra: repeats `cloud`, `region` and `zone`"),
        ("{cloud: aws, any_of: [{cpus: 4}, {infra: gcp}]}", "resources.any_of[1]: `infra` does not go with"),
        ("{infra: aws/x/y/z}", "resources.infra: expected provider[/region[/zone]], such as aws/us-east-1"),
        ("{infra: 'a b'}", "resources.infra: expected provider[/region[/zone]]"),
        ("{any_of: [{}], ordered: [{}]}", "resources.ordered: give either `any_of` or `ordered`, not both"),
        ("{any_of: []}", "resources.any_of: is an empty list"),
        ("{any_of: [{any_of: []}]}", "resources.any_of[0].any_of: unknown key"),
        (
            "{accelerators: [H100, A100], any_of: [{cpus: 4}]}",
            "resources.accelerators: several accelerators in an order",
        ),
        (
            "{ordered: [{accelerators: {H100:8, A100:8}}]}",
            "resources.ordered[0].accelerators: several accelerators in an",
        ),
        ("{cpus: -4}", "resources.cpus: must not be negative; expected a number of CPUs"),
        ("{memory: lots}", "resources.memory: expected memory in GiB, such as 64, 64+ (at least) or 64GB; got 'lots'"),
        ("{use_spot: perhaps}", "resources.use_spot: expected true or false; got 'perhaps'"),
        (
            "{capacity_types: [on-demand]}",
            "resources.capacity_types[0]: expected one of owned, reserved, on_demand, spot",
        ),
        ("{capacity_types: }", "resources.capacity_types: has no value"),
        ("{image_id: {us-east-1: ami-1}}", "resources.image_id: expected text; got a mapping"),
        ("{acelerators: H100}", "resources.acelerators: unknown key; did you mean 'accelerators'?"),
        ("[H100]", "resources: expected lines of the form 'key: value'; got a list"),
    ],
)
def test_mistakes(resources: str, expected: str) -> None:
    assert problem(resources).startswith(expected)
