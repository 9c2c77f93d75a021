"""The example programs, run as programs: they learn, they save, they go on."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.core.job.file import parse_job

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAIN = [sys.executable, str(EXAMPLES / "training" / "train.py"), "--batch", "8"]


def run(arguments: list[str], folder: Path) -> str:
    env = {
        **os.environ,
        "GPUBROKER_CHECKPOINT_DIR": str(folder),
        "GPUBROKER_PROGRESS_FILE": str(folder.parent / "progress"),
    }
    return subprocess.run(arguments, env=env, check=True, capture_output=True, text=True, timeout=240).stdout


@pytest.mark.system
def test_the_loss_falls(tmp_path: Path) -> None:
    said = run([*TRAIN, "--steps", "200", "--checkpoint-every", "50"], tmp_path / "c")
    losses = [float(loss) for loss in re.findall(r"held-out loss ([0-9.]+)", said)]
    assert len(losses) == 4
    assert losses[-1] < losses[0] - 0.1
    assert losses[-1] < 3.0, "guessing among 34 characters is 3.53"
    assert json.loads((tmp_path / "progress").read_text()) == {"step": 200, "total": 200}


@pytest.mark.system
def test_interrupted_and_resumed_it_learns_the_same(tmp_path: Path) -> None:
    straight = run([*TRAIN, "--steps", "60", "--checkpoint-every", "20"], tmp_path / "straight")
    env = {**os.environ, "GPUBROKER_CHECKPOINT_DIR": str(tmp_path / "broken")}
    slow = [*TRAIN, "--steps", "60", "--checkpoint-every", "20", "--pace", "0.05"]
    with subprocess.Popen(slow, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith("step "))
        process.send_signal(signal.SIGTERM)
        assert "told to stop" in process.stdout.read()
    assert process.returncode == 143
    resumed = run([*TRAIN, "--steps", "60", "--checkpoint-every", "20"], tmp_path / "broken")
    assert "resumed from step" in resumed
    last = [re.findall(r"held-out loss ([0-9.]+)", said)[-1] for said in (straight, resumed)]
    assert last[0] == last[1]


def test_batch_work_does_no_shard_twice(tmp_path: Path) -> None:
    # So many that it is killed long before the last, however late a busy machine comes to it.
    program = [sys.executable, str(EXAMPLES / "batch" / "count.py"), "--shards", "20", "--seconds", "0.5"]
    env = {**os.environ, "GPUBROKER_CHECKPOINT_DIR": str(tmp_path)}
    with subprocess.Popen(program, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith("shard-001"))
        process.kill()
    rest = run([*program[:-1], "0"], tmp_path)
    done = int(re.match(r"(\d+) shards done before", rest)[1])  # type: ignore[index]  # no match fails the test
    assert 1 <= done < 20
    assert len(re.findall(r"^shard-", rest, re.MULTILINE)) == 20 - done
    assert "commonest words: the" in rest


@pytest.mark.long
@pytest.mark.system
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the extra `recipes` is not installed")
def test_digits_are_learned(tmp_path: Path) -> None:
    agent = EXAMPLES.parent / "broker" / "agent"
    program = [sys.executable, str(EXAMPLES / "pytorch" / "train.py"), "--steps", "80", "--checkpoint-every", "80"]
    env = {**os.environ, "GPUBROKER_CHECKPOINT_DIR": str(tmp_path), "PYTHONPATH": str(agent), "OMP_NUM_THREADS": "1"}
    said = subprocess.run(program, env=env, check=True, capture_output=True, text=True, timeout=240).stdout
    right = [float(part) for part in re.findall(r"digits ([0-9.]+)%", said)]
    assert right[-1] > 30, "guessing among ten digits is 10"


@pytest.mark.parametrize(
    "file",
    sorted(EXAMPLES.glob("*/*.yaml")),
    ids=lambda file: file.name,
)
def test_job_files_are_valid_and_name_programs_that_are_there(file: Path) -> None:
    job = parse_job(file.read_bytes(), file=str(file), now=datetime.now(UTC))
    programs = re.findall(r"\S+\.py", job.run)
    assert programs
    assert all((file.parent / program).exists() for program in programs)
