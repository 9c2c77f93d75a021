"""What a job leaves behind and what it was made from: `jobs files`, `get`, `diff`."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from stat import filemode
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from broker.agent.names import from_text
from broker.app.jobs import job_files
from broker.app.jobs.job_files import RemoteFile
from broker.cli.jobs import follow as following
from broker.core.errors import InvalidInput, RetryLater
from tests.cli.conftest import Gpubroker
from tests.cli.documents import check
from tests.counts import FULL

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

LETTERS = [byte for byte in range(1, 256) if byte != ord("/")]
WRITE = """\
import os, pathlib
for line in open("names"):
    name = bytes.fromhex(line)
    place = os.fsencode(os.environ["GPUBROKER_OUTPUT_DIR"]) + b"/" + name
    os.makedirs(os.path.dirname(place), exist_ok=True)
    pathlib.Path(os.fsdecode(place)).write_bytes(name)
    assert b"/" in name or os.path.exists(b"in " + name[:200])
"""
COUNT = """\
name: count
after: {job: odd, inputs: [.]}
run: echo "inputs:" $(find "$GPUBROKER_INPUT_DIR" -type f -print0 | tr -cd '\\0' | wc -c)
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
    assert "; 4 unchanged" in again.out


def test_results_are_fetched_beside_the_work_folder_and_not_into_it(
    done: Gpubroker, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".env").write_text("TOKEN=secret\n")
    job = done("jobs", "list", "--json").json["jobs"][0]["id"]
    monkeypatch.chdir(project)
    fetched = done("jobs", "get", job, "*.json")
    assert f"in ../{job}" in fetched.out, fetched.err
    assert (project.parent / job / "metrics.json").is_file()
    assert sorted(path.name for path in project.iterdir()) == [".env", "run.sh", "words.txt"]
    again = done("submit", "../job.yaml", "--yes", "--detach")
    told = " ".join((again.out + again.err).split())
    assert "Files: 2 files" in told
    assert "Not included:" in told


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
    listed = done("jobs", "files", "--checkpoints", "mine", "--json").json
    check("jobs-files-checkpoints", listed)
    ((name, step),) = [(one["name"], one["step"]) for one in listed["checkpoints"]]
    assert (name, step, listed["keep"]) == ("step_40", 40, 3)
    assert "checkpoint.keep" in done("jobs", "files", "--checkpoints", "mine").out
    for number, wanted in enumerate(("latest", "40", listed["checkpoints"][0]["checkpoint"])):
        assert done("jobs", "get", "mine", "--checkpoint", wanted, "--to", f"c{number}").code == 0
        assert (tmp_path / f"c{number}" / "step_40" / "w").read_text() == "weights\n"
    assert done("jobs", "get", "mine", "--checkpoint", "41").code == 2
    assert done("jobs", "get", "mine", "x", "--checkpoint", "40").code == 2


@pytest.mark.system
def test_what_a_job_was_submitted_with_and_how_two_differ(done: Gpubroker, project: Path) -> None:
    first = done("jobs", "list", "--json").json["jobs"][0]["id"]
    shown = done("jobs", "files", first, "--submitted", "--json").json
    check("jobs-files-submitted", shown)
    assert [entry["path"] for entry in shown["trees"][0]["entries"]] == ["run.sh", "words.txt"]
    assert "words.txt" in done("jobs", "files", first, "--submitted").out
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


