"""The training example through SkyPilot's real API server and SDK: its cloud is a real Slurm reached over SSH, and its
run folder a bucket. Taken away once, it goes on from its checkpoint on another machine; at the end nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.program import counted, eventually, processes, rows, run, start
from tests.skypilot_server import USER, SkyServer
from tests.slurm_cluster import SlurmCluster
from tests.system.conftest import MACHINES_OF_SKYPILOT, STEPS, EndedJob, RunBucket, verify_bill

pytestmark = [pytest.mark.system, pytest.mark.timeout(1200), pytest.mark.xdist_group("skypilot")]

POLICY = "version: 1\npolicy: lab\nbudgets: [{name: month, amount: $50, period: month}]\n"


def test_a_job_taken_away_goes_on_elsewhere_and_nothing_is_left(
    tmp_path: Path,
    job_file: Path,
    sky_cluster: SlurmCluster,
    sky_server: SkyServer,
    sky_bucket: RunBucket,
    sky_settings: dict[str, str],
) -> None:
    began = time.monotonic()

    def lap(what: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {what}")

    home = tmp_path / "home"
    text = job_file.read_text().replace("--checkpoint-every 25", "--checkpoint-every 25 --pace 0.05")
    job_file.write_text(text + "\nconstraints: {providers: [lab]}\n")
    (tmp_path / "offers.csv").write_text(MACHINES_OF_SKYPILOT)
    (tmp_path / "policy.yaml").write_text(POLICY)
    steps = ("prices import offers.csv --provider lab", "prices accept lab", "policy apply policy.yaml")
    for words in map(str.split, steps):
        done = run(*words, home=home, env=sky_settings)
        assert done.returncode == 0, done.stderr
    cli = start("submit", str(job_file), "--yes", home=home, env=sky_settings)
    try:
        eventually(counted(home, "submitted"), "it is submitted")
        shutil.rmtree(job_file.parent)  # what runs, and goes on, is what was submitted
        eventually(counted(home, "launched"), "SkyPilot has the launch")
        lap("SkyPilot has the launch")
        eventually(counted(home, "checkpoint_saved"), "a checkpoint is saved", 400)
        lap("a checkpoint is in the bucket")
        sky_cluster.run("scancel", f"--user={USER}")
        eventually(counted(home, "attempt_ended"), "the end is noticed")
        lap("the interruption is noticed")
        eventually(counted(home, "launched", 2), "it is placed anew")
        lap("SkyPilot has the second launch")
        out, err = cli.communicate(timeout=400)
    except BaseException:
        print(sky_server.last_words()[-6000:])
        raise
    finally:
        cli.kill()
    lap("the job has ended")
    assert cli.returncode == 0, err
    eventually(counted(home, "job_closed"), "the job is closed")
    lap("everything is taken down")
    ended = told(home, sky_settings)
    assert [one["cause"] for one in ended.of("attempt_ended")] == ["preempted", "completed"]
    assert ended.of("attempt_ended")[-1]["step"] == STEPS
    assert ended.of("restored")[-1]["step"] > 0
    assert [one["engine"] for one in ended.of("launch_requested")] == ["skypilot"] * 2
    verify_bill(ended)
    assert "loss" in out + run("jobs", "logs", "character-model", home=home, env=sky_settings).stdout
    assert "No existing clusters" in sky_server.sky("status")
    assert not sky_cluster.run("squeue", "--noheader").strip()
    eventually(lambda: not processes(home), "every process of the broker is gone")
    spilled = [path for path in home.rglob("*") if path.is_file() and sky_bucket.secret_key in _text(path)]
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
