"""A task file means here what it means to the SkyPilot that is installed: read by both, compared field by field."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from broker.core.errors import InvalidInput
from broker.core.job.file import parse_job
from broker.core.job.file.machines import NOT_SPOT, SPOT
from broker.core.job.file.overrides import JobOverrides
from broker.core.job.jobs import Job, MachineRequest
from tests.fakes import skypilot_catalogue

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(find_spec("sky") is None, reason="SkyPilot is not installed (extra skypilot)"),
]

NOW = datetime(2026, 11, 21, tzinfo=UTC)
READER = Path(__file__).parent / "read_with_skypilot.py"
DEFAULT_DISK = 256  # GiB; SkyPilot's, where a file says nothing

ACCELERATORS = [
    "H100", "H100:8", "{H100: 8}", "{H100:8, A100:8}", "[H100:8, A100-80GB:8]", "{H100: 8, A100: 4}", "T4:0.5",
    "{T4: 0.5}", "h100:8", "A100-40GB", "Inferentia:6", "Trainium:16", "MI300X:8", "tpu-v5p-8", "[L4, A10G, T4]",
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
    "service: {readiness_probe: /}\nresources: {ports: 80}": "submit the work as a job",
    "resources: {max_hourly_cost: 3.5}": "`max_cost: $900`",
    "resources: {local_disk: nvme}": "use `disk_size` or `instance_type`",
    "resources: {job_recovery: {recover_on_exit_codes: [33]}}": "write `retry: {failures: 2}`",
    "resources: {priority: 5}": "`priority: low`",
    "config: {kubernetes: {pod_config: {spec: {}}}}": "set it in ~/.sky/config.yaml",
    "config: {aws: {vpc_name: x}}": "passed on are docker.run_options",
    "workdir: {url: https://github.com/a/b, ref: main}": "clone it in `setup`",
    "secrets: {HF_TOKEN: hunter2}": "export the variable before you submit",
    "event_callback: echo x": "`gpubroker jobs show --json` gives the state",
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
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    done = subprocess.run(
        [sys.executable, str(READER)],
        input=json.dumps(CASES), capture_output=True, text=True, cwd=home, env=environment, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout[done.stdout.index("[{") :])
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


def said(number: str | None) -> float | None:
    return None if number is None else float(number.rstrip("+"))


def normal(resources: dict[str, Any]) -> dict[str, Any]:
    """SkyPilot's resources in our terms."""
    name, count = next(iter((resources["accelerators"] or {}).items()), (None, 0))
    found_in_catalogue = resources["instance_type"] is not None  # as here the offers say it
    if found_in_catalogue:
        name, count = None, 0
    wanted = parse_job(f"run: x\nresources: {{accelerators: {name}}}", file="x", now=NOW).resources[0] if name else None
    tpu = bool(name and name.startswith("tpu"))  # it puts the cloud there that offers them
    disk = resources["disk_size"]
    ports = resources["ports"] or []
    return {
        "accelerator": wanted.accelerator if wanted else None,
        "count": math.ceil(count),
        "cpus": None if found_in_catalogue else said(resources["cpus"]),
        "memory": None if found_in_catalogue else said(resources["memory"]),
        "instance_type": resources["instance_type"],
        "place": (None if tpu else resources["cloud"], resources["region"], resources["zone"]),
        "use_spot": resources["use_spot"],
        "disk_size": None if disk == DEFAULT_DISK else float(disk),
        "disk_tier": resources["disk_tier"],
        "network_tier": resources["network_tier"],
        "ports": sorted(ports),
        "labels": resources["labels"] or {},
        "image": resources["image"],
    }


def as_normal(request: MachineRequest) -> dict[str, Any]:
    place = [None if part == "*" else part for part in (request.infra or "*").split("/")]
    if place[0] == "kubernetes":
        place = ["kubernetes", "/".join(map(str, place[1:])) or None]
    return {
        "accelerator": request.accelerator,
        "count": request.count,
        "cpus": request.cpus,
        "memory": request.memory_gib,
        "instance_type": request.instance_type,
        "place": tuple([*place, None, None][:3]),
        "use_spot": {SPOT: True, NOT_SPOT: False}[request.capacity_types],
        "disk_size": request.disk_gib,
        "disk_tier": request.disk_tier and request.disk_tier.value,
        "network_tier": request.network_tier and request.network_tier.value,
        "ports": sorted(request.ports),
        "labels": dict(request.labels),
        "image": request.image,
    }


def in_order(entries: Iterator[dict[str, Any]], ordered: bool) -> list[str]:
    texts = [json.dumps(entry, sort_keys=True, default=str) for entry in entries]
    return texts if ordered else sorted(texts)


@pytest.mark.parametrize(("text", "envs"), SAME)
def test_both_read_the_same(text: str, envs: dict[str, str], theirs: dict[str, dict[str, Any]]) -> None:
    read, job = theirs[json.dumps([text, envs])], ours(text, envs)
    assert "refused" not in read, read
    assert (job.run, job.setup, job.num_nodes) == (read["run"], read["setup"], read["num_nodes"])
    assert job.name == (read["name"] or "task")
    assert (job.workdir, job.envs, sorted(job.secrets)) == (read["workdir"], read["envs"], read["secrets"])
    copied = {place: source for place, source in job.file_mounts.items() if isinstance(source, str)}
    assert copied == read["file_mounts"]
    stores = {place: source for place, source in job.file_mounts.items() if isinstance(source, dict)}
    assert stores.keys() == read["stores"].keys()
    for place, store in stores.items():
        their = read["stores"][place]
        assert store.get("source") == their["source"]
        assert store["mode"] == their["mode"]
        assert store.get("name") in (their["name"], None)
    assert job.data.size == (None if read["inputs_gb"] is None else read["inputs_gb"] * 10**9)
    several = len(read["resources"]) > 1 and read["ordered"]
    assert job.ordered >= several
    found = in_order(map(as_normal, job.resources), several)
    assert found == in_order(map(normal, read["resources"]), several)
    restarts = [(one["job_recovery"] or {}).get("max_restarts_on_errors") or 0 for one in read["resources"]]
    assert job.retry.failures == max(restarts)


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
