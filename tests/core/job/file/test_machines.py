"""``resources`` in every form that SkyPilot knows."""

from datetime import UTC, datetime

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.file import parse_job, print_job
from broker.core.job.jobs import DiskTier, Job, MachineRequest, NetworkTier
from broker.core.market.offers import CapacityType

NOW = datetime(2026, 11, 21, tzinfo=UTC)
H100 = MachineRequest(accelerator="H100", count=8)
A100 = MachineRequest(accelerator="A100", count=8)


def job(resources: str) -> Job:
    text = f"name: x\nrun: true-ish\nresources: {resources}\ncheckpoint: {{every: 1h}}\n"
    read = parse_job(text, file="x.yaml", now=NOW)
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
        ("{accelerators: H100:4+}", (MachineRequest(accelerator="H100", count=4, at_least=True),), False),
        ("{accelerators: 'aws:8GB:4'}", (MachineRequest(accelerator="Inferentia", count=4),), False),
        ("{accelerators: {'intel:96GB+': 8}}", (
            MachineRequest(accelerator="Gaudi2", count=8), MachineRequest(accelerator="Gaudi3", count=8)), False),
        ("{accelerators: [MI300:8]}", (MachineRequest(accelerator="MI300X", count=8),), False),
        ("{accelerators: tpu-v2-8}", (MachineRequest(accelerator="tpu-v2-8", count=1),), False),
        ("{ports: 8888}", (MachineRequest(ports=("8888",)),), False),
        ("{ports: [80, 8000-8010, '80']}", (MachineRequest(ports=("80", "8000-8010")),), False),
        ("{disk_tier: Best}", (MachineRequest(disk_tier=DiskTier.BEST),), False),
        ("{network_tier: best}", (MachineRequest(network_tier=NetworkTier.BEST),), False),
        ("{labels: {b: x, a: y}}", (MachineRequest(labels=(("a", "y"), ("b", "x"))),), False),
        ("{autostop: {idle_minutes: 10, down: true}}", (MachineRequest(),), False),
        ("{job_recovery: {strategy: null}}", (MachineRequest(),), False),
        ("{accelerators: tpu-v3-8, accelerator_args: {runtime_version: x}}", (
            MachineRequest(accelerator="tpu-v3-8", count=1),), False),
        ("{infra: aws, image_id: {us-east-1: ami-1, us-west-2: ami-2}}", (
            MachineRequest(infra="aws/us-east-1", image="ami-1"), MachineRequest(infra="aws/us-west-2", image="ami-2"),
        ), False),
        ("{image_id: {us-east-1: ami-1, us-west-2: ami-2}, region: us-west-2}", (
            MachineRequest(infra="*/us-west-2", image="ami-2"),), False),
        ("{disk_size: 100}", (MachineRequest(disk_gib=100),), False),
        ("{disk_size: 512MB}", (MachineRequest(disk_gib=0.5),), False),
        ("{image_id: 'docker:pytorch/pytorch'}", (MachineRequest(image="docker:pytorch/pytorch"),), False),
    ],
)  # fmt: skip
def test_forms(resources: str, requests: tuple[MachineRequest, ...], ordered: bool) -> None:
    read = job(resources)
    assert (read.resources, read.ordered) == (requests, ordered)


