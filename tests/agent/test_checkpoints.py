"""Checkpoints in a store: names, verification, restoring, letting go. In memory, no processes."""

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from broker.agent.checkpoints import (
    Manifest,
    SavedFile,
    checkpoint_id,
    list_ids,
    next_position,
    prune,
    restore,
    verify,
)
from broker.agent.download import GaveUp, Torn
from broker.agent.formats import BadDocument
from broker.agent.gpubroker_checkpoint import is_unfinished, step_of
from broker.agent.names import safe_name
from broker.agent.store import ObjectFolder


@pytest.fixture
def store() -> ObjectFolder:
    return ObjectFolder(MemoryStore())


def put(
    store: ObjectFolder, attempt: int, step: int, files: dict[str, bytes] | None = None, identity: str | None = None
) -> str:
    """A whole checkpoint of one rank."""
    name = f"step_{step}"
    identity = identity or checkpoint_id(attempt, step, name)
    saved = []
    for path, content in (files or {name: b"content"}).items():
        target = f"{identity}/rank-0/{path}"
        store.write(f"checkpoints/{target}", content)
        saved.append(SavedFile(path, target, len(content), hashlib.sha256(content).hexdigest()))
    manifest = Manifest(identity, name, attempt, step, datetime(2026, 1, 1, tzinfo=UTC), 1, tuple(saved))
    store.write(f"checkpoints/{identity}/manifest.json", manifest.to_bytes())
    return identity


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step_000120.pt", 120),
        ("checkpoint-500", 500),
        ("epoch=3-step=400.ckpt", 400),
        ("epoch_7", 7),
        ("llama-7b-checkpoint-500", 500),
        ("checkpoint-500-llama-7b", 500),
        ("model_12.h5", 12),
        ("last.ckpt", None),
        ("model.safetensors", None),
        ("iter_0001000", 1000),
        ("ckpt-12-of-40", 12),
        ("global_step10", 10),
        ("ep2-ba100-rank3.pt", 100),
        ("ckpt-7.data-00000-of-00001", 7),
        ("rl_model_1000000_steps.zip", 1000000),
        ("weights.05-0.32.hdf5", 5),
        ("200", 200),
        ("step_1700000000", 1700000000),
        ("zero_to_fp32.py", None),
        ("resnet50.pt", None),
        ("llama-7b", None),
        ("rank_3.pt", None),
        ("rng_state_0.pth", None),
        ("model-00001-of-00002.safetensors", None),
        ("latest_checkpointed_iteration.txt", None),
        ("events.out.tfevents.1700000000.host.12.0", None),
        ("run-1700000000", None),
    ],
)
def test_the_step_is_in_the_name(name: str, step: int | None) -> None:
    assert step_of(name) == step


@pytest.mark.parametrize(
    "name",
    [
        *(".step_1", "step_1.tmp", "step_1.partial", "200.orbax-checkpoint-tmp-1732835", "200.orbax-checkpoint-tmp"),
        *("tmp-checkpoint-500", "ckpt.pt.incomplete", "step_9.pt~", "~step_9.pt", "ckpt.pt.tmp.1234", "PARTIAL_7"),
        *("model.ckpt-1_temp", "step_5-unfinished", "model.pt.part", "tmpq3k_9x2a", "TmpStep320", "step230tmp"),
    ],
)
def test_a_draft_of_any_framework_is_known_by_its_name(name: str) -> None:
    assert is_unfinished(name)


@pytest.mark.parametrize("name", ["step_1", "attempt_3.pt", "template-5", "temp-0.7-step-3", "a~b"])
def test_other_names_are_no_drafts(name: str) -> None:
    assert not is_unfinished(name)


@given(st.lists(st.tuples(st.integers(1, 9999), st.integers(0, 10**12 - 1)), min_size=2, max_size=20, unique=True))
def test_ids_sort_by_age(ages: list[tuple[int, int]]) -> None:
    ids = [checkpoint_id(attempt, ordinal, f"step_{ordinal}") for attempt, ordinal in sorted(ages)]
    assert ids == sorted(ids)


