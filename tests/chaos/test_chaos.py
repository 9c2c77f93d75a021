"""The chaos run itself, cut short."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.chaos.schedule import KINDS, ON_SLURM
from tests.program import ROOT

pytestmark = [pytest.mark.long, pytest.mark.system, pytest.mark.timeout(1500)]


def chaos(*asked: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *asked, "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr[-3000:]
    found = json.loads(done.stdout)
    print(json.dumps(found, indent=1))
    assert found["wrong"] == []
    return found


def test_a_broker_among_faults() -> None:
    """A seventh of the long run's jobs in a seventh of its time; by this seed, some for each engine."""
    found = chaos("--minutes", "2", "--jobs", "28", "--seed", "4")
    struck = {kind for kind, times in found["strikes"].items() if times}
    assert struck >= set(KINDS) - {*ON_SLURM, "disk_filled"}, "these need a Slurm, and a disk that may be mounted"


def test_a_broker_among_hostile_nodes() -> None:
    """A third of the jobs write over whatever they reach; the others end as ever, and the money is right."""
    found = chaos("--hostile", "--minutes", "0.7", "--jobs", "12", "--seed", "5")
    assert found["hostile_acts"]["own"] > 20
    assert found["hostile_acts"]["of_others"] > 2
