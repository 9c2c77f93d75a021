"""Checkpoints of jobs that have ended: what they take in the store, and letting them go.

While a job goes on, its agent keeps the newest ones and deletes the others (`checkpoint.keep`). Afterwards nobody does
until somebody asks: what is there may be the job's result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from broker.agent.checkpoints import FOLDER, Torn, check_sizes, listed, manifest_path, read_manifest
from broker.agent.store import ObjectFolder, StoreTrouble
from broker.core.errors import Unreachable


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One checkpoint in the store: its size in bytes; whether it was finished (has a manifest), and whether it is
    whole: all that its manifest names is there in full length. What is in it is not read: that may be terabytes."""

    id: str
    size: int
    finished: bool
    whole: bool


def kept(folder: str) -> tuple[StoredCheckpoint, ...]:
    """The checkpoints in a job's folder (its URL), oldest first, those that were never finished included. Makes
    nothing. Raises `Unreachable`."""
    place = urlsplit(folder)
    if place.scheme == "file" and not Path(unquote(place.path)).is_dir():
        return ()
    with _reaching():
        store, found = ObjectFolder.open(folder), []
        for checkpoint in listed(store):
            sizes = store.sizes(f"{FOLDER}/{checkpoint}")
            finished = manifest_path(checkpoint) in sizes
            whole = finished and _is_whole(store, checkpoint, sizes)
            found.append(StoredCheckpoint(checkpoint, sum(sizes.values()), finished, whole))
        return tuple(found)


def _is_whole(store: ObjectFolder, checkpoint: str, sizes: Mapping[str, int]) -> bool:
    try:
        check_sizes(read_manifest(store, checkpoint), sizes)
    except Torn:
        return False
    return True


def superfluous(found: Sequence[StoredCheckpoint]) -> tuple[StoredCheckpoint, ...]:
    """All but the newest that is whole; where none is, but the newest that was finished: people may still get
    something out of it."""
    newest_first = found[::-1]
    newest = next((one for one in newest_first if one.whole), None)
    last = newest or next((one for one in newest_first if one.finished), None)
    return tuple(one for one in found if one is not last)


def drop(folder: str, doomed: Sequence[StoredCheckpoint]) -> None:
    """Delete them, each one's manifest first, so that half of one is none. May be repeated. Raises `Unreachable`."""
    with _reaching():
        store = ObjectFolder.open(folder)
        for one in doomed:
            store.delete(manifest_path(one.id))
            for path in store.sizes(f"{FOLDER}/{one.id}"):
                store.delete(path)
            store.drop_folder(f"{FOLDER}/{one.id}")


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except StoreTrouble as error:
        raise Unreachable(str(error), hint="see GPUBROKER_RUNS and the credentials for it") from error
