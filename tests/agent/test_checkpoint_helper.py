"""The helper for training programs, in programs of its own: it listens for the end, saves whole, and finds its way
back."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HELPER = Path(__file__).parents[2] / "broker" / "agent"


def start(code: str, folder: Path) -> subprocess.Popen[str]:
    """A program that has the helper, as a job has it."""
    env = {**os.environ, "PYTHONPATH": str(HELPER), "GPUBROKER_CHECKPOINT_DIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-u", "-c", "import os, sys, time\nfrom gpubroker_checkpoint import *\n" + code],
        env=env, cwd=folder.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def said(code: str, folder: Path) -> str:
    with start(code, folder) as program:
        out, _ = program.communicate(timeout=240)
    assert program.returncode == 0
    return out.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def test_nobody_is_told_before_the_signal_and_everybody_after_it(folder: Path) -> None:
    code = """
print(should_stop(), should_checkpoint())
sys.stdin.readline()
print(should_stop(), should_checkpoint(), should_checkpoint(every=3600))
"""
    with start(code, folder) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "False False\n"
        program.send_signal(signal.SIGTERM)
        out, _ = program.communicate("go\n", timeout=240)
    assert (out, program.returncode) == ("True True True\n", 0)


def test_a_handler_that_was_there_is_called_too(folder: Path) -> None:
    code = """
import signal
signal.signal(signal.SIGTERM, lambda *_: print("first"))
should_stop()
os.kill(os.getpid(), signal.SIGTERM)
print(should_stop())
"""
    assert said(code, folder) == "first\nTrue"


def test_a_program_that_never_asks_ends_as_usual(folder: Path) -> None:
    with start("print('ready')\nsys.stdin.readline()", folder) as program:
        assert program.stdout is not None
        program.stdout.readline()
        program.send_signal(signal.SIGTERM)
        program.wait(240)
    assert program.returncode == -signal.SIGTERM


def test_time_that_has_passed_since_the_last_save(folder: Path) -> None:
    code = """
print(should_checkpoint(every=0), should_checkpoint(every=3600), should_checkpoint())
import gpubroker_checkpoint as helper
helper._saved_at -= 100
print(should_checkpoint(every=99))
with save("step_1") as path: path.write_text("x")
print(should_checkpoint(every=99))
"""
    assert said(code, folder) == "True False False\nTrue\nFalse"


def test_there_is_nothing_to_go_on_from_at_first_and_then_the_newest(folder: Path) -> None:
    code = """
print(resume())
for step in (1, 2):
    with save(f"step_{step}", step) as path: path.write_text(str(step))
os.utime(folder() / "step_1", ns=(1, 1))
print(resume().name, resume().read_text())
"""
    assert said(code, folder) == "None\nstep_2 2"


def test_the_newest_is_the_step_that_was_begun_last_however_files_were_touched_since(folder: Path) -> None:
    code = """
for step in (5, 50, 31):
    (folder() / f"iter_{step}").mkdir()
    (folder() / f"iter_{step}" / "w").write_text("weights")
    os.utime(folder() / f"iter_{step}" / "w", (step, step) if step != 31 else (60, 60))
(folder() / "iter_50" / "eval.json").write_text("{}")
(folder() / "best_iter_5").write_text("weights")
(folder() / "iter_60-unfinished").touch()
(folder() / "iter_60").write_text("half")
print(resume().name)
"""
    assert said(code, folder) == "iter_31"


def test_what_breaks_in_between_is_not_there(folder: Path) -> None:
    code = """
try:
    with save("step_1") as path:
        path.write_text("half")
        raise RuntimeError
except RuntimeError: pass
print(resume(), [entry.name for entry in folder().iterdir()])
"""
    assert said(code, folder) == "None []"


def test_what_a_library_wrote_elsewhere_is_taken_whole_and_outlives_it(folder: Path) -> None:
    code = """
import pathlib, shutil
made = pathlib.Path("out/checkpoint-7")
(made / "deep").mkdir(parents=True)
(made / "deep" / "weights").write_text("w")
publish(made, step=7)
(pathlib.Path("out") / "one.pt").write_text("one")
publish("out/one.pt", "step_8.pt")
shutil.rmtree("out")
print((folder() / "checkpoint-7" / "deep" / "weights").read_text(), resume().name, resume().read_text())
"""
    assert said(code, folder) == "w step_8.pt one"
    assert '"step": 7' in (folder / ".gpubroker-saved.json").read_text()
