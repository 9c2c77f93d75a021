"""The searches among the examples, run as programs: their trials are jobs on this machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import kill, processes

SWEEPS = Path(__file__).parents[2] / "examples" / "sweeps"


@pytest.mark.system
def test_optuna_finds_better_parameters_than_its_first_ones(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUBROKER_")}
    home = tmp_path / "home"
    own = {"GPUBROKER_HOME": str(home), "GPUBROKER_ENGINES__LOCAL__REGISTER": str(tmp_path / "given")}
    try:
        said = subprocess.run(
            [sys.executable, SWEEPS / "with_optuna.py", "--trials", "6", "--at-once", "2"],
            env={**kept, **own}, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300,
        ).stdout  # fmt: skip
    finally:
        kill(processes(home))
    losses = [float(found) for found in re.findall(r"^trial-\d-\w+: loss (\S+)$", said, re.MULTILINE)]
    assert len(losses) == 6, said
    best = re.search(r"^best of 6: loss (\S+) with", said, re.MULTILINE)
    assert best is not None
    assert float(best[1]) == min(losses) < losses[0]
