"""How a checkpoint comes to a node: several requests at a time, its own files only, a clear word on a full disk."""

import errno
import hashlib
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from obstore.store import MemoryStore

from broker.agent.checkpoints import (
    Manifest,
    SavedFile,
    TornForOneNode,
    check_sizes,
    checkpoint_id,
    files_for,
    prune,
    restore,
)
from broker.agent.download import Torn, WantedFile, check_room
from broker.agent.store import ObjectFolder, StoreTrouble
from broker.agent.supervise import INTERRUPTED
from broker.core.events.outcomes import Cause
from broker.engines.runfolder.retention import stored_checkpoints
from tests.agent.node import Node
from tests.fakes.throttled_s3 import ThrottledS3, content, sha256

AT = datetime(2026, 11, 25, tzinfo=UTC)


def checkpoint_of(sizes: dict[str, int], nodes: int = 1) -> tuple[dict[str, int], dict[str, bytes]]:
    """The objects of job ``j`` with one finished checkpoint of files of these sizes: by key, and those with content."""
    identity = checkpoint_id(1, 5, "step_5")
    digests = {size: sha256(size) for size in set(sizes.values())}
    place = f"team/j/checkpoints/{identity}"
    files = tuple(SavedFile(path, f"{identity}/rank-0/{path}", size, digests[size]) for path, size in sizes.items())
    manifest = Manifest(identity, "step_5", 1, 5, datetime(2026, 11, 25, tzinfo=UTC), nodes, files)
    objects = {f"{place}/rank-0/{path}": size for path, size in sizes.items()}
    return objects, {f"{place}/manifest.json": manifest.to_bytes()}


@pytest.fixture
def store() -> ObjectFolder:
    return ObjectFolder(MemoryStore())


def gang(store: ObjectFolder, step: int, files: dict[int, dict[str, bytes]]) -> str:
    """A checkpoint that these ranks saved together."""
    identity = checkpoint_id(1, step, f"step_{step}")
    saved = []
    for rank, own in files.items():
        for path, data in own.items():
            store.write(f"checkpoints/{identity}/rank-{rank}/{path}", data)
            digest = hashlib.sha256(data).hexdigest()
            saved.append(SavedFile(path, f"{identity}/rank-{rank}/{path}", len(data), digest, rank))
    manifest = Manifest(identity, f"step_{step}", 1, step, AT, len(files), tuple(saved))
    store.write(f"checkpoints/{identity}/manifest.json", manifest.to_bytes())
    return identity