@pytest.mark.parametrize(
    ("accelerators", "names"),
    [
        ("L4:0.25", ["L4-1of4", "L4-1of3", "L4-1of2"]),
        ("{T4: .5}", ["T4-1of2"]),
        ("A10:0.334", ["A10-1of2"]),
        ("A10:0.167", [f"A10-1of{parts}" for parts in (6, 5, 4, 3, 2)]),  # SkyPilot's sixth
        ("A100-80GB:0.5", ["A100-80GB-3g.40gb", "A100-80GB-4g.40gb", "A100-80GB-1of2"]),
        ("H100-80GB-1g.10gb", ["H100-1g.10gb"]),
        ("{H100-1g.10gb: 1}", ["H100-1g.10gb"]),
        ("nvidia.com/mig-1g.6gb", ["A30-1g.6gb"]),
        ("1g.24gb:1", ["H100-NVL-1g.24gb", "GH200-1g.24gb", "RTXPRO6000-1g.24gb", "RTXPRO6000-WK-1g.24gb"]),
        ("'L4:0.5', sharing: soft", ["L4-1of2", "L4-1of2-shared"]),
        ("H100-1of4-shared, sharing: soft", ["H100-1of4-shared"]),
    ],
)
def test_a_part_of_a_card_is_every_part_that_is_large_enough(accelerators: str, names: list[str]) -> None:
    read = job(f"{{accelerators: {accelerators}}}")
    assert [(request.accelerator, request.count) for request in read.resources] == [(name, 1) for name in names]
    assert parse_job(print_job(read), file="job.yaml", now=NOW) == read


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ("accelerators: 'L4:0'", "0 accelerators: write `L4:1`"),
        ("accelerators: 'L4:1.5'", "1.5 cards cannot be requested: write `L4:1` for a whole card"),
        ("accelerators: 'A100-80GB:0.999'", "write `A100-80GB:1` for a whole card"),
        (
            "accelerators: 'T4:0.6'",
            "(`gpubroker offers --gpu T4` lists their prices), or a share from 0.016 to 0.5",
        ),
        ("accelerators: 'T4:0.0001'", "write `T4:1` for a whole card"),
        ("accelerators: 'H100:0.33'", "cut into 0.125, 0.25, 0.5: write `H100:1` for a whole card"),
        ("accelerators: 'H100:0.33'", "or `H100-3g.40gb:1` for the next larger slice"),
        ("accelerators: 'H100-1g.5gb'", "H100 has no MIG profile 1g.5gb: write `H100-1g.10gb:1`"),
        ("accelerators: 'T4-1g.5gb'", "T4 has no MIG profile 1g.5gb: write `T4:1` for a whole card"),
        ("accelerators: 'H100-1g.10gb:2'", "a program sees one MIG slice: write `H100-1g.10gb:1` and `num_nodes: 2`"),
        ("accelerators: 'H100-1g.10gb:2+'", "a program sees one MIG slice: write `H100-1g.10gb:1` and `num_nodes: 2`"),
        ("accelerators: 'tpu-v5p-8:0.5'", "tpu-v5p-8 is never cut: write `tpu-v5p-8:1` for a whole card"),
        ("accelerators: 'tpu-v5p-8-1of2'", "unknown accelerator 'tpu-v5p-8-1of2'; did you mean 'tpu-v5p'?"),
        ("accelerators: H100-1of4-shared", "add `sharing: soft`"),
        ("accelerators: 'L4-1of4:0.5'", "is a part of a card already: write `L4-1of4:1`, or `L4:1`"),
        ("accelerators: 'H100:8', sharing: soft", "`H100` is a whole one: write its share, such as `H100:0.25`"),
        ("sharing: soft", "write a share, such as `accelerators: L4:0.25`"),
        (
            "accelerators: 'L4:0.5', sharing: soft, infra: aws/us-east-1",
            "not on aws: delete the line for parts that hardware cuts, or write `accelerators: L4:1` for a whole card",
        ),
        ("accelerators: 'L4:0.5', sharing: hard", "sharing"),
    ],
)
def test_a_part_that_there_cannot_be_is_refused_with_the_line_to_write(resources: str, told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        job(f"{{{resources}}}")
    assert told in str(refused.value.problems)


def test_entries_take_what_stands_beside_the_list_and_override_it() -> None:
    read = job("{cpus: 8, use_spot: true, any_of: [{accelerators: H100:8}, {cpus: 16, use_spot: false}]}")
    assert [(request.accelerator, request.cpus, request.capacity_types[0]) for request in read.resources] == [
        ("H100", 8, CapacityType.SPOT),
        (None, 16, CapacityType.OWNED),
    ]


def test_an_entry_takes_back_what_stands_beside_the_list_with_null() -> None:
    read = job(
        "{image_id: 'docker:x', disk_size: 100, any_of: [{accelerators: H100}, {cpus: 4, image_id: , disk_size: }]}"
    )
    assert [(request.image, request.disk_gib) for request in read.resources] == [("docker:x", 100), (None, None)]


def test_labels_of_an_entry_are_added_to_those_beside_the_list() -> None:
    read = job("{labels: {a: x, b: x}, any_of: [{labels: {b: y}}, {cpus: 4}]}")
    assert [dict(request.labels) for request in read.resources] == [{"a": "x", "b": "y"}, {"a": "x", "b": "x"}]


@pytest.mark.parametrize(
    ("more", "spot"),
    [
        ("", False),
        ("checkpoint: {every: 10m}", True),
        ("constraints: {capacity_types: [spot]}", True),
        ("constraints: {providers: [aws]}", False),
        ("resources: {use_spot: true}", True),
        ("resources: {use_spot: null}", False),
        ("resources: {use_spot: true, any_of: [{use_spot: null}]}", False),
        ("resources: {capacity_types: [on_demand, spot]}", True),
        ("resources: {use_spot: false}\ncheckpoint: {every: 10m}", False),
    ],
)
def test_spot_is_for_jobs_that_say_so_or_have_checkpoints(more: str, spot: bool) -> None:
    read = parse_job(f"run: x\n{more}\n", file="x.yaml", now=NOW)
    types = read.resources[0].capacity_types
    assert (not types or CapacityType.SPOT in types) == spot
    assert parse_job(print_job(read), file="x.yaml", now=NOW) == read


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
        ("{accelerators: H100:0}", "resources.accelerators: 0 accelerators: write `H100:1`"),
        ("{accelerators: {H100: -1}}", "resources.accelerators.H100: expected a whole number of accelerators"),
        ("{accelerators: {H100: 1.5}}", "resources.accelerators.H100: 1.5 cards cannot be requested: write `H100:1`"),
        (
            "{accelerators: 7GB}",
            "resources.accelerators: no accelerator has 7GB of memory; for at least that much, write 7GB+",
        ),
        ("{accelerators: 'acme:80GB'}", "resources.accelerators: unknown vendor 'acme'; known: amd, aws, google"),
        ("{accelerators: {H100:8: 8}}", "resources.accelerators.H100:8: names its number twice"),
        ("{accelerators: 8}", "resources.accelerators: expected an accelerator"),
        ("{accelerators: []}", "resources.accelerators: is empty"),
        ("{accelerators: H100, gpus: H100}", "resources.gpus: repeats `accelerators`"),
        ("{use_spot: true, capacity_types: [spot]}", "resources.use_spot: repeats `capacity_types`"),
        ("{infra: aws, region: us-east-1}", "resources.infra: repeats `cloud`, `region` and `zone`"),
        ("{cloud: aws, any_of: [{cpus: 4}, {infra: gcp}]}", "resources.any_of[1]: `infra` cannot be combined with"),
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
            "{capacity_types: [on-demands]}",
            "resources.capacity_types[0]: expected one of owned, reserved, on_demand, spot",
        ),
        ("{capacity_types: }", "resources.capacity_types: has no value"),
        (
            "{image_id: {us-east-1: ami-1}, region: us-west-2}",
            "resources.image_id: has no image for the region us-west-2",
        ),
        ("{image_id: {}}", "resources.image_id: is empty; write `region: image` below it"),
        ("{ports: 70000}", "resources.ports: ports go from 1 to 65535"),
        ("{ports: [80, http]}", "resources.ports[1]: expected a port such as 8080, or a range such as 8000-8010"),
        ("{ports: 90-80}", "resources.ports: ports go from 1 to 65535, the lower one first"),
        ("{disk_tier: fast}", "resources.disk_tier: expected one of low, medium, high, ultra, best"),
        ("{network_tier: fast}", "resources.network_tier: expected one of standard, best"),
        ("{labels: {gpubroker: x}}", "resources.labels.gpubroker: the label 'gpubroker' is set by gpubroker itself"),
        ("{labels: {a: 1}}", "resources.labels.a: expected text; put it in quotes"),
        (
            "{job_recovery: {recover_on_exit_codes: 33}}",
            "resources.job_recovery: `recover_on_exit_codes` is not supported",
        ),
        ("{job_recovery: {max_restarts: 3}}", "resources.job_recovery: unknown key 'max_restarts'"),
        ("{job_recovery: EAGER}", "resources.job_recovery: unknown strategy 'EAGER'"),
        ("{autostop: {idle: 3}}", "resources.autostop: unknown key 'idle'"),
        ("{autostop: {hook: x}}", "resources.autostop: a hook before the machine stops is not run here"),
        ("{accelerator_args: {tpu_vmm: true}}", "resources.accelerator_args: unknown key 'tpu_vmm'"),
        ("{candidates: [{}]}", "resources.candidates: SkyPilot's key is not supported here: SkyPilot has removed"),
        (
            "{spot_recovery: FAILOVER}",
            "resources.spot_recovery: SkyPilot's key is not supported here: SkyPilot calls it",
        ),
        ("{acelerators: H100}", "resources.acelerators: unknown key; did you mean 'accelerators'?"),
        ("[H100]", "resources: expected lines of the form 'key: value'; got a list"),
    ],
)
def test_mistakes(resources: str, expected: str) -> None:
    assert problem(resources).startswith(expected)
