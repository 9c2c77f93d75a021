"""When a checkpoint of the program is finished, and which formats say of themselves that all of one is there."""

import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy
import pytest

from broker.agent.file_formats import is_whole
from broker.agent.scan import NOTES, Renames, Scanner, open_writers


class SeenScanner:
    """A scanner whose open writers and renames are told by the test."""

    def __init__(self, folder: Path) -> None:
        self.busy: set[str] = set()
        self.renamed: set[str] = set()
        self.scanner = Scanner(folder, lambda: self.busy, self._take)

    def _take(self) -> set[str]:
        taken, self.renamed = self.renamed, set()
        return taken

    def scan(self, **how: bool) -> list[str]:
        return [one.name for one in self.scanner.scan(**how)]


@pytest.fixture
def seen(tmp_path: Path) -> SeenScanner:
    return SeenScanner(tmp_path)


def test_two_scans_without_a_change(seen: SeenScanner, tmp_path: Path) -> None:
    (tmp_path / "step_1").write_text("a")
    assert seen.scan() == []
    (tmp_path / "step_1").write_text("ab")
    assert seen.scan() == [], "it changed"
    assert seen.scan() == ["step_1"]
    assert seen.scan() == ["step_1"], "until it is saved"
    seen.scanner.mark_saved(seen.scanner.scan()[0])
    assert seen.scan() == []
    (tmp_path / "step_1").write_text("abc")
    assert seen.scan() == []
    assert seen.scan() == ["step_1"], "a new content is a new checkpoint"


def test_an_open_writer_keeps_it_back(seen: SeenScanner, tmp_path: Path) -> None:
    (tmp_path / "step_1").write_text("a")
    seen.busy = {"step_1"}
    assert seen.scan() + seen.scan() + seen.scan() == []
    seen.busy = set()
    assert seen.scan() == ["step_1"]


def test_renamed_into_place_is_finished_at_once(seen: SeenScanner, tmp_path: Path) -> None:
    (tmp_path / "step_1").write_text("a")
    seen.renamed = {"step_1"}
    assert seen.scan() == ["step_1"]
    assert seen.scan() == ["step_1"], "also if saving it failed the first time"


def test_a_log_does_not_hold_up_a_file_that_is_replaced_again_and_again(seen: SeenScanner, tmp_path: Path) -> None:
    seen.busy, found = {"output.log"}, []
    for save in range(3):
        (tmp_path / "output.log").write_text("line\n" * (save + 1))
        (tmp_path / ".new").write_text(f"{save}")
        (tmp_path / ".new").rename(tmp_path / "state.npz")
        seen.renamed = {"state.npz"}
        found += seen.scan()
    assert found == ["state.npz"], "the log goes on while the other is replaced twice"


@pytest.mark.parametrize("draft", ["default.orbax-checkpoint-tmp-3/array", "weights.bin.incomplete", "w.tmp"])
def test_a_folder_with_a_draft_in_it_counts_once_a_next_one_is_written(
    seen: SeenScanner, tmp_path: Path, draft: str
) -> None:
    for step in (7, 8):
        (tmp_path / f"{step}" / draft).parent.mkdir(parents=True)
        (tmp_path / f"{step}" / draft).write_text("a")
        os.utime(tmp_path / f"{step}" / draft, (step, step))
        for _ in range(3):
            assert seen.scan() == (["7"] if step == 8 else []), "the draft may be all that the program left"
    assert seen.scan(ended=True, killed=True) == ["7"]
    assert "has the name of a draft" in seen.scanner.problems["8"], "it is told"


@pytest.mark.parametrize("name", ["temp.bin", "tmp/a", "partial.json", "model.part-1", "w.tmp and w"])
def test_a_name_of_a_draft_that_is_no_draft_hides_no_checkpoint(seen: SeenScanner, tmp_path: Path, name: str) -> None:
    for file in name.split(" and "):
        (tmp_path / "step_7" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "step_7" / file).write_text("{}")
    assert seen.scan() + seen.scan() == ["step_7"]


def test_what_a_marker_beside_it_calls_unfinished_is_not_one_until_the_marker_is_gone(
    seen: SeenScanner, tmp_path: Path
) -> None:
    """As NeMo writes its checkpoints."""
    (tmp_path / "gpt--step=100-last-unfinished").touch()
    (tmp_path / "gpt--step=100-last.ckpt").write_text("weights")
    assert seen.scan() + seen.scan() == []
    (tmp_path / "gpt--step=100-last-unfinished").unlink()
    assert seen.scan() == ["gpt--step=100-last.ckpt"]


