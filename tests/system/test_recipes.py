"""The recipes for PyTorch, torchrun and the Hugging Face Trainer, as jobs: told that their machine is taken away they
save, go on elsewhere, and learn the very same as if nothing had happened."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.program import ROOT, counted, eventually, processes, start
from tests.system.conftest import WEAR, EndedJob

pytestmark = [pytest.mark.long, pytest.mark.system]

NEEDS = {"pytorch": ("torch",), "torchrun": ("torch",), "transformers": ("torch", "transformers", "accelerate")}
STEPS, EVERY = 40, 2
HELPER = ROOT / "broker" / "agent"
# The first attempt has a minute left when it has saved for the first time; later ones are in no hurry to be watched.
PACE = '$([ "$GPUBROKER_ATTEMPT" = 1 ] && echo 1.5 || echo 0)'
TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node=2 "


@pytest.mark.parametrize("recipe", NEEDS)
def test_taken_away_and_resumed_it_learns_the_same(recipe: str, tmp_path: Path) -> None:
    lacking = [name for name in NEEDS[recipe] if importlib.util.find_spec(name) is None]
    if lacking:
        pytest.skip(f"the extra `recipes` is not installed: {', '.join(lacking)}")
    home, folder = tmp_path / "home", tmp_path / recipe
    shutil.copytree(ROOT / "examples" / recipe, folder)
    program = (TORCHRUN if recipe == "torchrun" else "") + f"train.py --steps {STEPS} --checkpoint-every {EVERY}"
    straight = undisturbed(program, folder, tmp_path / "straight")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    cli = start("submit", str(shortened(folder, program)), "--yes", home=home, PATH=path, env=WEAR)
    eventually(lambda: any(home.glob("runs/*/checkpoints/*/manifest.json")), "a checkpoint is saved")
    # The oldest: for a moment between fork and exec there may be another that looks like it.
    min(processes(home, "agent"), key=lambda process: process.create_time()).terminate()
    _, err = cli.communicate(timeout=240)
    assert cli.returncode == 0, err + said(home)
    eventually(counted(home, "job_closed"), "the job is closed")
    ended = events(home)
    causes = [(end["cause"], end["step"]) for end in ended.of("attempt_ended")]
    assert [cause for cause, _ in causes] == ["preempted", "completed"], said(home)
    restored = ended.of("restored")[-1]["step"]
    assert EVERY <= restored < STEPS
    assert restored == causes[0][1], "it went on from where it was when it was told"
    out, _ = straight.communicate(timeout=240)
    assert weights(said(home)) == weights(out)


def undisturbed(program: str, folder: Path, checkpoints: Path) -> subprocess.Popen[str]:
    """The program by itself, without a broker, under way."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    env["GPUBROKER_CHECKPOINT_DIR"] = str(checkpoints)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HELPER), os.environ.get("PYTHONPATH")]))
    words = [sys.executable, *program.split()]
    return subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def shortened(folder: Path, program: str) -> Path:
    """The example's job file with fewer steps, and without the look whether everything is installed."""
    (file,) = folder.glob("*.yaml")
    job = yaml.safe_load(file.read_text())
    del job["setup"]
    job["run"] = f"exec python3 {program} --pace {PACE}"
    job["envs"] = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    file.write_text(yaml.safe_dump(job))
    return file


def events(home: Path) -> EndedJob:
    from tests.program import body_of, rows

    query = "SELECT kind, attempt, body FROM attempt_event ORDER BY seq"
    found = [(kind, attempt, body_of(body)) for kind, attempt, body in rows(home / "gpubroker.db", query)]
    return EndedJob({}, found, home)


def said(home: Path) -> str:
    """What the command printed, attempt by attempt."""
    return "\n".join(path.read_text() for path in sorted(home.glob("runs/*/attempts/*/logs/*.log")))


def weights(text: str) -> str:
    """The fingerprint of what was learnt in the end."""
    *_, last = re.finditer(r"^weights (\w+)", text, re.MULTILINE)
    return last[1]
