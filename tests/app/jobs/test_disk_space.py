"""No room for a job: it is refused beforehand, with nothing stored or held, wherever the disk fills up."""

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, event

from broker.app import runs_root
from broker.app.jobs.submit import submit
from broker.app.wiring import Broker
from broker.core.errors import InvalidInput, StoreProblem
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job
from tests.actors import ANN
from tests.program import GPUBROKER, environment, run

PATIENCE = 110.0  # a busy machine takes its time
POLICY = "version: 1\npolicy: test\nbudgets: [{name: pretend, amount: $100, period: month, counts: [sandbox]}]\n"


class DiskUsage(NamedTuple):
    total: int
    used: int
    free: int


def job(broker: Broker, extra: str = "") -> Job:
    text = f"name: j\nrun: 'true'\nresources: {{cpus: 1}}\nmax_duration: 10h\n{extra}"
    return parse_job(text, file="job.yaml", now=broker.clock.now())


def nothing_stored_or_held(broker: Broker) -> None:
    with broker.store.reading() as look:
        assert look.jobs() == []
        assert look.entries() == []
        assert look.decisions() == []


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[dict[Path, int]], None]:
    """How much is free on the disks of some folders; plenty elsewhere."""

    def has(free: dict[Path, int]) -> None:
        def usage(folder: Any) -> DiskUsage:
            return DiskUsage(10**13, 0, free.get(Path(folder), 10**12))

        monkeypatch.setattr(shutil, "disk_usage", usage)

    return has


def test_a_full_disk_under_the_store_or_the_run_folders(
    broker: Broker, disk: Callable[[dict[Path, int]], None], tmp_path: Path
) -> None:
    for folder, setting in ((tmp_path, "GPUBROKER_STORE"), (tmp_path / "runs", "GPUBROKER_RUNS")):
        disk({folder: runs_root.MIN_FREE_BYTES - 1})
        with pytest.raises(StoreProblem, match="no room for another job: 50 MB are free; expected 50 MB") as refused:
            submit(broker, job(broker), by=ANN)
        assert refused.value.where == str(folder)
        assert setting in refused.value.hint
        assert refused.value.exit_code == 2
    nothing_stored_or_held(broker)
    disk({tmp_path: runs_root.MIN_FREE_BYTES, tmp_path / "runs": runs_root.MIN_FREE_BYTES})
    assert submit(broker, job(broker), by=ANN).attempts


def test_a_checkpoint_must_fit_into_the_run_folder(
    broker: Broker, disk: Callable[[dict[Path, int]], None], tmp_path: Path
) -> None:
    large = job(broker, "checkpoint: {every: 10m, size: 14GB}\n")
    disk({tmp_path / "runs": 14 * 10**9})
    with pytest.raises(StoreProblem, match="expected 50 MB, and 14 GB for a checkpoint of this job"):
        submit(broker, large, by=ANN)
    nothing_stored_or_held(broker)
    disk({tmp_path / "runs": 15 * 10**9})
    assert submit(broker, large, by=ANN).attempts


@pytest.mark.parametrize("error", ["ENOSPC", "EDQUOT"])
def test_a_quota_is_met_although_the_disk_has_room(broker: Broker, monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    number = getattr(__import__("errno"), error)

    def refuse(descriptor: int, offset: int, length: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(StoreProblem, match=os.strerror(number)):
        submit(broker, job(broker), by=ANN)
    nothing_stored_or_held(broker)


def test_a_run_folder_that_cannot_be_written_to_is_another_matter(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    with pytest.raises(InvalidInput, match="run folders and checkpoints cannot be written there") as refused:
        submit(broker, job(broker), by=ANN)
    assert refused.value.where == str(tmp_path / "runs")


def test_a_disk_that_fills_up_while_it_is_written(broker: Broker) -> None:
    """The check was passed, and then the store may grow by so many pages and no more: until it is enough, each try
    leaves nothing at all."""
    broker.store.activate_policy({"test.yaml": POLICY}, by="test")
    sandboxed = job(broker, "constraints: {providers: [sandbox]}\n" + "envs: {LARGE: '" + "x" * 60_000 + "'}\n")
    limit: list[int] = []
    engine = broker.store._database.engine

    @event.listens_for(engine, "begin")
    def grow_no_further(connection: Connection) -> None:
        if connection.get_execution_options().get("gpubroker_writes") and limit:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar() or 0
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages + limit[0]}")

    refused: list[str] = []
    for pages in range(0, 400, 5):
        limit[:] = [pages]
        try:
            view = submit(broker, sandboxed, by=ANN)
        except StoreProblem as error:
            refused.append(str(error))
            limit.clear()
            with broker.store.reading() as look:
                assert look.jobs() == []
                assert look.entries() == []
        else:
            break
    assert refused
    assert all("the disk is full" in message for message in refused)
    assert view.attempts


@pytest.mark.system
def test_the_command_line_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    """A real process that may write no file larger than 900 kB."""
    home, file = tmp_path / "home", tmp_path / "job.yaml"
    file.write_text("name: j\nrun: 'true'\nresources: {cpus: 1}\n")
    assert run("jobs", "list", home=home, timeout=PATIENCE).returncode == 0  # the store is made while there is room

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (900_000, 900_000))

    done = subprocess.run(
        [*GPUBROKER, "submit", str(file), "--yes", "--detach", "--json"],
        env=environment(home),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        preexec_fn=limited,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "there is no room for another job" in json.loads(done.stdout)["error"]["message"]
    listed = run("jobs", "list", "--json", home=home, timeout=PATIENCE)
    assert json.loads(listed.stdout)["jobs"] == []
