"""A task file means here what it means to the SkyPilot that is installed: read by both, compared field by field."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.file import parse_job
from broker.core.job.file.reading import JobOverrides
from broker.core.job.jobs import Job
from tests.fakes import skypilot_catalogue
from tests.skypilot_files.comparing import NOW, differences
from tests.skypilot_files.reading import read_there

pytestmark = [
    pytest.mark.system,
    pytest.mark.xdist_group("skypilot files"),  # SkyPilot reads all of them once
    pytest.mark.skipif(find_spec("sky") is None, reason="SkyPilot is not installed (extra skypilot)"),
]


ACCELERATORS = [
    "H100", "H100:8", "{H100: 8}", "{H100:8, A100:8}", "[H100:8, A100-80GB:8]", "{H100: 8, A100: 4}",
    "h100:8", "A100-40GB", "Inferentia:6", "Trainium:16", "MI300X:8", "tpu-v5p-8", "[L4, A10G, T4]",
    "{L4:1}",
]  # fmt: skip
MACHINES = [
    "cpus: 4", "cpus: 4+", "cpus: '8+'", "cpus: 0.5", "memory: 32", "memory: 32+", "memory: 64GB+",
    "cpus: 2+, memory: 8+", "infra: aws", "infra: aws/us-east-1", "infra: gcp/us-central1/us-central1-a",
    "infra: '*/us-east-1'", "infra: k8s", "infra: '*/*/us-east-1a'", "infra: kubernetes/my-context", "cloud: gcp",
    "cloud: aws, region: us-east-1", "cloud: AWS, region: us-east-1, zone: us-east-1a",
    "instance_type: p4d.24xlarge, infra: aws", "use_spot: true", "use_spot: false", "use_spot: null",
    "disk_size: 100", "disk_size: 500GB", "disk_size: 1TB", "disk_tier: best", "disk_tier: high", "disk_tier: HIGH",
    "network_tier: best", "network_tier: standard", "ports: 8080", "ports: '8080'", "ports: 8000-8010",
    "ports: [80, 443]", "ports: [22, 8000-8010]", "ports: null", "image_id: 'docker:pytorch/pytorch'",
    "image_id: ami-1, infra: aws/us-east-1", "infra: aws, image_id: {us-east-1: ami-1, us-west-2: ami-2}",
    "labels: {a: b, c: d}", "autostop: 10", "autostop: true", "autostop: {idle_minutes: 10, down: true}",
    "job_recovery: EAGER_NEXT_REGION", "job_recovery: {strategy: null}",
    "job_recovery: {strategy: FAILOVER, max_restarts_on_errors: 3}", "job_recovery: {max_restarts_on_errors: 0}",
    "accelerators: tpu-v5p-8, accelerator_args: {runtime_version: v2-alpha-tpuv5}",
    "any_of: [{infra: aws}, {infra: gcp}]", "ordered: [{infra: aws}, {infra: gcp}]",
    "accelerators: H100:8, any_of: [{infra: aws}, {infra: gcp, use_spot: true}]",
    "accelerators: {H100:8, A100:8}, any_of: [{infra: aws}, {infra: gcp}]",
    "use_spot: true, cpus: 4, any_of: [{accelerators: H100}, {cpus: 8, use_spot: false}]",
    "image_id: 'docker:x', disk_size: 100, any_of: [{infra: aws, image_id: null}, {infra: gcp, disk_size: 200}]",
    "ports: 80, any_of: [{infra: aws, ports: [81]}, {infra: gcp}]",
    "disk_tier: best, ordered: [{accelerators: A100:8, disk_tier: low}, {accelerators: H100:8}]",
    "labels: {a: b}, any_of: [{infra: aws, labels: {c: d}}]",
    "ordered: [{accelerators: H100:8, infra: aws}, {accelerators: H100:8, infra: gcp, use_spot: true}]",
    "gpus: H100:8", "any_of: [{gpus: L4}, {gpus: T4, disk_size: 50}]",
]  # fmt: skip
TASKS = [
    "name: mine", "num_nodes: 4", "num_nodes: null", "setup: pip install x", "setup: |\n  a\n  b",
    "envs: {A: 1, B: text}", "envs: {A: ''}", "secrets: [secrets:HF_TOKEN]",
    "secrets: {HF_TOKEN: null}", "workdir: code", "workdir: ./code", "file_mounts: {/data: ./data}",
    "file_mounts: {/data: s3://bucket/path}", "resources: null",
    "file_mounts: {/data: {source: s3://bucket, mode: MOUNT}}", "file_mounts: {~/data: gs://bucket}",
    "file_mounts: {/data: {name: null, source: gs://bucket, store: null, mode: COPY}}",
    "file_mounts: {/data: {name: my-bucket, store: s3, mode: MOUNT, persistent: true}}",
    "envs: {N: data}\nfile_mounts: {/$N/x: './${N}'}",
    "envs: {N: b1}\nfile_mounts: {/x: {source: 's3://${N}-x', mode: COPY}}",
    "envs: {N: my-b1}\nfile_mounts: {/x: {name: $N, mode: MOUNT}}", "envs: {D: code}\nworkdir: ./$D",
    "inputs: {s3://bucket: 150}", "config: {docker: {run_options: [--ipc=host]}}",
    "config: {nvidia_gpus: {disable_ecc: true}}",
    "workdir: {url: 'https://github.com/a/b', ref: v1}\nsetup: make", "workdir: {url: 'https://github.com/a/b'}",
]  # fmt: skip
WITH_ENVS = [
    ("envs: {A: null}", {"A": "1"}), ("envs: {A: x}", {"A": "y=z", "B": ""}),
    ("envs: {B: null}\nfile_mounts: {/x: 's3://$B'}", {"B": "bucket"}),
]  # fmt: skip
# Both refuse these.
REFUSED_BY_BOTH = [
    "envs: {A: null}", "resources: {any_of: [{}], ordered: [{}]}", "resources: {accelerators: 'H100:x'}", "nmae: x",
    "resources: {accelerators: [H100, A100], ordered: [{infra: aws}]}", "resources: {infra: aws, cloud: gcp}",
    "resources: {accelerators: [H100, A100], any_of: [{infra: aws}]}", "resources: {disk_tier: fast}", "num_nodes: 0",
    "resources: {network_tier: fast}", "resources: {candidates: [{}]}", "resources: {spot_recovery: FAILOVER}",
    "resources: {ports: 70000}", "resources: {disk_tier: none}", "inputs: {}", "envs: {1A: x}",
    "resources: {labels: {a: 1}}", "resources: {autostop: {idle: 3}}", "resources: {accelerator_args: {x: 1}}",
]  # fmt: skip
# Refused here alone: each with the words that say what to write instead.
REFUSED_HERE = {
    "volumes: {/mnt: my-volume}": "use `file_mounts`",
    "service: {readiness_probe: /}\nresources: {ports: 80}": "delete the section",
    "resources: {max_hourly_cost: 3.5}": "`max_cost: $900`",
    "resources: {local_disk: nvme}": "use `disk_size` or `instance_type`",
    "resources: {job_recovery: {recover_on_exit_codes: [33]}}": "write `retry: {failures: 2}`",
    "resources: {priority: 5}": "`priority: low`",
    "config: {kubernetes: {pod_config: {spec: {}}}}": "set it in ~/.sky/config.yaml",
    "config: {aws: {vpc_name: x}}": "passed on are docker.run_options",
    "secrets: {HF_TOKEN: hunter2}": "export the variable before you submit",
    "event_callback: echo x": "`gpubroker status --json` gives the state",
    "file_mounts: {/x: 's3://${NOBODY}'}": "`--env NOBODY=VALUE`",
}


def with_run(text: str) -> str:
    return f"run: echo x\n{text}\n"


SAME = [
    *((with_run(f"resources: {{accelerators: {one}}}"), {}) for one in ACCELERATORS),
    *((with_run(f"resources: {{{one}}}"), {}) for one in MACHINES),
    *((with_run(one), {}) for one in TASKS),
    *((with_run(one), envs) for one, envs in WITH_ENVS),
]
CASES = [*SAME, *((with_run(one), {}) for one in (*REFUSED_BY_BOTH, *REFUSED_HERE))]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What SkyPilot reads in each file."""
    home = tmp_path_factory.mktemp("skypilot")
    _catalogue(home)
    for folder in ("code", "data"):
        (home / folder).mkdir()
    answers = read_there(CASES, home)
    return {json.dumps(case): answer for case, answer in zip(CASES, answers, strict=True)}


