"""`gpubroker jobs prune`: what it would delete, what it deletes, and what it leaves alone."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from broker.agent.store import ObjectFolder
from broker.cli.jobs import follow
from broker.core.errors import Unreachable
from broker.core.values.clock import SystemClock
from broker.engines.runfolder.retention import stored_checkpoints

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
    assert "succeeded" in gpubroker("status", ended).out, "the story stays"


@pytest.mark.system
def test_nothing_goes_without_a_word_from_a_person(gpubroker: Any, home: Path, ended: str) -> None:
    refused = gpubroker("jobs", "prune", "--keep", "0s")
    assert refused.code == 2
    assert re.search(r"no terminal for the confirmation: Delete 2 checkpoints of 1 job, [\d,]+ bytes", refused.err)
    assert checkpoints(home, ended) == 3
    assert gpubroker("jobs", "prune", "--keep", "soon").code == 2


@pytest.mark.system
def test_a_folder_that_cannot_be_read_is_named_and_keeps_no_other(
    gpubroker: Any, home: Path, ended: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpubroker("submit", tmp_path / "job.yaml", "--yes", "--json").code == 0

    def unreadable(folder: str) -> object:
        if folder.endswith(ended):
            raise Unreachable("the store says no")
        return stored_checkpoints(folder)

    monkeypatch.setattr("broker.app.jobs.retention.stored_checkpoints", unreadable)
    done = gpubroker("jobs", "prune", "--keep", "0s", "--yes")
    assert (done.code, checkpoints(home, ended)) == (5, 3)
    assert f"{ended}: the store says no" in done.err
    assert "1 folder could not be read or emptied" in done.err
    assert "Deleted 2 checkpoints of 1 job" in done.out, "those of the other job"
    assert gpubroker("jobs", "prune", "--keep", "0s", "--yes", "--json").code == 5


@pytest.mark.system
def test_ctrl_c_leaves_nothing_that_the_next_run_does_not_find(
    gpubroker: Any, home: Path, ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete, left = ObjectFolder.delete, iter([True])

    def interrupted(store: ObjectFolder, path: str) -> None:
        if not path.endswith("manifest.json"):
            for _ in left:
                raise KeyboardInterrupt
        delete(store, path)

    monkeypatch.setattr(ObjectFolder, "delete", interrupted)
    assert gpubroker("jobs", "prune", "--keep", "0s", "--yes").code == 130
    assert checkpoints(home, ended) == 2, "a half deleted one is no checkpoint"
    assert "2 checkpoints" in gpubroker("jobs", "prune", "--keep", "0s", "--dry-run").out, "its files are still found"
    assert gpubroker("jobs", "prune", "--keep", "0s", "--yes").code == 0
    (only,) = (home / "runs" / ended / "checkpoints").iterdir()
    assert only.name.endswith("step_3")


KEEPS = """\
version: 1
policy: short
defaults: {keep_checkpoints: 1s, keep_results: 1s, keep_logs: 30d}
"""
WRITES = f"{SAVES}; echo kept > $GPUBROKER_OUTPUT_DIR/result.txt; echo said"


@pytest.fixture
def finished(reconciled_by: Callable[[ModuleType], None], gpubroker: Any, tmp_path: Path) -> str:
    """A job that has ended and left checkpoints, a result and its log; its id."""
    reconciled_by(follow)
    (tmp_path / "job.yaml").write_text(f"name: writer\nrun: |\n  {WRITES}\n")
    done = gpubroker("submit", "job.yaml", "--yes", "--json")
    assert done.code == 0, done
    return str(done.json["id"])


@pytest.mark.system
def test_the_policy_says_how_long_files_stay_and_it_is_shown(
    gpubroker: Any, home: Path, finished: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "files stay until `gpubroker jobs prune` or a policy deletes them" in gpubroker("status", finished).out
    (tmp_path / "policy.yaml").write_text(KEEPS)
    assert gpubroker("policy", "apply", "policy.yaml", "--yes").code == 0
    assert "results of ended jobs are kept for 1s" in gpubroker("policy", "show").out
    monkeypatch.setattr(SystemClock, "now", lambda _: datetime.now(UTC) + timedelta(days=1))
    shown = " ".join(gpubroker("status", finished).out.split())
    assert "by the policy: checkpoints are deleted, results are deleted, logs until" in shown
    would = gpubroker("jobs", "prune", "--keep", "90d", "--dry-run", "--json").json
    assert (would["deleted"], would["jobs"]) == (False, [])
    (one,) = would["by_policy"]
    assert (one["results"], one["logs"], one["checkpoints"]) == (2, 0, 2)
    assert gpubroker("jobs", "files", finished, "--json").json["files"]
    both = gpubroker("jobs", "prune", "--keep", "0s", "--dry-run", "--json").json
    assert [len(one["gone"]) for one in both["jobs"]] == [2]
    assert both["by_policy"][0]["checkpoints"] == 0, "each is counted once"

    assert gpubroker("jobs", "prune", "--keep", "90d", "--yes").code == 0
    assert gpubroker("jobs", "files", finished, "--json").json["files"] == []
    assert checkpoints(home, finished) == 1
    assert list((home / "runs" / finished / "attempts").glob("*/logs/*")), "their time is not over"
    assert gpubroker("jobs", "prune", "--keep", "90d", "--yes", "--json").json["by_policy"] == []
    assert "succeeded" in gpubroker("status", finished).out


@pytest.mark.system
def test_what_an_open_job_takes_as_input_stays(
    gpubroker: Any, home: Path, finished: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policy.yaml").write_text(KEEPS)
    assert gpubroker("policy", "apply", "policy.yaml", "--yes").code == 0
    after = f"name: reader\nafter: {{job: {finished}, inputs: ['*']}}\nrun: sleep 300\n"
    (tmp_path / "after.yaml").write_text(after)
    assert gpubroker("submit", "after.yaml", "--yes", "--detach").code == 0
    monkeypatch.setattr(SystemClock, "now", lambda _: datetime.now(UTC) + timedelta(days=1))
    assert gpubroker("jobs", "prune", "--keep", "90d", "--dry-run", "--json").json["by_policy"] == []