@given(st.lists(st.none() | st.integers(-1, 50) | st.integers(-1, 10**20), min_size=1, max_size=30))
def test_whatever_the_names_say_the_newest_saved_is_the_newest(steps: list[int | None]) -> None:
    """Steps that jump back, numbers that are no steps, names without any, one name again and again."""
    place, ids = (0, 0), []
    for step in steps:
        place = next_position(place, step)
        ids.append(checkpoint_id(1, place[0], f"model-{step}", place[1]))
    assert ids == sorted(set(ids))


def test_ranks_that_counted_differently_agree_at_the_next_step() -> None:
    assert next_position((3, 0), 4) == next_position((3, 7), 4)


@pytest.mark.parametrize("name", ["model-7b.pt", "resnet50.pt", "last.ckpt", "ckpt_v2.pt"])
def test_one_name_saved_again_and_again(store: ObjectFolder, tmp_path: Path, name: str) -> None:
    """More often than one digit counts, next to another name with a higher number."""
    put(store, 1, 1000)
    place = (1000, 0)
    for save in range(1, 13):
        place = next_position(place, step_of(name))
        identity = checkpoint_id(1, place[0], name, place[1])
        put(store, 1, step_of(name) or 0, {name: b"%d" % save}, identity)
        assert identity not in prune(store, 3, 1), f"save {save} went at once"
    assert restore(store, tmp_path, 0).manifest is not None
    assert (tmp_path / name).read_bytes() == b"12"
    assert len(list_ids(store)) == 3


@given(st.binary(min_size=1, max_size=255).map(os.fsdecode).filter(lambda name: not {"/", "\0"} & set(name)))
def test_any_file_name_finds_its_place_in_a_store(name: str) -> None:
    store = ObjectFolder(MemoryStore())
    path = f"checkpoints/{safe_name(name)}/file"
    store.write(path, b"x")
    assert store.read(path) == b"x"
    assert store.folders("checkpoints") == [safe_name(name)]


def test_a_manifest_is_read_as_it_was_written(store: ObjectFolder) -> None:
    identity = put(store, 1, 5, {"step_5/a": b"1", "step_5/b": b"22"})
    manifest = verify(store, identity)
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest
    assert (manifest.size, manifest.step, manifest.attempt) == (3, 5, 1)


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "step_1/../../x"])
def test_a_manifest_cannot_write_outside_the_folder(path: str) -> None:
    with pytest.raises(BadDocument):
        SavedFile.from_json({"path": path, "object": "rank-0/x", "size": 1, "sha256": ""})


def test_restore_takes_the_newest_of_the_newest_attempt(store: ObjectFolder, tmp_path: Path) -> None:
    put(store, 1, 900, {"step_900": b"old"})
    put(store, 2, 10, {"step_10/weights": b"new", "step_10/deep/state": b"newer"})
    found = restore(store, tmp_path, 0)
    assert found.manifest is not None
    assert found.manifest.step == 10
    assert (tmp_path / "step_10" / "deep" / "state").read_bytes() == b"newer"
    assert [path.name for path in tmp_path.iterdir()] == ["step_10"], "no trace of the staging"


