"""What a job leaves behind and what it was made from: `jobs files`, `get`, `checkpoints`, `show --files`, `diff`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from broker.app.jobs import kept_files
from broker.app.jobs.kept_files import RemoteFile
from broker.cli.jobs import follow as following
from broker.core.errors import InvalidInput, RetryLater
from tests.cli.conftest import Gpubroker
from tests.cli.documents import check

JOB = """\
name: mine
resources: {cpus: 1}
workdir: project
outputs: [results/, '*.json']
run: |
  mkdir results
  python3 -c "import sys; sys.stdout.write('x' * 300000)" > results/large.txt
  cp words.txt results/; echo '{}' > metrics.json; echo folder > "$GPUBROKER_OUTPUT_DIR/model.bin"
  cd "$GPUBROKER_CHECKPOINT_DIR"; mkdir .one; echo weights > .one/w; mv .one step_40
work: 1m
max_duration: 10m
"""


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "words.txt").write_text("one\ntwo\n")
    (root / "run.sh").write_text("true\n")
    (tmp_path / "job.yaml").write_text(JOB)
    return root


@pytest.fixture
def done(gpubroker: Gpubroker, project: Path, reconciled_by: Callable[[ModuleType], None]) -> Gpubroker:
    """The same, once the job has run."""
    reconciled_by(following)
    ended = gpubroker("submit", "job.yaml", "--yes")
    assert ended.code == 0, ended.err
    assert "4 results saved" in ended.out
    assert "results: gpubroker jobs files mine-" in ended.out
    return gpubroker


def test_results_are_listed_and_fetched(done: Gpubroker, tmp_path: Path) -> None:
    listed = done("jobs", "files", "mine", "--json").json
    check("jobs-files", listed)
    paths = ["metrics.json", "model.bin", "results/large.txt", "results/words.txt"]
    assert [file["path"] for file in listed["files"]] == paths
    told = done("jobs", "files", "mine").out
    assert all(path in told for path in paths)
    assert "jobs get mine-" in told
    fetched = done("jobs", "get", "mine", "--to", "here", "--json").json
    check("jobs-get", fetched)
    assert (fetched["bytes"], fetched["present"]) == (300_000 + 8 + 3 + 7, 0)
    assert (tmp_path / "here" / "results" / "words.txt").read_text() == "one\ntwo\n"
    assert (tmp_path / "here" / "results" / "large.txt").stat().st_size == 300_000
    assert not list((tmp_path / "here").rglob("*.part"))
    again = done("jobs", "get", "mine", "--to", "here")
    assert "4 of them had not changed" in again.out


@pytest.mark.system
def test_some_results(done: Gpubroker, tmp_path: Path) -> None:
    job = done("jobs", "files", "mine", "--json").json["id"]
    assert done("jobs", "get", "mine", "results/").code == 0
    assert sorted(path.name for path in (tmp_path / job / "results").iterdir()) == ["large.txt", "words.txt"]
    assert done("jobs", "get", "mine", "*.json", "--json").json["files"] == ["metrics.json"]
    wrong = done("jobs", "get", "mine", "metric.json")
    assert wrong.code == 2
    assert "did you mean 'metrics.json'" in wrong.err
    assert done("jobs", "files", "mine", "--attempt", "2").code == 2


@pytest.mark.system
def test_checkpoints_are_listed_and_fetched(done: Gpubroker, tmp_path: Path) -> None:
    listed = done("jobs", "checkpoints", "mine", "--json").json
    check("jobs-checkpoints", listed)
    ((name, step),) = [(one["name"], one["step"]) for one in listed["checkpoints"]]
    assert (name, step, listed["keep"]) == ("step_40", 40, 3)
    assert "checkpoint.keep" in done("jobs", "checkpoints", "mine").out
    for number, wanted in enumerate(("latest", "40", listed["checkpoints"][0]["checkpoint"])):
        assert done("jobs", "get", "mine", "--checkpoint", wanted, "--to", f"c{number}").code == 0
        assert (tmp_path / f"c{number}" / "step_40" / "w").read_text() == "weights\n"
    assert done("jobs", "get", "mine", "--checkpoint", "41").code == 2
    assert done("jobs", "get", "mine", "x", "--checkpoint", "40").code == 2


@pytest.mark.system
def test_what_a_job_was_submitted_with_and_how_two_differ(done: Gpubroker, project: Path) -> None:
    first = done("jobs", "list", "--json").json["jobs"][0]["id"]
    shown = done("jobs", "show", first, "--files", "--json").json
    check("jobs-show-files", shown)
    assert [entry["path"] for entry in shown["trees"][0]["entries"]] == ["run.sh", "words.txt"]
    assert "words.txt" in done("jobs", "show", first, "--files").out
    subprocess.run(["git", "init", "--quiet", "--initial-branch=trial", project], check=True)
    (project / "words.txt").write_text("one\nthree\n")
    (project / "new.bin").write_bytes(b"\0\1")
    (project / "run.sh").unlink()
    job = project.parent / "job.yaml"
    job.write_text(JOB.replace("work: 1m", "work: 2m"))
    assert done("submit", "job.yaml", "--yes", "--detach").code == 0
    second = done("jobs", "list", "--json").json["jobs"][0]["id"]
    found = done("jobs", "diff", first, second, "--json").json
    check("jobs-diff", found)
    assert [(file["path"], file["change"]) for file in found["files"]] == [
        ("new.bin", "added"),
        ("run.sh", "removed"),
        ("words.txt", "changed"),
    ]
    assert "-work: 1m" in found["job"]
    assert (found["git_before"], found["git_after"]) == (None, {"commit": None, "branch": "trial", "dirty": True})
    told = done("jobs", "diff", first, second).out
    assert "-two" in told
    assert "+three" in told
    assert "added new.bin" in told
    assert "run the same job" in done("jobs", "diff", first, first).out


def remote(content: bytes, path: str = "a/b", breaks_after: int | None = None, sha256: str = "") -> RemoteFile:
    import hashlib

    def read(start: int) -> Iterator[bytes]:
        starts.append(start)
        for position in range(start, len(content), 10):
            if breaks_after is not None and position >= breaks_after:
                raise RetryLater("the line broke")
            yield content[position : position + 10]

    return RemoteFile(path, len(content), sha256 or hashlib.sha256(content).hexdigest(), read)


starts: list[int] = []


def test_a_download_that_breaks_off_goes_on_where_it_stopped(tmp_path: Path) -> None:
    starts.clear()
    content = bytes(range(100))
    with pytest.raises(RetryLater):
        kept_files.fetch_files([remote(content, breaks_after=40)], tmp_path)
    assert not (tmp_path / "a" / "b").exists()
    done = kept_files.fetch_files([remote(content)], tmp_path)
    assert (tmp_path / "a" / "b").read_bytes() == content
    assert (starts, done.present) == ([0, 40], 0)
    assert kept_files.fetch_files([remote(content)], tmp_path).present == 1
    assert starts == [0, 40], "what is there is not read again"


def test_a_download_of_other_content_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(RetryLater, match="changed while it was fetched"):
        kept_files.fetch_files([remote(b"x" * 30, sha256="0" * 64)], tmp_path)
    assert list((tmp_path / "a").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    with pytest.raises(InvalidInput, match="cannot be written"):
        kept_files.fetch_files([remote(b"x")], tmp_path)
