"""`gpubroker store backup` and `restore`."""

import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cli
from broker.app.jobs import jobs
from broker.app.service.passes import reconciler
from broker.app.wiring import Broker
from broker.cli.identity import process_actor
from broker.core.actors import ProcessAccount
from broker.core.events.outcomes import JobState
from broker.settings import read_settings
from broker.store.engine.leader import LeaderRole
from tests.cli.conftest import JOB
from tests.waiting import looks


@pytest.fixture
def broker(home: Path) -> Iterator[Broker]:
    opened = Broker(read_settings(), cli.registries(), ProcessAccount(process_actor().identity))
    yield opened
    opened.store.close()


def submit(gpubroker: Any, folder: Path, name: str, run: str = "echo hello") -> str:
    file = folder / f"{name}.yaml"
    file.write_text(JOB.replace("tiny", name).replace("echo hello", run))
    done = gpubroker("submit", file, "--yes", "--detach", "--json")
    assert done.code == 0, done.err
    return str(done.json["id"])


def names(gpubroker: Any) -> set[str]:
    return {job["name"] for job in gpubroker("jobs", "list", "--json").json["jobs"]}


def test_what_was_backed_up_is_restored_and_what_came_later_is_kept_beside(
    gpubroker: Any, home: Path, started: list[object], tmp_path: Path
) -> None:
    submit(gpubroker, tmp_path, "before")
    copied = gpubroker("store", "backup", "copy.db", "--json").json
    assert copied["path"] == str(tmp_path / "copy.db")
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    submit(gpubroker, tmp_path, "later")
    restored = gpubroker("store", "restore", "copy.db", "--yes", "--json").json
    assert names(gpubroker) == {"before"}
    assert restored["restored"]["newest_event"] == copied["newest_event"]
    again = gpubroker("store", "restore", restored["previous"]["path"], "--yes")
    assert again.code == 0, again.err
    assert "doctor --sweep" in again.err
    assert names(gpubroker) == {"before", "later"}
    lines = gpubroker("audit", "--json").json["lines"]
    assert [line["action"] for line in lines[:2]] == ["store.restore", "store.back_up"]


@pytest.mark.system
def test_a_job_that_runs_at_the_backup_goes_on_after_the_restore_and_is_billed_once(
    gpubroker: Any, home: Path, started: list[object], tmp_path: Path, broker: Broker
) -> None:
    go_on = tmp_path / "go-on"
    job = submit(gpubroker, tmp_path, "long", f"until test -e {go_on}; do sleep 0.05; done")
    first = reconciler(broker)
    for _ in looks("the job to run"):
        first.tick()
        if _state(broker, job) is JobState.RUNNING:
            break
    assert gpubroker("store", "backup", "copy.db").code == 0
    waiting = submit(gpubroker, tmp_path, "lost")
    first.close()
    assert gpubroker("store", "restore", "copy.db", "--yes").code == 0
    go_on.touch()
    second = reconciler(broker)
    for _ in looks("the job to end"):
        second.tick()
        with broker.store.reading() as look:
            if not list(look.unclosed()):
                break
    second.close()
    assert _state(broker, job) is JobState.SUCCEEDED
    assert waiting not in {one["id"] for one in gpubroker("jobs", "list", "--json").json["jobs"]}
    assert len(jobs.find(broker, job).attempts) == 1
    assert gpubroker("doctor", "--sweep").code == 0


def _state(broker: Broker, job: str) -> JobState:
    return jobs.find(broker, job).state


def test_nothing_is_overwritten_and_nothing_else_is_restored(gpubroker: Any, home: Path, tmp_path: Path) -> None:
    assert gpubroker("store", "backup", "copy.db").code == 0
    twice = gpubroker("store", "backup", "copy.db")
    assert (twice.code, "exists" in twice.err) == (3, True)
    assert gpubroker("store", "backup", "missing/copy.db").code == 2
    assert [one.name for one in tmp_path.glob(".copy.db*")] == []

    (tmp_path / "text.db").write_text("no database")
    shutil.copy(tmp_path / "copy.db", tmp_path / "newer.db")
    with sqlite3.connect(tmp_path / "newer.db") as newer:
        newer.execute("UPDATE alembic_version SET version_num = 'v9999'")
    whole = (tmp_path / "copy.db").read_bytes()
    (tmp_path / "half.db").write_bytes(whole[: len(whole) // 2])
    for name, why in {"text": "not a copy", "newer": "newer version", "half": "copy", "none": "not a copy"}.items():
        refused = gpubroker("store", "restore", f"{name}.db", "--yes")
        assert refused.code == 2, name
        assert why in refused.err
    assert "add --yes" in gpubroker("store", "restore", "copy.db").err


def test_it_is_refused_while_a_broker_runs(
    gpubroker: Any, home: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.app.service.store_copies._MAX_TRIES", 2)
    assert gpubroker("store", "backup", "copy.db").code == 0
    with broker.store.lead(LeaderRole.JOBS):
        refused = gpubroker("store", "restore", "copy.db", "--yes")
    assert refused.code == 3
    assert "gpubroker serve" in refused.err
