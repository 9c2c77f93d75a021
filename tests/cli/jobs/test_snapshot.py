"""A submitted job runs the files that it was submitted with."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from broker.cli.jobs import follow as following
from tests.cli.conftest import Gpubroker

JOB = """\
name: mine
resources: {cpus: 1}
workdir: project
file_mounts: {conf/settings.txt: settings.txt, extra: ~/extra}
run: cat words.txt conf/settings.txt extra/more.txt; pwd; echo left > trace
work: 1m
max_duration: 10m
"""


@pytest.fixture
def reconciled(reconciled_by: Callable[[ModuleType], None]) -> None:
    reconciled_by(following)


@pytest.fixture
def project(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, its job file beside it, and more in the submitter's home folder."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "words.txt").write_text("as submitted\n")
    (tmp_path / "settings.txt").write_text("settings\n")
    (tmp_path / "ann" / "extra").mkdir(parents=True)
    (tmp_path / "ann" / "extra" / "more.txt").write_text("more\n")
    (tmp_path / "job.yaml").write_text(JOB)
    monkeypatch.setenv("HOME", str(tmp_path / "ann"))
    return root


def test_what_happens_to_the_source_after_submission_changes_nothing(
    gpubroker: Gpubroker, project: Path, reconciled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = gpubroker("submit", "job.yaml", "--yes", "--detach")
    assert done.code == 0, done.err
    assert "Files: 3 files, 27 B, from" in done.err
    (project / "words.txt").write_text("edited\n")
    (project.parent / "settings.txt").unlink()
    shutil.rmtree(project.parent / "ann")
    project.rename(project.with_name("renamed"))
    monkeypatch.setenv("HOME", "/nowhere")
    assert gpubroker("status", "mine", "--wait").code == 0
    *printed, folder = gpubroker("logs", "mine").out.splitlines()
    assert printed == ["as submitted", "settings", "more"]
    assert not Path(folder).exists(), "the attempt's own folder goes with it"
    assert [path.name for path in project.with_name("renamed").iterdir()] == ["words.txt"]


def test_the_commit_is_on_record_and_the_program_sees_it(gpubroker: Gpubroker, project: Path, reconciled: None) -> None:
    git = ("git", "-C", str(project), "-c", "user.name=ann", "-c", "user.email=ann@example.org")
    subprocess.run([*git[:3], "init", "--quiet", "--initial-branch=trial"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "first"], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    (project.parent / "job.yaml").write_text(JOB.replace("run: ", "run: echo commit $GPUBROKER_GIT_COMMIT; ls -a; "))
    done = gpubroker("submit", "job.yaml", "--yes")
    assert done.code == 0, done.err
    assert f"Git {commit[:10]} on trial." in done.err
    assert f"commit {commit}" in done.out
    assert ".git\n" not in done.out
    git_of = gpubroker("jobs", "files", "mine", "--submitted", "--json").json["git"]
    assert git_of == {"commit": commit, "branch": "trial", "dirty": False}


def objects(home: Path) -> dict[str, int]:
    return {str(path): path.stat().st_ino for path in home.glob("runs/snapshots-*/**/*") if path.is_file()}


def test_an_unchanged_folder_is_not_stored_again(gpubroker: Gpubroker, project: Path, home: Path) -> None:
    for _ in range(2):
        assert gpubroker("submit", "job.yaml", "--yes", "--detach").code == 0
    first = objects(home)
    assert len(first) == 3 + 3
    assert gpubroker("submit", "job.yaml", "--yes", "--detach").code == 0
    assert objects(home) == first
    assert all(path.stat().st_mode & 0o077 == 0 for path in home.glob("runs/snapshots-*"))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("workdir: nothing", "make the folder: mkdir -p "),
        ("file_mounts: {data: nothing}", "there is no file or folder"),
        ("file_mounts: {../data: settings.txt}", "outside of the working folder"),
        ("file_mounts: {/data: {source: ~/extra, name: bucket}}", "does not upload local files into a bucket"),
    ],
)
def test_paths_that_cannot_be_meant_are_refused(gpubroker: Gpubroker, project: Path, line: str, told: str) -> None:
    path = project.parent / "wrong.yaml"
    path.write_text(f"name: wrong\nresources: {{cpus: 1}}\nrun: x\n{line}\n")
    assert f"give a file in it: {path.with_name('job.yaml')}" in gpubroker("plan", path.parent).err
    for command in (("plan", path), ("submit", path, "--yes")):
        done = gpubroker(*command)
        assert done.code == 2
        assert told in done.err
        assert "wrong.yaml" in done.err


def test_what_cannot_be_taken_is_refused_before_money_is_held(
    gpubroker: Gpubroker, project: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    (project / "out").symlink_to("/etc/passwd")
    done: Any = gpubroker("submit", "job.yaml", "--yes", "--json")
    assert done.code == 2
    assert "points outside the folder" in done.json["error"]["message"]
    (project / "out").unlink()
    monkeypatch.setenv("GPUBROKER_MAX_SNAPSHOT", "20B")
    done = gpubroker("submit", "job.yaml", "--yes")
    assert done.code == 2
    assert "more than the limit of 20B" in done.err
    assert gpubroker("jobs", "list", "--json").json["jobs"] == []
    assert objects(home) == {}
