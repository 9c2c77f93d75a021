"""The scratch folder of an agent on a machine that other users share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import broker.engines

SCRIPT = Path(broker.engines.__file__).with_name("slurm_job.sh")


def scratch_of_batch_job(tmp: Path) -> Path:
    """The folder that the batch script hands to its agent, a program that prints its arguments."""
    tools = tmp.parent / "tools"
    tools.mkdir(exist_ok=True)
    agent = tools / "agent"
    agent.write_text('#!/bin/sh\necho "$@"\n')
    agent.chmod(0o700)
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp), "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}
    done = subprocess.run(
        ["sh", str(SCRIPT), str(agent)], env=environment, capture_output=True, text=True, check=True, timeout=240
    )
    return Path(done.stdout.split()[-1])


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    made = tmp_path / "tmp"
    made.mkdir()
    return made


def test_a_batch_job_has_a_private_folder_that_is_removed(tmp: Path) -> None:
    assert scratch_of_batch_job(tmp) == tmp / f"gpubroker-{os.getuid()}-7"
    assert list(tmp.iterdir()) == []


def test_a_link_where_the_folder_belongs_is_left_alone(tmp: Path, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "lib").mkdir()
    (tmp / f"gpubroker-{os.getuid()}-7").symlink_to(planted)
    found = scratch_of_batch_job(tmp)
    assert found.name.startswith(f"gpubroker-{os.getuid()}-7-")
    assert (planted / "lib").exists(), "what lies behind the link is not removed"


def test_a_folder_of_another_job_with_that_number_is_left_alone(tmp: Path) -> None:
    """As two clusters on one node, or a job that died here long ago, leave it."""
    planted = tmp / f"gpubroker-{os.getuid()}-7"
    planted.mkdir()
    (planted / "command-1.sh").write_text("echo not mine\n")
    assert scratch_of_batch_job(tmp).name.startswith(f"gpubroker-{os.getuid()}-7-")
    assert [path.name for path in tmp.rglob("*.sh")] == ["command-1.sh"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_a_folder_of_another_user_is_left_alone(tmp: Path) -> None:
    planted = tmp / f"gpubroker-{os.getuid()}-7"
    planted.mkdir()
    os.chown(planted, 12345, 12345)
    assert scratch_of_batch_job(tmp) != planted
    assert planted.exists()


def test_an_agent_refuses_a_link_as_its_scratch_folder(tmp: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").symlink_to(tmp)
    command = [sys.executable, "-m", "broker.agent", "--folder", f"file://{tmp}/job/attempts/1"]
    done = subprocess.run(
        [*command, "--scratch", str(tmp_path / "scratch")], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 2
    assert "belongs to another user" in done.stderr
    assert list(tmp.iterdir()) == []
