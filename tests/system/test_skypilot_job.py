"""The training example through SkyPilot's real API server and SDK: its cloud is a real Slurm reached over SSH, and its
run folder a bucket. Taken away once, it goes on from its checkpoint on another machine; at the end nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.program import counted, eventually, processes, rows, run, start
from tests.skypilot_server import USER, SkyServer, missing, running_server
from tests.slurm_cluster import SlurmCluster, running_cluster
from tests.system.conftest import STEPS, EndedJob, verify_bill

pytestmark = [pytest.mark.system, pytest.mark.timeout(1200), pytest.mark.xdist_group("skypilot")]

# 3.6 $ an hour is a tenth of a cent a second, as the bill is checked with.
OFFERS = """region,zone,instance_type,accelerator,count,capacity_type,price_per_hour,cpus,memory_gib,engine
loop,gpu,cpu-1,,0,on_demand,3.6,1,1,skypilot
"""
POLICY = "version: 1\npolicy: lab\nbudgets: [{name: month, amount: $50, period: month}]\n"
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "planted-secret-key", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    if lacking := missing():
        pytest.skip(lacking)
    made = Path(tempfile.mkdtemp(prefix="sky-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[SlurmCluster]:
    (folder / "slurm").mkdir(mode=0o711)
    # SkyPilot looks nodes up by name.
    with running_cluster(folder / "slurm", [socket.gethostname()]) as running:
        yield running


@pytest.fixture(scope="module")
def server(folder: Path, cluster: SlurmCluster) -> Iterator[SkyServer]:
    (folder / "sky").mkdir(mode=0o711)
    with running_server(folder / "sky", cluster) as running:
        yield running


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Where an S3 answers that has the bucket ``runs``."""
    s3 = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    s3.start()
    host, port = s3.get_host_and_port()
    url = f"http://{host}:{port}"
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "planted-secret-key"}
    boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys).create_bucket(Bucket="runs")
    yield url
    s3.stop()


@pytest.fixture
def settings(server: SkyServer, bucket: str) -> dict[str, str]:
    handed = {**KEYS, "AWS_ENDPOINT_URL": bucket, "AWS_ALLOW_HTTP": "true"}
    return {
        **server.environment,
        **handed,
        "GPUBROKER_RUNS": "s3://runs/jobs",
        "GPUBROKER_ENGINES__SKYPILOT__ENVIRONMENT": " ".join(handed),
        "GPUBROKER_ENGINES__SKYPILOT__CLOUDS__LAB": "slurm",
        "GPUBROKER_ENGINES__SKYPILOT__LOOK": "2",
        "GPUBROKER_ENGINES__SKYPILOT__REFRESH": "10",
    }


def test_a_job_taken_away_goes_on_elsewhere_and_nothing_is_left(
    tmp_path: Path, job_file: Path, cluster: SlurmCluster, server: SkyServer, settings: dict[str, str]
) -> None:
    began = time.monotonic()

    def lap(what: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {what}")

    home = tmp_path / "home"
    text = job_file.read_text().replace("--checkpoint-every 25", "--checkpoint-every 25 --pace 0.05")
    job_file.write_text(text + "\nconstraints: {providers: [lab]}\n")
    (tmp_path / "offers.csv").write_text(OFFERS)
    (tmp_path / "policy.yaml").write_text(POLICY)
    for words in (["prices", "import", "offers.csv", "--provider", "lab"], ["policy", "apply", "policy.yaml"]):
        done = run(*words, home=home, env=settings)
        assert done.returncode == 0, done.stderr
    cli = start("submit", str(job_file), "--yes", home=home, env=settings)
    try:
        eventually(counted(home, "submitted"), "it is submitted")
        shutil.rmtree(job_file.parent)  # what runs, and goes on, is what was submitted
        eventually(counted(home, "launched"), "SkyPilot has the launch")
        lap("SkyPilot has the launch")
        eventually(counted(home, "checkpoint_saved"), "a checkpoint is saved", 400)
        lap("a checkpoint is in the bucket")
        cluster.run("scancel", f"--user={USER}")
        eventually(counted(home, "attempt_ended"), "the end is noticed")
        lap("the interruption is noticed")
        eventually(counted(home, "launched", 2), "it is placed anew")
        lap("SkyPilot has the second launch")
        out, err = cli.communicate(timeout=400)
    except BaseException:
        print(server.last_words()[-6000:])
        raise
    finally:
        cli.kill()
    lap("the job has ended")
    assert cli.returncode == 0, err
    eventually(counted(home, "job_closed"), "the job is closed")
    lap("everything is taken down")
    ended = told(home, settings)
    assert [one["cause"] for one in ended.of("attempt_ended")] == ["preempted", "completed"]
    assert ended.of("attempt_ended")[-1]["step"] == STEPS
    assert ended.of("restored")[-1]["step"] > 0
    assert [one["engine"] for one in ended.of("launch_requested")] == ["skypilot"] * 2
    verify_bill(ended)
    assert "loss" in out + run("jobs", "logs", "character-model", home=home, env=settings).stdout
    assert "No existing clusters" in server.sky("status")
    assert not cluster.run("squeue", "--noheader").strip()
    eventually(lambda: not processes(home), "every process of the broker is gone")
    spilled = [path for path in home.rglob("*") if path.is_file() and KEYS["AWS_SECRET_ACCESS_KEY"] in _text(path)]
    assert not spilled, "a secret lies in the broker's own files"


def told(home: Path, settings: dict[str, str]) -> EndedJob:
    done = run("jobs", "show", "character-model", "--json", home=home, env=settings)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["state"] == "succeeded"
    query = "SELECT kind, attempt, body FROM attempt_event ORDER BY seq"
    events = [(kind, number, json.loads(body)) for kind, number, body in rows(home / "gpubroker.db", query)]
    return EndedJob(document, events, home)


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="replace") if os.access(path, os.R_OK) else ""