def test_results_of_any_name_are_listed_and_fetched(
    gpubroker: Gpubroker, project: Path, tmp_path: Path, reconciled_by: Callable[[ModuleType], None]
) -> None:
    chance = Random(1)
    odd = [
        "Screenshot 3.04\u202fPM.png".encode(),
        "👩\u200d🔬".encode(),
        b"caf\xe9",
        b"a\nb\t\x1b[31m",
        b"b'x'",
        b"\\",
        b"%2F",
    ]
    odd += ["漢".encode() * 85, b"/".join([b"d" * 250] * 6), b"..x", b"~", b"\\", b"%2F", b"-rf", b"[1]*?"]
    odd += [bytes(chance.choices(LETTERS, k=chance.randint(1, 255))) for _ in range(30)]
    names = sorted({name for name in odd if name not in (b".", b"..")})
    (project / "names").write_text("\n".join(name.hex() for name in names))
    for name in names:
        if b"/" not in name:
            (project / os.fsdecode(b"in " + name[:200])).write_text("snapshot")
    (project / "write.py").write_text(WRITE)
    (tmp_path / "job.yaml").write_text("name: odd\nworkdir: project\nrun: python3 write.py\nmax_duration: 10m\n")
    reconciled_by(following)
    assert f"{len(names)} results saved" in gpubroker("submit", "job.yaml", "--yes").out
    listed = gpubroker("jobs", "files", "odd", "--json").json["files"]
    assert sorted(os.fsencode(from_text(file["path"])) for file in listed) == names
    assert gpubroker("jobs", "get", "odd", "--to", "here", "--json").json["bytes"] == sum(map(len, names))
    assert all(Path(os.fsdecode(bytes(tmp_path / "here") + b"/" + name)).read_bytes() == name for name in names)
    (tmp_path / "next.yaml").write_text(COUNT)
    assert f"inputs: {len(names)}" in gpubroker("submit", "next.yaml", "--yes").out
    shown = gpubroker("jobs", "files", "odd").out
    assert all(escaped in shown for escaped in ("3.04\\u202fPM.png", "a\\nb\\t\\x1b[31m"))
    assert not set(shown) & set("\x1b\u200d\u202f")


TREE = """\
name: tree
outputs: [kept, link-to-other]
run: |
  mkdir -p kept/deep/empty kept/private other; chmod 711 kept/private
  echo 1 > kept/deep/run.sh; chmod 750 kept/deep/run.sh; echo 2 > kept/private/ro; chmod 440 kept/private/ro
  ln -s deep kept/folder-link; ln -s ../deep/run.sh kept/private/file-link; ln -s nowhere kept/dangling
  echo 3 > other/x; ln -s other link-to-other; ln -s ../../other/x kept/deep/to-other
  cp -a kept "$GPUBROKER_CHECKPOINT_DIR/.step_3"; rm "$GPUBROKER_CHECKPOINT_DIR/.step_3/deep/to-other"
  mv "$GPUBROKER_CHECKPOINT_DIR/.step_3" "$GPUBROKER_CHECKPOINT_DIR/step_3"
max_duration: 10m
"""


def tree(root: Path) -> dict[str, tuple[str, str]]:
    """Everything below the folder: mode and content, or target."""
    found = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        about = str(path.readlink()) if path.is_symlink() else path.read_text() if path.is_file() else ""
        found[path.relative_to(root).as_posix()] = filemode(info.st_mode), about
    return found


def test_links_empty_folders_and_modes_come_back(
    gpubroker: Gpubroker, home: Path, tmp_path: Path, reconciled_by: Callable[[ModuleType], None]
) -> None:
    (tmp_path / "tree.yaml").write_text(TREE)
    reconciled_by(following)
    done = gpubroker("submit", "tree.yaml", "--yes")
    assert done.code == 0, done.err
    assert gpubroker("jobs", "get", "tree", "--to", "here").code == 0
    wanted = {
        "deep/empty": ("drwxr-xr-x", ""),
        "deep/run.sh": ("-rwxr-x---", "1\n"),
        "folder-link": ("lrwxrwxrwx", "deep"),
        "private": ("drwx--x--x", ""),
        "private/ro": ("-r--r-----", "2\n"),
        "private/file-link": ("lrwxrwxrwx", "../deep/run.sh"),
        "dangling": ("lrwxrwxrwx", "nowhere"),
    }
    found = tree(tmp_path / "here" / "kept")
    assert {path: found[path] for path in wanted} == wanted
    assert found["deep/to-other"] == ("-rw-r--r--", "3\n"), "a link to what is no result has its content"
    assert (tmp_path / "here" / "link-to-other" / "x").read_text() == "3\n"
    assert gpubroker("jobs", "get", "tree", "--checkpoint", "latest", "--to", "saved").code == 0
    saved = tree(tmp_path / "saved" / "step_3")
    assert {path: saved[path] for path in wanted} == wanted
    assert "kept/folder-link → deep" in gpubroker("jobs", "files", "tree").out


