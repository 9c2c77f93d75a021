"""Frameworks as they really save: their checkpoints are taken while they train, whole, and loaded by them again."""

import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from broker.agent.file_formats import is_whole
from tests.agent.node import Node

pytestmark = [
    pytest.mark.long,
    pytest.mark.system,
    pytest.mark.timeout(600),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (the extra `recipes`)"),
]
PROGRAMS = Path(__file__).parent / "frameworks"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


def trained(node: Node, program: str, steps: int, attempt: int) -> None:
    node.spec(f"{sys.executable} {PROGRAMS / program} {steps}", attempt, keep=50)
    assert node.start(attempt).wait(400) == 0, (node.said(len(node.processes) - 1), node.output(attempt))


def test_torch_distributed_checkpoint(node: Node) -> None:
    trained(node, "distributed_checkpoint.py", 3, 1)
    assert [one.step for one in node.runs.checkpoints()] == [1, 2, 3]
    assert all(len(one.files) == 102 for one in node.runs.checkpoints()), "shards, a file of bytes, and the metadata"
    trained(node, "distributed_checkpoint.py", 4, 2)
    assert "resumed at 3" in node.output(2)


def test_its_metadata_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `markers` goes by, seen from inside the real writer."""
    torch: Any = import_module("torch")
    checkpoint: Any = import_module("torch.distributed.checkpoint")
    place, seen = tmp_path / "step_5", list[bool | None]()
    real: Any = checkpoint.FileSystemWriter.finish

    def finish(self: object, **arguments: Any) -> None:
        seen.append(is_whole(place))
        real(self, **arguments)
        seen.append(is_whole(place))

    monkeypatch.setattr(checkpoint.FileSystemWriter, "finish", finish)
    writer: Any = checkpoint.FileSystemWriter(str(place))
    checkpoint.save({"w": torch.ones(8)}, storage_writer=writer, no_dist=True)
    assert seen == [False, True]


def test_torch_save_cut_off_anywhere_is_not_whole(tmp_path: Path) -> None:
    whole = tmp_path / "step_5.pt"
    torch: Any = import_module("torch")
    torch.save({"w": torch.ones(4096)}, whole)
    assert is_whole(whole) is True
    content = whole.read_bytes()
    for share in range(1, 20):
        whole.write_bytes(content[: len(content) * share // 20])
        assert is_whole(whole) is False, share


@pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed: pip install lightning")
def test_lightning(node: Node) -> None:
    trained(node, "lightning_trainer.py", 6, 1)
    assert [one.step for one in node.runs.checkpoints()] == [2, 4, 6]
    assert all(node.runs.verify(one.id) is None for one in node.runs.checkpoints())
    trained(node, "lightning_trainer.py", 8, 2)
    assert any("from step=6.ckpt to 8" in line for line in node.output(2)), node.output(2)
    assert [one.step for one in node.runs.checkpoints()] == [2, 4, 6, 8]
