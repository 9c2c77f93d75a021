"""The setup of a node calls off that its machine powers off, and fails where it cannot."""

import subprocess
from pathlib import Path

from broker.engines.skypilot.task import SET_UP_MARK, UNTOUCHED_MARK, power_off_commands, setup_script


def begun(folder: Path, sudo: str) -> subprocess.CompletedProcess[str]:
    """The begin of a setup where ``sudo`` is that script."""
    return told(folder, setup_script("j-1").partition("own=")[0], sudo)


def told(folder: Path, script: str, sudo: str = "exit 1") -> subprocess.CompletedProcess[str]:
    """The script on a machine with that ``sudo``."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in {"sudo": sudo, "shutdown": f'echo "$*" >> {folder}/said'}.items():
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / "bin" / name).chmod(0o700)
    for mark, place in {UNTOUCHED_MARK: folder / "mark", SET_UP_MARK: folder / "set-up"}.items():
        script = script.replace(mark, str(place))
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


def test_a_machine_that_nobody_sets_up_powers_off(tmp_path: Path) -> None:
    assert told(tmp_path, "\n".join(power_off_commands(180))).returncode == 0
    assert (tmp_path / "said").read_text() == "-P +180\n"
    assert (tmp_path / "mark").exists()


def test_a_setup_that_is_faster_than_the_first_boot_is_not_forgotten(tmp_path: Path) -> None:
    assert begun(tmp_path, "exit 1").returncode == 0
    assert told(tmp_path, "\n".join(power_off_commands(180))).returncode == 0
    assert (tmp_path / "said").read_text() == "-P +180\n-c\n"
    assert not (tmp_path / "mark").exists()
