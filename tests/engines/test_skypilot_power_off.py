"""The setup of a node calls off that its machine powers off, and fails where it cannot."""

from __future__ import annotations

import subprocess
from pathlib import Path

from broker.engines.skypilot.node import UNTOUCHED_MARK, setup_script


def begun(folder: Path, sudo: str) -> subprocess.CompletedProcess[str]:
    """The begin of a setup where ``sudo`` is that script."""
    (folder / "bin").mkdir()
    for name, text in {"sudo": sudo, "shutdown": f'echo "$*" > {folder}/said'}.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o700)
    script = setup_script("j-1").replace(UNTOUCHED_MARK, str(folder / "mark")).partition("own=")[0]
    variables = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
    return subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=False)


RUN_IT = 'shift; exec "$@"'  # without -n


def test_a_machine_that_is_set_up_stays(tmp_path: Path) -> None:
    (tmp_path / "mark").touch()
    assert begun(tmp_path, RUN_IT).returncode == 0
    assert (tmp_path / "said").read_text() == "-c\n"
    assert not (tmp_path / "mark").exists()


def test_a_machine_that_was_not_to_power_off_is_left_alone(tmp_path: Path) -> None:
    assert begun(tmp_path, "exit 1").returncode == 0
    assert not (tmp_path / "said").exists()


def test_a_machine_that_would_power_off_under_its_job_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "mark").touch()
    assert begun(tmp_path, "exit 1").returncode != 0