def test_restore_falls_back_over_everything_torn_and_says_why(store: ObjectFolder, tmp_path: Path) -> None:
    good = put(store, 1, 1)
    missing, short, wrong, half, headless = (put(store, 1, step) for step in (2, 3, 4, 5, 6))
    store.delete(f"checkpoints/{missing}/rank-0/step_2")
    store.write(f"checkpoints/{short}/rank-0/step_3", b"conten")
    store.write(f"checkpoints/{wrong}/rank-0/step_4", b"CONTENT")
    manifest = store.read(f"checkpoints/{half}/manifest.json") or b""
    store.write(f"checkpoints/{half}/manifest.json", manifest[:-20])
    store.delete(f"checkpoints/{headless}/manifest.json")
    found = restore(store, tmp_path, 0)
    assert found.manifest is not None
    assert found.manifest.id == good
    reasons = dict(found.passed_over)
    assert list(reasons) == [headless, half, wrong, short, missing], "newest first"
    assert reasons[missing] == "step_2 is missing"
    assert reasons[short] == "step_3 has 6 bytes instead of 7"
    assert reasons[wrong].startswith("step_4 differs from")
    assert reasons[half].startswith("its manifest cannot be read")
    assert reasons[headless] == "it was never finished: it has no manifest"
    assert [path.name for path in tmp_path.iterdir()] == ["step_1"], "nothing of the torn ones is left"
    for torn in reasons:
        with pytest.raises(Torn):
            verify(store, torn)


def test_told_to_stop_it_restores_nothing(store: ObjectFolder, tmp_path: Path) -> None:
    put(store, 1, 1)
    with pytest.raises(GaveUp):
        restore(store, tmp_path, 0, lambda: True)
    assert list(tmp_path.iterdir()) == []


def test_nothing_verifies(store: ObjectFolder, tmp_path: Path) -> None:
    torn = put(store, 1, 1)
    store.write(f"checkpoints/{torn}/rank-0/step_1", b"")
    found = restore(store, tmp_path, 0)
    assert found.manifest is None
    assert len(found.passed_over) == 1
    assert restore(ObjectFolder(MemoryStore()), tmp_path, 0) == type(found)(None, ())


def test_prune_keeps_the_newest_and_clears_what_was_never_finished(store: ObjectFolder) -> None:
    ids = [put(store, 1, step) for step in (1, 2, 3)]
    store.write("checkpoints/0001-000000000009-step_9/rank-0/step_9", b"half")  # the old attempt was killed here
    ids.append(put(store, 2, 4))
    store.write("checkpoints/0002-000000000005-step_5/rank-0/step_5", b"on its way")
    gone = prune(store, 2, 2)
    assert gone == [ids[0], ids[1], "0001-000000000009-step_9"]
    assert list_ids(store) == [ids[2], ids[3], "0002-000000000005-step_5"]
    assert prune(store, 2, 2) == []


def test_two_complete_ones_stay_whatever_is_asked_and_torn_ones_count_for_none(store: ObjectFolder) -> None:
    ids = [put(store, 1, step) for step in (1, 2, 3, 4)]
    for torn in ids[2:]:
        store.delete(f"checkpoints/{torn}/rank-0/step_{int(torn[5:17])}")
    assert prune(store, 1, 1) == []
    ids.append(put(store, 1, 5))
    assert prune(store, 1, 1) == ids[:1], "5 and 2 are complete"
    ids.append(put(store, 1, 6))
    assert prune(store, 1, 1) == ids[1:4]
    assert list_ids(store) == ids[4:]


def test_a_checkpoint_that_is_pruned_while_it_is_read_leads_to_the_one_saved_meanwhile(
    store: ObjectFolder, tmp_path: Path
) -> None:
    old = put(store, 1, 1)
    newer: list[str] = []

    def meanwhile() -> bool:
        if not newer:  # the agent of the attempt before still saves, and prunes
            newer.append(put(store, 1, 2))
            store.write(f"checkpoints/{old}/rank-0/step_1", b"gone")
        return False

    store.write(f"checkpoints/{old}/rank-0/step_1", b"changed")
    found = restore(store, tmp_path, 0, meanwhile)
    assert found.manifest is not None
    assert found.manifest.id == newer[0]


def test_an_unknown_key_of_a_newer_version_does_no_harm(store: ObjectFolder) -> None:
    identity = put(store, 1, 1)
    path = f"checkpoints/{identity}/manifest.json"
    document = json.loads(store.read(path) or b"")
    store.write_json(path, {**document, "version": 99, "novelty": True})
    assert verify(store, identity).step == 1