def _catalogue(home: Path) -> None:
    """What SkyPilot would fetch from the internet: machines, places and accelerators that the files name."""
    skypilot_catalogue.write(home)
    places = [("us-east-1", "use1-az6"), ("us-west-2", "usw2-az1")]
    machines = [("p4d.24xlarge", "A100", 8), ("p5.48xlarge", "H100", 8)]
    rows = [
        [machine, card, count, 96, 1152, 2.0, region, skypilot_catalogue.gpu_info(card, count), 1.0, zone]
        for region, zone in places
        for machine, card, count in machines
    ]
    skypilot_catalogue.write_file(home, "aws/vms.csv", skypilot_catalogue.COLUMNS, rows)


def ours(text: str, envs: dict[str, str]) -> Job:
    return parse_job(text, file="task.yaml", now=NOW, overrides=JobOverrides(envs=envs))


@pytest.mark.parametrize(("text", "envs"), SAME)
def test_both_read_the_same(text: str, envs: dict[str, str], theirs: dict[str, dict[str, Any]]) -> None:
    read, job = theirs[json.dumps([text, envs])], ours(text, envs)
    assert "refused" not in read, read
    (task,) = read["tasks"]
    assert differences(job, task | {"name": task["name"] or "task"}) == {}


@pytest.mark.parametrize("text", REFUSED_BY_BOTH)
def test_both_refuse(text: str, theirs: dict[str, dict[str, Any]]) -> None:
    assert "refused" in theirs[json.dumps([with_run(text), {}])]
    with pytest.raises(InvalidInput):
        ours(with_run(text), {})


@pytest.mark.parametrize("text", REFUSED_HERE)
def test_what_is_refused_here_alone_says_what_to_write(text: str, theirs: dict[str, dict[str, Any]]) -> None:
    assert "refused" not in theirs[json.dumps([with_run(text), {}])]
    with pytest.raises(InvalidInput) as caught:
        ours(with_run(text), {})
    assert REFUSED_HERE[text] in "; ".join(problem.message for problem in caught.value.problems)
