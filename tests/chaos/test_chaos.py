"""The chaos run itself, cut short."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.chaos.schedule import KINDS
from tests.program import ROOT

# A seventh of the long run's jobs in a seventh of its time; by this seed, some for each engine.
MINUTES, JOBS, SEED = 2, 28, 4


@pytest.mark.long
@pytest.mark.system
@pytest.mark.timeout(1500)
def test_a_broker_among_faults() -> None:
    asked = ["--minutes", str(MINUTES), "--jobs", str(JOBS), "--seed", str(SEED), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *asked], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr[-3000:]
    told = json.loads(done.stdout)
    print(json.dumps(told, indent=1))
    assert told["wrong"] == []
    assert done.returncode == 0
    assert {kind for kind, times in told["strikes"].items() if times} == set(KINDS)


@pytest.mark.long
@pytest.mark.system
@pytest.mark.timeout(1500)
def test_a_broker_among_hostile_nodes() -> None:
    """A third of the jobs write over whatever they reach; the others end as ever, and the money is right."""
    asked = ["--hostile", "--minutes", "0.7", "--jobs", "12", "--seed", "5", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *asked], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr[-3000:]
    told = json.loads(done.stdout)
    print(json.dumps(told, indent=1))
    assert told["wrong"] == []
    assert told["hostile_acts"]["own"] > 20
    assert told["hostile_acts"]["of_others"] > 2
