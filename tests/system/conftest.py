"""What the system tests share: the training example cut short, and how to tell that it ended right; a bucket for run
folders."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.program import ROOT, body_of, eventually, kill, processes, rows, run

# An hour of this machine, so that there is a bill to be right: 3.6 $ an hour is a tenth of a cent a second. A job pays
# for its part of the machine.
WEAR = {"GPUBROKER_PROVIDERS__OWNED__WEAR_PER_HOUR": "3.6"}
STEPS = 400


@pytest.fixture(autouse=True)
def nothing_left_running(tmp_path: Path) -> Iterator[None]:
    """Whatever becomes of a test, its processes end with it."""
    yield
    kill(processes(tmp_path))


@dataclass(frozen=True)
class EndedJob:
    """A job that has ended, as `gpubroker status --json` and its store tell."""

    document: dict[str, Any]
    events: list[tuple[str, int | None, dict[str, Any]]]
    home: Path

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The bodies of the events of a kind."""
        return [body for known, _, body in self.events if known == kind]


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    """The training example as people submit it, with fewer and smaller steps and no wait before a retry."""
    folder = tmp_path / "training"
    shutil.copytree(ROOT / "examples" / "training", folder)
    job = folder / "training.yaml"
    short, steps = re.subn(r"--steps \d+", f"--steps {STEPS} --batch 16", job.read_text())
    short, saves = re.subn(r"--checkpoint-every \d+", "--checkpoint-every 25", short)
    short, waits = re.subn(r"backoff: \w+", "backoff: 0s", short)
    assert (steps, saves, waits) == (1, 1, 1), "the example no longer says what this shortens"
    job.write_text(short)
    return job


def show(home: Path) -> dict[str, Any]:
    """What `gpubroker status` says of the job; like any command, it starts a reconciler that is missing."""
    done = run("status", "character-model", "--json", home=home, env=WEAR)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def finished(home: Path, counted: Callable[[], bool]) -> EndedJob:
    """The job, ended right: it succeeded, its checkpoints verify, its bill is the time it ran, nothing is left."""
    eventually(counted, "the job is closed")
    document = show(home)
    assert document["state"] == "succeeded"
    store = home / "gpubroker.db"
    query = "SELECT kind, attempt, body FROM attempt_event ORDER BY seq"
    events = [(kind, attempt, body_of(body)) for kind, attempt, body in rows(store, query)]
    ended = EndedJob(document, events, home)
    verify_checkpoints(home)
    verify_bill(ended)
    eventually(lambda: not processes(home), "every process of the job is gone")
    return ended


def verify_checkpoints(home: Path) -> None:
    """Every checkpoint in the run folder is whole, and the newest is the last step."""
    manifests = [json.loads(path.read_text()) for path in home.glob("runs/*/checkpoints/*/manifest.json")]
    for manifest in manifests:
        (folder,) = home.glob(f"runs/*/checkpoints/{manifest['id']}")
        for file in manifest["files"]:
            data = (folder.parent / file["object"]).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"])
    assert max(manifest["step"] for manifest in manifests) == STEPS


def verify_bill(ended: EndedJob) -> None:
    """Each attempt is billed for its machine's time, nothing is held, every movement balances."""
    entries = rows(ended.home / "gpubroker.db", "SELECT movement_id, account, micros, attempt FROM ledger_entry")
    assert entries
    assert sum(micros for _, account, micros, _ in entries if account == "held") == 0
    for movement in {movement for movement, *_ in entries}:
        assert sum(micros for one, _, micros, _ in entries if one == movement) == 0
    for _, number, body in (event for event in ended.events if event[0] == "machine_gone"):
        (since,) = (up["since"] for kind, of, up in ended.events if kind == "machine_up" and of == number)
        (asked,) = (of for kind, which, of in ended.events if kind == "launch_requested" and which == number)
        micros_a_second = Fraction(asked["placement"]["rate"]) * 1_000_000 / 3600
        seconds = Fraction(at(body["gone_at"]) - at(since), 1_000_000)
        posted = [micros for _, account, micros, of in entries if account == "spent" and of == number]
        late = sum(posted) - micros_a_second * seconds
        assert -len(posted) < late < micros_a_second + len(posted), "billed in steps of a second, to a micro-dollar"


def at(text: str) -> int:
    """Microseconds since 1970."""
    from datetime import datetime

    return round(datetime.fromisoformat(text).timestamp() * 1_000_000)


def saved(home: Path) -> bool:
    """Whether a checkpoint lies in the run folder, whole; the broker learns of it a little later."""
    return any(home.glob("runs/*/checkpoints/*/manifest.json"))


@dataclass(frozen=True)
class RunBucket:
    """The bucket ``runs`` of an S3 on loopback, and the keys to it."""

    url: str
    secret_key: str = "planted-secret-key"

    @property
    def variables(self) -> dict[str, str]:
        keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": self.secret_key, "AWS_REGION": "us-east-1"}
        return {**keys, "AWS_ENDPOINT_URL": self.url, "AWS_ALLOW_HTTP": "true"}

    @property
    def client(self) -> Any:
        import boto3

        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": self.secret_key}
        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", **keys)

    def holding(self, text: str) -> list[str]:
        """The names of the objects that contain it."""
        client, found = self.client, []
        for listed in client.get_paginator("list_objects_v2").paginate(Bucket="runs"):
            for one in listed.get("Contents", ()):
                if text.encode() in client.get_object(Bucket="runs", Key=one["Key"])["Body"].read():
                    found.append(one["Key"])
        return found


@pytest.fixture(scope="session")
def run_bucket() -> Iterator[RunBucket]:
    from moto.server import ThreadedMotoServer

    s3 = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    s3.start()
    host, port = s3.get_host_and_port()
    made = RunBucket(f"http://{host}:{port}")
    made.client.create_bucket(Bucket="runs")
    yield made
    s3.stop()