def restored(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


class Layout(NamedTuple):
    """What two nodes save, and what node 1 is to get of node 0."""

    zero: tuple[str, ...]
    one: tuple[str, ...]
    shared: tuple[str, ...]


FRAMEWORKS = {
    "Hugging Face Trainer": Layout(
        ("c/model.safetensors", "c/optimizer.pt", "c/trainer_state.json", "c/rng_state_0.pth"),
        ("c/rng_state_1.pth",),
        ("c/model.safetensors", "c/optimizer.pt", "c/trainer_state.json"),
    ),
    "torch.distributed.checkpoint": Layout(
        ("c/.metadata", "c/__0_0.distcp"), ("c/__1_0.distcp",), ("c/.metadata", "c/__0_0.distcp")
    ),
    "DeepSpeed": Layout(
        ("c/mp_rank_00_model_states.pt", "c/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "c/latest"),
        ("c/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt",),
        ("c/mp_rank_00_model_states.pt", "c/latest"),
    ),
    "by the program": Layout(("c/weights", "c/rank-0/mine"), ("c/rank-1/mine",), ("c/weights",)),
    "only node 0": Layout(("c/weights",), (), ("c/weights",)),
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_node_gets_its_own_files_and_what_all_read(framework: str, store: ObjectFolder, tmp_path: Path) -> None:
    zero, one, shared = FRAMEWORKS[framework]
    gang(store, 5, {0: dict.fromkeys(zero, b"zero"), 1: dict.fromkeys(one, b"one")})
    assert restore(store, tmp_path / "1", 1, nodes=2).manifest is not None
    assert restored(tmp_path / "1") == {*one, *shared}
    assert restore(store, tmp_path / "alone", 0, nodes=1).manifest is not None
    assert restored(tmp_path / "alone") == {*zero, *one}, "another number of nodes reads them otherwise"


def test_of_a_path_that_both_saved_each_gets_its_own_and_reads_no_other(store: ObjectFolder) -> None:
    identity = gang(store, 5, {0: {"c/state": b"zero"}, 1: {"c/state": b"one"}})
    manifest = Manifest.from_bytes(store.read(f"checkpoints/{identity}/manifest.json") or b"")
    assert [file.rank for file in files_for(manifest, 1, 2)] == [1]
    assert [file.rank for file in files_for(manifest, 0, 2)] == [0]


def test_no_node_begins_where_another_cannot(store: ObjectFolder, tmp_path: Path) -> None:
    """Node 1 finds its own file changed; node 0, which does not read it, must not go on from there alone."""
    older = gang(store, 4, {0: {"c/rank-0/a": b"0"}, 1: {"c/rank-1/a": b"1"}})
    newest = gang(store, 5, {0: {"c/rank-0/a": b"0"}, 1: {"c/rank-1/a": b"1"}})
    store.write(f"checkpoints/{newest}/rank-1/c/rank-1/a", b"x")
    assert restore(store, tmp_path / "0", 0, nodes=2).manifest is not None, "it cannot know"
    with pytest.raises(TornForOneNode, match="SHA-256 mismatch"):
        restore(store, tmp_path / "1", 1, nodes=2)
    for rank in (0, 1):  # the next attempt
        found = restore(store, tmp_path / f"again-{rank}", rank, nodes=2)
        assert found.manifest is not None
        assert found.manifest.id == older
        assert found.passed_over == ((newest, "a node found a file of it changed"),)
    with pytest.raises(Torn):
        check_sizes(store, Manifest.from_bytes(store.read(f"checkpoints/{newest}/manifest.json") or b""))
    assert older not in prune(store, 1, 1), "it does not count as complete"


@pytest.mark.system
def test_a_gang_ends_when_one_node_cannot_restore_and_is_no_failure_of_the_job(node: Node) -> None:
    folder = ObjectFolder.open(node.runs.url)
    newest = gang(folder, 5, {0: {"c/rank-0/a": b"0"}, 1: {"c/rank-1/a": b"1"}})
    folder.write(f"checkpoints/{newest}/rank-1/c/rank-1/a", b"x")
    node.spec("sleep 300", attempt=2, nodes=2)
    both = [node.start(2, rank, "gang") for rank in (0, 1)]
    assert [one.wait(240) for one in both] == [INTERRUPTED, INTERRUPTED]
    assert node.ending(2).cause is Cause.MACHINE_LOST
    assert "SHA-256 mismatch" in node.ending(2).evidence
    assert not stored_checkpoints(node.runs.url)[-1].whole


@pytest.fixture
def throttled(monkeypatch: pytest.MonkeyPatch) -> ThrottledS3:
    objects, small = checkpoint_of({"step_5/large.bin": (40 << 20) + 7, **{f"step_5/{n}": 10 + n for n in range(60)}})
    return ThrottledS3(objects, small, rate=400e6)


def opened(server: ThrottledS3, monkeypatch: pytest.MonkeyPatch) -> ObjectFolder:
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("broker.agent.store._RETRY", {"max_retries": 0})
    return ObjectFolder.open("s3://runs/team/j")


def test_it_comes_in_several_requests_at_a_time_and_is_whole(
    throttled: ThrottledS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with throttled as server:
        found = restore(opened(server, monkeypatch), tmp_path, 0)
    assert found.manifest is not None
    assert server.most_at_once > 1
    large = (tmp_path / "step_5" / "large.bin").read_bytes()
    assert hashlib.sha256(large).digest() == hashlib.sha256(b"".join(content((40 << 20) + 7))).digest()
    assert len(restored(tmp_path)) == 61
    assert (tmp_path / "step_5" / "3").read_bytes() == b"".join(content(13))


@pytest.mark.parametrize("which", ["large.bin", "7"])
def test_one_changed_byte_is_found(
    which: str, throttled: ThrottledS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    throttled.changed |= {key for key in throttled.sizes if key.endswith(f"/{which}")}
    with throttled as server:
        found = restore(opened(server, monkeypatch), tmp_path, 0)
    assert found.manifest is None
    assert "SHA-256 mismatch" in found.passed_over[0][1]
    assert not restored(tmp_path), "nothing of it is left"


def test_a_store_that_fails_in_the_middle_is_asked_again(
    throttled: ThrottledS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with throttled as server:
        store = opened(server, monkeypatch)
        real, calls = ObjectFolder.stream, iter(range(1000))

        def failing(self: ObjectFolder, path: str, start: int = 0, at_once: int = 1) -> object:
            if next(calls) == 20:
                raise StoreTrouble("503")
            return real(self, path, start, at_once)

        monkeypatch.setattr(ObjectFolder, "stream", failing)
        with pytest.raises(StoreTrouble):
            restore(store, tmp_path, 0)
        assert not restored(tmp_path)
        assert restore(store, tmp_path, 0).manifest is not None


def test_a_disk_that_cannot_hold_it_is_told_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: ObjectFolder
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=5_000_000_000)
    monkeypatch.setattr("broker.agent.download.shutil.disk_usage", lambda folder: usage)
    wanted = [WantedFile("a", "a", 20_000_000_000, "", tmp_path / "a"), WantedFile("b", "b", 1 << 60, "")]
    with pytest.raises(
        OSError, match=r"20\.0 GB are needed and 5\.0 GB are free: ask for a larger `disk_size`"
    ) as found:
        check_room(tmp_path, wanted)
    assert found.value.errno == errno.ENOSPC
    check_room(tmp_path, wanted[1:])
