"""An urgent job takes the place of one that runs, on this machine and on Slurm: that one saves, gives way, and goes on
from there."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.program import body_of, eventually, rows, run, start
from tests.slurm_cluster import SlurmCluster
from tests.system.conftest import STEPS, WEAR, saved

pytestmark = pytest.mark.system
POLICY = "version: 1\npolicy: rush\npriorities: {urgent: {preempts: true, min_runtime: 1s}}\n"


def succeeded(home: Path, job: str, env: Mapping[str, str]) -> dict[str, Any]:
    done = run("status", job, "--json", home=home, env=env)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["state"] == "succeeded"
    return document


def gives_way(folder: Path, job_file: Path, rush: str, env: Mapping[str, str], more: str = "") -> None:
    """The training example runs, with ``more`` in its file, until the job ``rush`` takes its place; then it ends."""
    home, policy, rush_file = folder / "home", folder / "policy.yaml", folder / "rush.yaml"
    policy.write_text(POLICY)
    ran = folder / "rush-ran"
    rush_file.write_text(f"name: rush\npriority: urgent\nrun: touch {ran}\nmax_duration: 1h\n{rush}\n")
    # Its forecast is hours, so that the wait costs more than the seconds of work since its last checkpoint. It is slow
    # until the other has run: it does not end before, however busy this machine is.
    pace = f"--pace $([ -e {ran} ] && echo 0 || echo 2)"
    text = job_file.read_text().replace("--checkpoint-every 25", f"--checkpoint-every 5 {pace}")
    text = text.replace("work: 30s", "work: 5h").replace("deadline: 1h", "priority: low")
    job_file.write_text(text.replace("max_duration: 30m", "max_duration: 6h") + f"\n{more}\n")
    applied = run("policy", "apply", str(policy), home=home, env=env)
    assert applied.returncode == 0, applied.stderr
    long = start("submit", str(job_file), "--yes", "--json", home=home, env=env)
    eventually(lambda: saved(home), "a checkpoint is saved")
    urgent = run("submit", str(rush_file), "--yes", "--json", home=home, env=env)
    assert urgent.returncode == 0, urgent.stderr
    _, err = long.communicate(timeout=240)
    assert long.returncode == 0, err

    asker, victim = succeeded(home, "rush", env), succeeded(home, "character-model", env)
    query = "SELECT job_id, kind, body FROM attempt_event ORDER BY seq"
    events = [(job, kind, body_of(body)) for job, kind, body in rows(home / "gpubroker.db", query)]
    of_victim = [(kind, body) for job, kind, body in events if job == victim["id"]]
    (stop,) = (body for kind, body in of_victim if kind == "stop_requested")
    assert (stop["cause"], stop["reason"]["advantage"], stop["reason"]["job"]) == ("moved", "gives_way", asker["id"])
    first, second = (body for kind, body in of_victim if kind == "attempt_ended")
    assert (first["cause"], second["cause"], second["step"]) == ("moved", "completed", STEPS)
    assert victim["steps_redone"] == 0, "it saved when it was asked to stop"
    waits = [body["reason"] for job, kind, body in events if job == asker["id"] and kind == "nothing_feasible"]
    assert [victim["id"]] in [reason.get("leaving") for reason in waits]


def test_on_this_machine(tmp_path: Path, job_file: Path) -> None:
    gives_way(tmp_path, job_file, f"resources: {{cpus: {os.cpu_count()}}}", WEAR)


@pytest.mark.xdist_group("slurm")
def test_on_slurm(tmp_path: Path, job_file: Path, cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two nodes one is free; the urgent job needs both."""
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    prices = {
        "GPUBROKER_PROVIDERS__SLURM__PRICE_PER_CPU_NODE_HOUR": "3.6",
        "GPUBROKER_PROVIDERS__SLURM__PARTITIONS": "gpu",
    }
    there = "constraints: {providers: [slurm]}"
    gives_way(tmp_path, job_file, f"resources: {{cpus: 1+}}\nnum_nodes: 2\n{there}", prices, there)
