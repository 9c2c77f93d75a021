"""Tests of ``--forks``: the parent reports everything that happened in its child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system
ROOT = Path(__file__).parents[1]
HOOKS = "from tests.conftest import pytest_addoption, pytest_runtestloop\n"
FIRST = """\
import os, pytest, warnings
from pathlib import Path

@pytest.fixture(scope="session", autouse=True)
def ended():
    yield
    Path(__file__).with_name("ended").touch()

def test_right(capfd):
    os.write(1, b"printed")
    assert capfd.readouterr().out == "printed"

def test_wrong():
    print("shown with it")
    assert 1 == 2

def test_left_out():
    pytest.skip("for a reason")  # the run under test must report it

def test_warns():
    warnings.warn("of something")
"""
SECOND = """\
def test_elsewhere(tmp_path):
    assert tmp_path.parent.name.startswith("popen-gw")
"""
DIES = """\
import os, time
from pathlib import Path

def test_dies():
    if not (pid := os.fork()):  # lives on, with all that is open here
        time.sleep(30)  # outlives its parent, whose end must be noticed at once; killed by the test
        Path(__file__).with_name("waited_for").touch()
        os._exit(0)
    Path(__file__).with_name("pid").write_text(str(pid))
    os._exit(0)
"""
BROKEN_OFF = """\
import pytest

@pytest.fixture
def fails_at_the_end():
    yield
    raise OSError("cannot be undone")

def test_broken_off(fails_at_the_end):
    raise KeyboardInterrupt
"""


def run(folder: Path, *files: str) -> subprocess.CompletedProcess[str]:
    for name, text in zip("abc", files, strict=False):
        (folder / f"test_{name}.py").write_text(text)
    (folder / "conftest.py").write_text(HOOKS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GPUBROKER_TEST_FULL": ""}
    command = [sys.executable, "-m", "pytest", "--forks", "2", "-c", os.devnull, "--rootdir", str(folder), str(folder)]
    with (folder / "told").open("w+") as told:  # a pipe would wait for all processes that keep it open
        ended = subprocess.run(command, env=environment, stdout=told, stderr=told, text=True, timeout=240)
        told.seek(0)
        ended.stdout = told.read()
    return ended


def test_what_passed_failed_and_warned_is_told_and_all_is_torn_down(tmp_path: Path) -> None:
    ended = run(tmp_path, FIRST, SECOND)
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout
    assert "1 failed, 3 passed, 1 skipped, 1 warning" in ended.stdout
    assert ended.stdout.count("shown with it") == 2  # once in the line, once in its output
    assert "UserWarning: of something" in ended.stdout
    assert (tmp_path / "ended").exists()


def test_a_process_that_dies_is_an_error_that_names_its_test(tmp_path: Path) -> None:
    ended = run(tmp_path, SECOND, DIES)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert not (tmp_path / "waited_for").exists(), "what the test has started keeps nobody waiting"
    assert ended.returncode == pytest.ExitCode.INTERNAL_ERROR, ended.stdout
    assert "a process of tests died in test_b.py::test_dies" in ended.stdout


def test_a_test_that_breaks_its_process_off_is_an_error_even_if_its_teardown_fails(tmp_path: Path) -> None:
    ended = run(tmp_path, SECOND, BROKEN_OFF)
    assert ended.returncode == pytest.ExitCode.INTERNAL_ERROR, ended.stdout
    assert "broke off in test_b.py::test_broken_off" in ended.stdout
