"""`gpubroker jobs prune`: what it would delete, what it deletes, and what it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from broker.cli.jobs import follow

SAVES = 'cd "$GPUBROKER_CHECKPOINT_DIR"; for n in 1 2 3; do echo $n > .x; mv .x step_$n; done'


@pytest.fixture
def ended(reconciled_by: Callable[[ModuleType], None], gpubroker: Any, tmp_path: Path) -> str:
    """A job that has ended and left three checkpoints; its id."""
    reconciled_by(follow)
    job = tmp_path / "job.yaml"
    job.write_text(f"name: saver\nrun: |\n  {SAVES}\n")
    done = gpubroker("submit", job, "--yes", "--json")
    assert done.code == 0, done
    return str(done.json["id"])


def checkpoints(home: Path, job: str) -> int:
    return len(list((home / "runs" / job / "checkpoints").glob("*/manifest.json")))


def test_what_ended_long_ago_goes_but_for_its_newest(gpubroker: Any, home: Path, ended: str) -> None:
    assert checkpoints(home, ended) == 3
    assert "No job that ended before" in gpubroker("jobs", "prune").out, "not so long ago"
    would = gpubroker("jobs", "prune", "--keep", "0s", "--dry-run")
    assert "Would delete 2 checkpoints of 1 job" in would.out
    assert checkpoints(home, ended) == 3
    done = gpubroker("jobs", "prune", "--keep", "0s", "--yes", "--json").json
    assert done["deleted"] is True
    (one,) = done["jobs"]
    assert (one["id"], len(one["gone"]), len(one["stays"])) == (ended, 2, 1)
    assert one["stays"][0]["checkpoint"].endswith("step_3")
    assert checkpoints(home, ended) == 1
    assert gpubroker("jobs", "prune", "--keep", "0s", "--yes", "--json").json["jobs"] == []
    assert "its newest stays" not in gpubroker("jobs", "prune", "--keep", "0s", "--newest-too", "--yes").out
    assert checkpoints(home, ended) == 0
    assert "succeeded" in gpubroker("jobs", "show", ended).out, "the story stays"


def test_nothing_goes_without_a_word_from_a_person(gpubroker: Any, home: Path, ended: str) -> None:
    refused = gpubroker("jobs", "prune", "--keep", "0s")
    assert refused.code == 2
    assert "2 checkpoints of 1 job, 1,142 bytes needs confirmation" in refused.err
    assert checkpoints(home, ended) == 3
    assert gpubroker("jobs", "prune", "--keep", "soon").code == 2