def test_what_was_cut_short_and_renamed_is_not_taken(seen: SeenScanner, tmp_path: Path) -> None:
    (tmp_path / "step_1.npy").write_bytes(written("npy")[:-1])
    seen.renamed = {"step_1.npy"}
    assert seen.scan() + seen.scan() + seen.scan(ended=True) == []
    assert "not whole" in seen.scanner.problems["step_1.npy"]


@pytest.mark.parametrize("draft", [".step_1", "step_1.tmp", "step_1.partial", "1.orbax-checkpoint-tmp-173"])
def test_unfinished_names_are_not_checkpoints_until_renamed(seen: SeenScanner, tmp_path: Path, draft: str) -> None:
    (tmp_path / draft).mkdir()
    (tmp_path / draft / "weights").write_text("a")
    assert seen.scan() + seen.scan() == []
    (tmp_path / draft).rename(tmp_path / "step_1")
    assert seen.scan() == ["step_1"], "also where the kernel tells nothing"


def test_the_helpers_note_says_finished_and_which_step(seen: SeenScanner, tmp_path: Path) -> None:
    (tmp_path / "latest").write_text("a")
    note = {"latest": {"inode": (tmp_path / "latest").stat().st_ino, "step": 77}}
    (tmp_path / NOTES).write_text(json.dumps(note))
    assert [(one.name, one.step) for one in seen.scanner.scan()] == [("latest", 77)]
    os.link(tmp_path / "latest", tmp_path / ".keep")  # so that the inode is not used again
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").write_text("another file")
    assert seen.scan() == [], "the note is about another file"


def test_empty_things_and_links_are_none_by_themselves(seen: SeenScanner, tmp_path: Path) -> None:
    (tmp_path / "marker").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "step_1").write_text("a")
    (tmp_path / "latest").symlink_to("step_1")
    assert seen.scan(ended=True) == ["step_1"]


def test_of_the_same_moment_the_higher_step_is_the_newer(seen: SeenScanner, tmp_path: Path) -> None:
    for name in ("step_10", "step_5", "step_9"):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, ns=(1, 1))
    assert seen.scan(ended=True) == ["step_5", "step_9", "step_10"]


