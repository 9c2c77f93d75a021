"""The blocks of Python in the documents are run: with the store of a user, on this machine's CPUs instead of GPUs."""

import os
import pathlib
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpubroker
import pytest

from tests.docs.test_docs import DOCUMENTS, FENCE
from tests.program import ROOT, kill, processes

CPU = 'resources={"cpus": 1}'


def blocks(page: str) -> list[str]:
    """The page's blocks of Python, in order, on CPUs."""
    text = (ROOT / page).read_text("utf-8")
    return [re.sub(r'resources="[^"]+"', CPU, body) for language, body in FENCE.findall(text) if language == "python"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in list(os.environ):
        if name.startswith("GPUBROKER_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("GPUBROKER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GPUBROKER_ENGINES__LOCAL__REGISTER", str(tmp_path / "given"))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    kill(processes(tmp_path / "home"))


def test_every_page_with_python_is_run() -> None:
    """A page with a block of its own needs a test below."""
    pages = {path.relative_to(ROOT).as_posix() for path in DOCUMENTS if "\n```python\n" in path.read_text("utf-8")}
    assert pages == {"docs/python.md", "docs/checkpoints.md"}


@pytest.mark.system
def test_the_page_of_python_runs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "train.yaml").write_text("name: file\nresources: {cpus: 1}\nrun: echo from the file\nmax_duration: 10m\n")
    names: dict[str, Any] = {"__name__": "__main__"}
    walk, resumable = blocks("docs/python.md")
    exec(walk, names)
    printed = capsys.readouterr().out
    assert "['from the file']" in printed
    assert "{'rate': 0.001, 'loss': 0.002}\n{'rate': 0.0001, 'loss': 0.0002}" in printed
    exec(resumable, names)
    with gpubroker.Client() as client:
        job = client.submit(names["train"], 3, resources={"cpus": 1}, max_duration="10m", checkpoint={"every": "10m"})
        assert job.result(timeout="4m") == pytest.approx(0.9**3)


def test_the_loop_of_checkpoints_resumes_from_its_newest(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUBROKER_CHECKPOINT_DIR", str(home))
    torch = SimpleNamespace(
        load=lambda path: pickle.loads(path.read_bytes()),
        save=lambda state, path: path.write_bytes(pickle.dumps(state)),
    )
    (block,) = blocks("docs/checkpoints.md")
    training = block.replace("...\n", "step += 5\n")
    for steps in (5, 10, 15):
        names: dict[str, Any] = {"os": os, "pathlib": pathlib, "torch": torch, "new_state": dict}
        exec(training, names)
        assert names["step"] == steps
    assert sorted(path.name for path in home.glob("step*")) == ["step-10.pt", "step-15.pt", "step-5.pt"]
