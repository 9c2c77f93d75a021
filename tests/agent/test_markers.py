"""Which formats say of themselves that all of a checkpoint is there."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from broker.agent.scan import is_whole


def test_a_folder_of_torch_distributed_checkpoint_is_whole_with_its_metadata(tmp_path: Path) -> None:
    folder = tmp_path / "step_10"
    folder.mkdir()
    (folder / "__0_0.distcp").write_bytes(b"shard")
    assert is_whole(folder) is False
    (folder / ".metadata").write_bytes(b"pickle")
    assert is_whole(folder) is True


def test_shards_below_a_folder_need_theirs_and_do_not_speak_for_the_rest(tmp_path: Path) -> None:
    shards = tmp_path / "checkpoint_0" / "pytorch_model_fsdp_0"
    shards.mkdir(parents=True)
    (shards / "__0_0.distcp").write_bytes(b"shard")
    assert is_whole(tmp_path / "checkpoint_0") is False
    (shards / ".metadata").write_bytes(b"pickle")
    assert is_whole(tmp_path / "checkpoint_0") is None


def test_a_checkpoint_of_the_hugging_face_trainer_is_whole_with_its_state(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-500"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert is_whole(folder) is None, "nothing says yet whose it is"
    (folder / "training_args.bin").write_bytes(b"not a zip")
    assert is_whole(folder) is False
    (folder / "trainer_state.json").write_text('{"global_step": 5')
    assert is_whole(folder) is False
    (folder / "trainer_state.json").write_text('{"global_step": 500}')
    assert is_whole(folder) is True
    (folder / "model.safetensors").write_bytes((99).to_bytes(8, "little") + b"{}")
    assert is_whole(folder) is False, "a shard of another rank is still on its way"


def test_a_model_that_a_trainer_saved_at_the_end_has_no_state(tmp_path: Path) -> None:
    folder = tmp_path / "final"
    folder.mkdir()
    (folder / "training_args.bin").write_bytes(b"not a zip")
    assert is_whole(folder) is None


@pytest.mark.parametrize("comment", [b"", b"PK and more"])
def test_a_zip_archive_ends_with_its_directory(tmp_path: Path, comment: bytes) -> None:
    path = tmp_path / "step_1.ckpt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = comment
        archive.writestr("archive/data.pkl", b"x" * 200_000)
    assert is_whole(path) is True
    path.write_bytes(path.read_bytes()[: -23 - len(comment)])
    assert is_whole(path) is False


@pytest.mark.parametrize("cut", [0, 1, 12, 30])
def test_safetensors_begin_with_their_length(tmp_path: Path, cut: int) -> None:
    about = {"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    header = json.dumps(about).encode()
    data = len(header).to_bytes(8, "little") + header + b"12345678"
    path = tmp_path / "model.safetensors"
    path.write_bytes(data[: len(data) - cut])
    assert is_whole(path) is (cut == 0)


@pytest.mark.parametrize("content", [b"", b"P", b"weights", b"\x80\x04pickle"])
def test_others_say_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "step_1").write_bytes(content)
    assert is_whole(tmp_path / "step_1") is None