def test_open_writers_are_found_in_every_session(tmp_path: Path) -> None:
    (tmp_path / "read").write_text("a")
    (tmp_path / "folder").mkdir()
    held = "import sys, pathlib; f = open(sys.argv[1], 'w'); print('open', flush=True); sys.stdin.read()"
    # As torchrun starts its workers: in a session of their own.
    worker = [sys.executable, "-c", held, str(tmp_path / "shard")]
    with (
        (tmp_path / "read").open(),
        (tmp_path / "folder" / "w").open("w"),
        (tmp_path / "append").open("a"),
        subprocess.Popen(worker, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        assert open_writers(tmp_path) == {"folder", "append", "shard"}
        process.communicate()
    assert open_writers(tmp_path) == set()


def test_what_is_written_in_place_with_pauses_is_one_checkpoint(tmp_path: Path) -> None:
    clock = [0.0]
    scanner = Scanner(tmp_path, set, quiet=16.0, now=lambda: clock[0])
    folder = tmp_path / "step_5"
    folder.mkdir()
    found = []
    for name in ("weights", "optimizer"):
        (folder / name).write_text(name)
        for _ in range(3):  # six seconds pass before the next file
            found += scanner.scan()
            clock[0] += 2
    assert found == [], "the program only paused"
    while not (found := scanner.scan()):
        clock[0] += 2
    assert [file.path for file in found[0].entries] == ["step_5/optimizer", "step_5/weights"]
    assert clock[0] >= 6 + 16


def test_a_large_file_that_became_smaller_is_taken_only_of_a_program_that_ended_well(tmp_path: Path) -> None:
    scanner = Scanner(tmp_path, set)
    (tmp_path / "model.bin").write_bytes(b"a" * (2 << 20))
    scanner.scan()
    scanner.mark_saved(scanner.scan()[0])
    (tmp_path / "model.bin").write_bytes(b"a" * (1 << 20))
    assert scanner.scan() + scanner.scan() + scanner.scan(ended=True, killed=True) == []
    assert "smaller" in scanner.problems["model.bin"]
    assert [one.name for one in scanner.scan(ended=True)] == ["model.bin"]


def test_a_format_that_says_it_is_whole_needs_no_quiet_time_and_one_that_is_not_whole_never_counts(
    tmp_path: Path,
) -> None:
    scanner = Scanner(tmp_path, set, quiet=3600.0)
    with zipfile.ZipFile(tmp_path / "step_1.pt", "w") as archive:
        archive.writestr("data.pkl", b"weights" * 100)
    whole = (tmp_path / "step_1.pt").read_bytes()
    (tmp_path / "step_2.pt").write_bytes(whole[:-30])
    assert scanner.scan() == []
    assert [one.name for one in scanner.scan()] == ["step_1.pt"]
    assert [one.name for one in scanner.scan(ended=True, killed=True)] == ["step_1.pt"], "even of a program that died"
    assert [one.name for one in scanner.scan(ended=True)] == ["step_1.pt"]
    assert "not whole" in scanner.problems["step_2.pt"]


def test_the_kernel_tells_of_renames(tmp_path: Path) -> None:
    watch = Renames(tmp_path)
    (tmp_path / "in place").write_text("a")
    (tmp_path / ".draft").write_text("a")
    (tmp_path / ".draft").rename(tmp_path / "ünïcode name")
    (tmp_path / ".folder").mkdir()
    (tmp_path / ".folder").rename(tmp_path / "folder")
    assert watch.since_last() == {"ünïcode name", "folder"}
    assert watch.since_last() == set()


def test_a_folder_that_is_gone_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        Scanner(tmp_path / "nowhere", set).scan()


def test_a_folder_of_torch_distributed_checkpoint_is_whole_with_its_metadata(tmp_path: Path) -> None:
    folder = tmp_path / "step_10"
    folder.mkdir()
    (folder / "__1_0.distcp").write_bytes(b"shard")
    assert is_whole(folder) is None, "another node writes the metadata"
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


def written(kind: str) -> bytes:
    """A complete file of that kind."""
    file = io.BytesIO()
    array = numpy.arange(30_000, dtype="f4")
    if kind == "npy":
        numpy.save(file, array)
    elif kind == "json":
        file.write(json.dumps({"step": 1, "losses": [0.5] * 300}).encode())
    elif kind == "tar":
        with tarfile.open(fileobj=file, mode="w:") as archive:
            member = tarfile.TarInfo("weights")
            member.size = 20_000
            archive.addfile(member, io.BytesIO(b"w" * member.size))
    elif kind == "hdf5":
        head = b"\x89HDF\r\n\x1a\n" + bytes([0, 0, 0, 0, 0, 8, 8, 0]) + bytes(8)
        file.write(head + b"".join(value.to_bytes(8, "little") for value in (0, 0, 4096)) + bytes(4096 - 48))
    else:
        pickle.dump({"step": 1, "model": array, "small": [1, "a"], "more": [array, array + 1]}, file, int(kind[-1]))
    return file.getvalue()


@pytest.mark.parametrize("kind", ["npy", "json", "tar", "hdf5", "pickle 4", "pickle 5"])
def test_a_file_that_was_cut_anywhere_is_not_whole(kind: str, tmp_path: Path) -> None:
    path, data = tmp_path / ("state.json" if kind == "json" else "step_1"), written(kind)
    path.write_bytes(data)
    assert is_whole(path) is (True if kind[:3] in ("npy", "pic") else None)
    complete = 21_000 if kind == "tar" else len(data)  # at the end of an archive there are only zeros
    for end in {*range(600, complete, max(1, len(data) // 50)), *range(complete - 3, complete)}:
        path.write_bytes(data[:end])
        assert is_whole(path) is False, end


def test_several_pickles_in_one_file_say_nothing_wrong(tmp_path: Path) -> None:
    (tmp_path / "step_1").write_bytes(written("pickle 4") * 2)
    assert is_whole(tmp_path / "step_1") is not False
    (tmp_path / "step_1").write_bytes(written("pickle 4") + b"raw bytes of tensors")
    assert is_whole(tmp_path / "step_1") is not False


@pytest.mark.parametrize("content", [b"", b"P", b"weights", b"\x80\x02pickle"])
def test_others_say_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "step_1").write_bytes(content)
    assert is_whole(tmp_path / "step_1") is None