NAMES = st.one_of(
    st.sampled_from([b"a", b"b", b"c", b".hidden", b"outputs.json", b".restore", b"..x", b"rank-1"]),
    st.binary(min_size=1, max_size=255).map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"_")),
).filter(lambda name: name not in (b".", b".."))
MODES = st.integers(0, 0o777)
FOLDER_MODES = MODES.map(lambda mode: mode | 0o700).filter(lambda mode: mode != 0o775)  # that of another usual umask
TARGETS = st.sampled_from([b"a", b"b", b"a/b", b"b/../a", b".", b"..", b"../..", b"../c/a", b"/etc", b"nowhere"])
LEAVES = st.one_of(
    st.tuples(st.just("file"), MODES.map(lambda mode: mode | 0o400), st.binary(max_size=20)),
    st.tuples(st.just("link"), st.just(0o777), TARGETS),
    st.tuples(st.just("pipe"), st.just(0o600), st.just(b"")),
)
Forest = dict[bytes, Any]
FORESTS = st.dictionaries(
    NAMES,
    st.recursive(
        LEAVES,
        lambda inner: st.tuples(st.just("folder"), FOLDER_MODES, st.dictionaries(NAMES, inner, max_size=4)),
        max_leaves=20,
    ),
    min_size=1,
    max_size=10,
)
PLANT = """\
import ast, os
def plant(root, forest):
    for name, (kind, mode, content) in forest.items():
        place = os.path.join(root, name)
        if kind == "link":
            os.symlink(content, place)
            continue
        if kind == "folder":
            os.mkdir(place)
            plant(place, content)
        elif kind == "pipe":
            os.mkfifo(place)
        else:
            open(place, "wb").write(content)
        os.chmod(place, mode)
plant(os.fsencode(os.environ["GPUBROKER_OUTPUT_DIR"]), ast.literal_eval(open("forest").read()))
"""


def entries(forest: Forest, above: bytes = b"") -> dict[bytes, tuple[str, bytes]]:
    found: dict[bytes, tuple[str, bytes]] = {}
    for name, (kind, mode, content) in forest.items():
        filetype = {"file": "-", "link": "l", "pipe": "p", "folder": "d"}[kind]
        is_folder = kind == "folder"
        found[above + name] = filetype + filemode(mode)[1:], b"" if is_folder else content
        found |= entries(content, above + name + b"/") if is_folder else {}
    return found


@pytest.mark.sampled
@settings(
    max_examples=10 if FULL else 2, suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.explicit, Phase.generate],
)  # fmt: skip
@given(forest=FORESTS)
def test_any_entries_are_saved_listed_and_fetched_or_the_log_names_them(
    gpubroker: Gpubroker, project: Path, tmp_path: Path, reconciled_by: Callable[[ModuleType], None], forest: Forest
) -> None:
    (project / "forest").write_text(repr(forest))
    (project / "plant.py").write_text(PLANT)
    (tmp_path / "job.yaml").write_text("name: any\nworkdir: project\nrun: python3 plant.py\nmax_duration: 10m\n")
    reconciled_by(following)
    story = gpubroker("submit", "job.yaml", "--yes").out
    job = gpubroker("jobs", "list", "--json").json["jobs"][0]["id"]
    to = tmp_path / job
    listed = gpubroker("jobs", "files", job, "--json").json["files"]
    assert f" {len(listed)} result{'s' if len(listed) > 1 else ''} saved" in story or not listed
    fetched = gpubroker("jobs", "get", job, "--to", str(to), "--json").json["files"] if listed else []
    assert len(fetched) == len(listed)
    found = {}
    for place in to.rglob("*"):
        is_file = place.is_file() and not place.is_symlink()
        content = os.fsencode(place.readlink()) if place.is_symlink() else place.read_bytes() if is_file else b""
        found[os.fsencode(place.relative_to(to))] = filemode(place.lstat().st_mode), content
    planted = entries(forest)
    lost = planted.keys() - found.keys()
    assert {path: entry for path, entry in planted.items() if path not in lost} == found
    assert ("not kept" in story) == bool(lost)


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
        job_files.fetch_files([remote(content, breaks_after=40)], tmp_path)
    assert not (tmp_path / "a" / "b").exists()
    present = job_files.fetch_files([remote(content)], tmp_path)
    assert (tmp_path / "a" / "b").read_bytes() == content
    assert (starts, present) == ([0, 40], 0)
    assert job_files.fetch_files([remote(content)], tmp_path) == 1
    assert starts == [0, 40], "what is there is not read again"


def test_a_download_of_other_content_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(RetryLater, match="changed while it was fetched"):
        job_files.fetch_files([remote(b"x" * 30, sha256="0" * 64)], tmp_path)
    assert list((tmp_path / "a").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    with pytest.raises(InvalidInput, match="cannot be written"):
        job_files.fetch_files([remote(b"x")], tmp_path)
