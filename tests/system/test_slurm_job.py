"""The training example on a real Slurm: preempted by a more urgent job, cancelled by a stranger, on nodes that are
drained, with Slurm itself away for a while; and the bill right."""

import os
import shutil
from pathlib import Path

import pytest

from tests.program import counted, eventually, start
from tests.slurm_cluster import SlurmCluster
from tests.system.conftest import STEPS, EndedJob, finished, saved

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("slurm")]  # one cluster at a time: each has many daemons

# 3.6 $ an hour and machine is a tenth of a cent a second, as the bill is checked with.
PRICES = {"GPUBROKER_PROVIDERS__SLURM__PRICE_PER_CPU_NODE_HOUR": "3.6"}
ONLY_GPU = {"GPUBROKER_PROVIDERS__SLURM__PARTITIONS": "gpu"}


@pytest.fixture
def settings(cluster: SlurmCluster, job_file: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    text = job_file.read_text()
    slower = text.replace("--checkpoint-every 25", "--checkpoint-every 25 --pace 0.05")
    job_file.write_text(slower + "\nconstraints: {providers: [slurm]}\n")
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
    return {**PRICES, **ONLY_GPU, "PATH": cluster.environment["PATH"], "SLURM_CONF": os.environ["SLURM_CONF"]}


def finished_there(home: Path) -> EndedJob:
    ended = finished(home, counted(home, "job_closed"))
    for request in ended.of("launch_requested"):
        assert request["engine"] == "slurm"
    return ended


def take_all(cluster: SlurmCluster) -> None:
    """An urgent job that needs every node."""
    wrap = ["--wrap", "sleep 3", "--output=/dev/null", "--chdir=/", "--nodes=2", "--ntasks=2", "--cpus-per-task=8"]
    cluster.run("sbatch", "--parsable", "--partition=urgent", *wrap)


def test_a_preempted_job_goes_on_from_its_checkpoint(
    tmp_path: Path, job_file: Path, cluster: SlurmCluster, settings: dict[str, str]
) -> None:
    home = tmp_path / "home"
    cli = start("submit", str(job_file), "--yes", home=home, env=settings)
    eventually(lambda: saved(home), "a checkpoint is saved")
    shutil.rmtree(job_file.parent)  # what goes on is what was submitted
    take_all(cluster)
    _, err = cli.communicate(timeout=240)
    assert cli.returncode == 0, err
    ended = finished_there(home)
    first, last = ended.of("attempt_ended")[0], ended.of("attempt_ended")[-1]
    assert (first["cause"], last["cause"], last["step"]) == ("preempted", "completed", STEPS)
    assert ended.of("restored")[-1]["step"] > 0
    assert len(ended.of("restored")) == 2


def test_scancel_by_a_stranger_is_an_interruption_and_a_node_that_is_drained_is_none(
    tmp_path: Path, job_file: Path, cluster: SlurmCluster, settings: dict[str, str]
) -> None:
    home = tmp_path / "home"
    cli = start("submit", str(job_file), "--yes", home=home, env=settings)
    eventually(lambda: saved(home), "a checkpoint is saved")
    cluster.run("scancel", "--user=root")
    eventually(counted(home, "restored", 2), "it goes on")
    cluster.run("scontrol", "update", "nodename=ALL", "state=drain", "reason=test")
    try:
        _, err = cli.communicate(timeout=240)
    finally:
        cluster.run("scontrol", "update", "nodename=ALL", "state=resume")
    assert cli.returncode == 0, err
    ended = finished_there(home)
    assert [end["cause"] for end in ended.of("attempt_ended")] == ["preempted", "completed"]
    assert ended.of("restored")[1]["step"] > 0


def test_a_controller_that_is_away_for_a_while_costs_nothing(
    tmp_path: Path, job_file: Path, cluster: SlurmCluster, settings: dict[str, str]
) -> None:
    home = tmp_path / "home"
    cli = start("submit", str(job_file), "--yes", home=home, env=settings)
    eventually(lambda: saved(home), "a checkpoint is saved")
    cluster.stop("slurmctld")
    eventually(lambda: at_step(home, STEPS), "it works on")
    cluster.start("slurmctld")
    _, err = cli.communicate(timeout=240)
    assert cli.returncode == 0, err
    ended = finished_there(home)
    assert [end["cause"] for end in ended.of("attempt_ended")] == ["completed"]
    assert len(ended.of("launch_requested")) == 1


def at_step(home: Path, step: int) -> bool:
    """Whether the checkpoint of that step lies in the run folder."""
    return any(f'"step": {step}' in path.read_text() for path in home.glob("runs/*/checkpoints/*/manifest.json"))
