"""Checkpoints in the job's folder: format, verification, restoring the newest, pruning.

::

    checkpoints/<id>/rank-<k>/<path>     the files of one rank
    checkpoints/<id>/part-<k>.json       that rank's files with sizes and SHA-256, written when all of them exist
    checkpoints/<id>/torn.json           a node of a gang found a changed file that the others do not read
    checkpoints/<id>/manifest.json       all parts; create-if-absent, by rank 0, when every part exists

A checkpoint exists once its manifest exists. Ids sort as text in the order of saving: attempt, highest step named so
far, count since that step. So the newest checkpoint sorts last even if a name contains no step (``resnet50.pt``) or is
saved repeatedly; and the ranks of a gang, which count independently, agree again at each new step. Checkpoints belong
to the job, so later attempts find them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Callable

from broker.agent import download
from broker.agent.clock import from_text, to_text
from broker.agent.download import Torn, WantedFile
from broker.agent.entries import FILE, PLAIN_FOLDER, apply_metadata, check_entry
from broker.agent.formats import VERSION, BadDocument
from broker.agent.names import safe_name
from broker.agent.store import ObjectFolder, to_bytes

FOLDER = "checkpoints"
_LARGEST_MANIFEST = 256 << 20  # bytes: about a million files
MIN_KEPT = 2  # the newest may turn out to be unusable
_NODE_LOCAL = re.compile(r"rng_state(_\d+)?\.pth|(bf16_|fp16_)?zero_pp_rank_\d+_mp_rank_\d+_optim_states\.pt")
_ID = re.compile(r"(\d{4,})-(\d{12})-(.+)")
_RANK_SUFFIX = re.compile(r"(rank|node|worker)[-_.=]?\d+")  # all ranks of a gang save under the same id
_MAX_STEP = 10**12 - 1  # the largest step that fits into an id; a longer number is a hash or a time, not a step


class TornForOneNode(Exception):
    """A file is torn that the other nodes of the gang do not read: they may restore a checkpoint that this
    node cannot.
    """


def checkpoint_id(attempt: int, step: int, name: str, count: int = 0) -> str:
    """``step`` and ``count`` are the `next_position` of the entry."""
    shared = _RANK_SUFFIX.sub(r"\1", name)
    return f"{attempt:04d}-{step:012d}-{count:06d}-{safe_name(shared)}"


def next_position(last: tuple[int, int], step: int | None) -> tuple[int, int]:
    """The place (step, count) of an entry after ``last``: its own step if that is a new maximum, else the next count of
    the same step.
    """
    if step is not None and last[0] < step <= _MAX_STEP:
        return step, 0
    return last[0], last[1] + 1


def attempt_of(checkpoint: str) -> int | None:
    """The number of the attempt that saved the checkpoint; None if the name is not an id."""
    match = _ID.fullmatch(checkpoint)
    return int(match[1]) if match else None


@dataclass(frozen=True)
class SavedFile:
    """One file, link or empty folder of a checkpoint. ``path`` is relative to the checkpoint folder of the node,
    ``object`` to that in the store, as an unchanged file may lie with an older checkpoint; ``size`` in bytes;
    ``modified``: when the program changed a file, in ns since 1970 by the machine's clock, 0 if unknown."""

    path: str
    object: str
    size: int
    sha256: str
    rank: int = 0
    kind: str = FILE
    mode: int = 0o644
    target: str = ""
    modified: int = 0

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SavedFile:
        path, object_path = str(values["path"]), str(values["object"])
        for text in (path, object_path):
            if text.startswith("/") or ".." in Path(text).parts:
                raise BadDocument(f"a path that leaves its folder: {text}")
        size, rank = int(values["size"]), int(values.get("rank", 0))
        entry = check_entry(values, path)
        return cls(path, object_path, size, str(values["sha256"]), rank, *entry, int(values.get("modified", 0)))


@dataclass(frozen=True)
class Manifest:
    """The content of a checkpoint. ``step``: from its name or the program, None if unknown."""

    id: str
    name: str
    attempt: int
    step: int | None
    at: datetime
    nodes: int
    files: tuple[SavedFile, ...]

    @property
    def contents(self) -> list[SavedFile]:
        """The entries that have an object in the store."""
        return [file for file in self.files if file.kind == FILE]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def to_bytes(self) -> bytes:
        files = [dict(file.__dict__) for file in self.files]
        return to_bytes({"version": VERSION, **self.__dict__, "at": to_text(self.at), "files": files})

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Raises BadDocument for an incomplete or malformed manifest."""
        try:
            values = json.loads(data)
            return cls(
                id=str(values["id"]),
                name=str(values["name"]),
                attempt=int(values["attempt"]),
                step=None if values["step"] is None else int(values["step"]),
                at=from_text(values["at"]),
                nodes=int(values["nodes"]),
                files=tuple(SavedFile.from_json(file) for file in values["files"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise BadDocument(f"its manifest cannot be read: {error!r}") from error


def list_ids(store: ObjectFolder) -> list[str]:
    """The ids of all checkpoints, oldest first, including those without a manifest. Raises StoreTrouble."""
    return [name for name in store.folders(FOLDER) if attempt_of(name) is not None]


def manifest_path(checkpoint: str) -> str:
    return f"{FOLDER}/{checkpoint}/manifest.json"


def read_manifest(store: ObjectFolder, checkpoint: str) -> Manifest:
    """Raises Torn if the manifest is missing or malformed, and StoreTrouble."""
    data = store.read(manifest_path(checkpoint), most=_LARGEST_MANIFEST)
    if data is None:
        raise Torn("it was never finished: it has no manifest")
    try:
        return Manifest.from_bytes(data)
    except BadDocument as error:
        raise Torn(str(error)) from error


def check_sizes(store: ObjectFolder, manifest: Manifest) -> None:
    """The fast check: every file exists with its full size. Raises Torn, StoreTrouble."""
    folders = {manifest.id, *(file.object.partition("/")[0] for file in manifest.contents)}
    sizes = {path: size for place in folders for path, size in store.sizes(f"{FOLDER}/{place}").items()}
    if _torn_path(manifest.id) in sizes:
        raise Torn("a node found a file of it changed")
    for file in manifest.contents:
        size = sizes.get(f"{FOLDER}/{file.object}")
        if size is None:
            raise Torn(f"{file.path} is missing")
        if size != file.size:
            raise Torn(f"{file.path} has {size} bytes instead of {file.size}")


def verify(store: ObjectFolder, checkpoint: str) -> Manifest:
    """Read all files and compare sizes and SHA-256. Raises Torn with the reason, and StoreTrouble."""
    manifest = read_manifest(store, checkpoint)
    check_sizes(store, manifest)
    download.fetch(store, [_to_download(file) for file in manifest.contents], lambda: False)
    return manifest


@dataclass(frozen=True)
class RestoreOutcome:
    """The outcome of a restore: the checkpoint (None: none verified), and the newer ones that failed verification."""

    manifest: Manifest | None
    passed_over: tuple[tuple[str, str], ...]


def restore(
    store: ObjectFolder, into: Path, rank: int, give_up: Callable[[], bool] = lambda: False, nodes: int = 1
) -> RestoreOutcome:
    """Restore the newest checkpoint that verifies into the folder, reading and checking in one pass.

    ``nodes``: of the gang that restores. Every rank gets the files of all ranks, as if saved into one shared folder,
    except those that only their own node reads (`files_for`). ``give_up`` is checked after each piece. Raises GaveUp
    (nothing is restored), TornForOneNode, StoreTrouble (repeat), OSError if the node's disk fails.
    """
    passed_over: list[tuple[str, str]] = []
    while checkpoint := _newest(store, [name for name, _ in passed_over]):
        try:
            return RestoreOutcome(_fetch(store, checkpoint, into, rank, nodes, give_up), tuple(passed_over))
        except Torn as reason:
            passed_over.append((checkpoint, str(reason)))
    return RestoreOutcome(None, tuple(passed_over))


def restore_from_other_job(
    store: ObjectFolder,
    checkpoint: str | None,
    into: Path,
    rank: int,
    give_up: Callable[[], bool] = lambda: False,
    nodes: int = 1,
) -> RestoreOutcome:
    """Restore a checkpoint of another job: the named one, else the newest that verifies. As `restore`, but raises Torn
    if there is none, because the job must not start from the beginning then."""
    if checkpoint is not None:
        return RestoreOutcome(_fetch(store, checkpoint, into, rank, nodes, give_up), ())
    outcome = restore(store, into, rank, give_up, nodes)
    if outcome.manifest is None:
        raise Torn("; ".join(reason for _, reason in outcome.passed_over) or "it has none")
    return outcome


def _newest(store: ObjectFolder, torn: Sequence[str]) -> str | None:
    """The newest checkpoint that is not in ``torn``. Lists the store each time: while a large checkpoint was read,
    another agent may have saved and pruned."""
    return next((checkpoint for checkpoint in reversed(list_ids(store)) if checkpoint not in torn), None)


def _fetch(
    store: ObjectFolder, checkpoint: str, into: Path, rank: int, nodes: int, give_up: Callable[[], bool]
) -> Manifest:
    manifest = read_manifest(store, checkpoint)
    check_sizes(store, manifest)
    staging = into / ".restore"  # the dot prevents a partial checkpoint from being taken for a complete one
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        own = files_for(manifest, rank, nodes)
        downloads = [_to_download(file, staging / file.path) for file in own if file.kind == FILE]
        download.check_room(staging, downloads)
        try:
            download.fetch(store, downloads, give_up)
        except Torn as reason:
            if len(own) == len(manifest.files):
                raise
            # The other nodes may have restored it by now, as they did not read this file.
            store.write(_torn_path(checkpoint), to_bytes({"version": VERSION, "rank": rank, "because": str(reason)}))
            raise TornForOneNode(f"{checkpoint}: {reason}") from None
        for folder in (place for place in staging.rglob("*") if place.is_dir()):
            folder.chmod(PLAIN_FOLDER)
        apply_metadata(staging, own)
        _set_times(staging, own)
        for entry in staging.iterdir():
            target = into / entry.name
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            entry.replace(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return manifest


def _set_times(root: Path, files: Sequence[SavedFile]) -> None:
    """Give files their times of change, and folders those of their newest file, because programs go by them; no later
    than now. Raises OSError."""
    times: dict[Path, int] = {}
    for file in files:
        if file.modified:
            path = Path(file.path)
            for place in (path, *list(path.parents)[:-1]):
                times[root / place] = max(times.get(root / place, 0), min(file.modified, time.time_ns()))
    for place, at in times.items():
        os.utime(place, ns=(at, at))


def files_for(manifest: Manifest, rank: int, nodes: int) -> list[SavedFile]:
    """The files that this node of a gang needs.

    If several nodes saved the same path, its own file. Of files that a framework reads only on the node that wrote
    them, its own, as long as the number of nodes is the same; otherwise all.
    """
    same_nodes = nodes == manifest.nodes
    by_path: dict[str, SavedFile] = {}
    for file in manifest.files:
        if file.rank != rank and same_nodes and is_node_local(file):
            continue
        if file.path not in by_path or file.rank == rank:
            by_path[file.path] = file
    return list(by_path.values())


def is_node_local(file: SavedFile) -> bool:
    """Whether only the node that saved the file reads it: the random-number states of the Hugging Face Trainer,
    DeepSpeed's optimizer shards, and files in a folder ``rank-<k>`` of node k. Shards of torch.distributed.checkpoint
    are read by all nodes, as each contains tensors that the others have not saved.
    """
    *folders, name = file.path.split("/")
    return f"rank-{file.rank}" in folders or _NODE_LOCAL.fullmatch(name) is not None


def _to_download(file: SavedFile, into: Path | None = None) -> WantedFile:
    return WantedFile(f"{FOLDER}/{file.object}", file.path, file.size, file.sha256, into)


def _torn_path(checkpoint: str) -> str:
    """The path of the mark that a node writes if it finds a changed file that the other nodes do not read."""
    return f"{FOLDER}/{checkpoint}/torn.json"


def prune(store: ObjectFolder, keep: int, attempt: int) -> list[str]:
    """Delete checkpoints older than the newest ``keep`` complete ones (at least two), manifest first, and unfinished
    ones of earlier attempts before the newest; returns the deleted ids. A torn checkpoint does not count as complete,
    and one that was replaced by another with the same files of its step does not count twice. Raises StoreTrouble; the
    next call deletes the rest.
    """
    ids, manifests = list_ids(store), list[Manifest]()
    seen_contents = set[object]()
    for checkpoint in reversed(ids):
        with contextlib.suppress(Torn):
            manifest = read_manifest(store, checkpoint)
            check_sizes(store, manifest)
            files = (file.object for file in manifest.files if file.path.partition("/")[0] == manifest.name)
            content = frozenset(files) or manifest.id
            if content not in seen_contents:
                seen_contents.add(content)
                manifests.append(manifest)
                if len(manifests) == max(MIN_KEPT, keep):
                    break
    else:
        return []
    kept_ids = {manifest.id for manifest in manifests}
    to_delete = []
    for checkpoint in (candidate for candidate in ids if candidate < manifests[0].id and candidate not in kept_ids):
        # Parts of this attempt may still be uploading, but not those of a checkpoint with complete ones after it.
        unfinished = attempt_of(checkpoint) != attempt and not store.exists(manifest_path(checkpoint))
        if checkpoint < manifests[-1].id or unfinished:
            to_delete.append(checkpoint)
    return delete(store, to_delete)


def delete(store: ObjectFolder, checkpoints: Sequence[str]) -> list[str]:
    """Delete these checkpoints, each manifest first, except files that other checkpoints share; returns the ids
    of those that are gone completely. Raises StoreTrouble; may be repeated."""
    shared_paths = set[str]()
    for checkpoint in set(list_ids(store)) - set(checkpoints):
        for name in store.files(f"{FOLDER}/{checkpoint}"):  # also parts of one that is not complete yet
            if name.endswith(".json"):
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                    document = store.read_json(f"{FOLDER}/{checkpoint}/{name}") or {}
                    shared_paths.update(f"{FOLDER}/{file['object']}" for file in document.get("files", ()))
    deleted = []
    for checkpoint in checkpoints:
        store.delete(manifest_path(checkpoint))
        paths = set(store.sizes(f"{FOLDER}/{checkpoint}"))
        for path in paths - shared_paths:
            store.delete(path)
        if not paths & shared_paths:
            store.drop_folder(f"{FOLDER}/{checkpoint}")
            deleted.append(checkpoint)
    return deleted
