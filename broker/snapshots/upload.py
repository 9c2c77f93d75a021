"""Uploads a folder of the submitter's disk as a tree in the run store.

A file with new content is read twice: for its SHA-256, and for the upload, which must have the same hash. The tree's
list is written last, so an existing tree is complete; then nothing is uploaded. Calls may be repeated and may run
concurrently.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, TypeVar

from broker.agent.source_tree import TreeEntry, content_path, tree_bytes, tree_id, tree_path
from broker.agent.store import ObjectFolder, StoreTrouble
from broker.core.errors import InvalidInput, Unreachable
from broker.snapshots.collect import OWN, CollectedTree, DiskEntry, state_of

_Result = TypeVar("_Result")
_PIECE = 1 << 20
_SMALL = 8 << 20  # bytes; such a file is uploaded in one request
_ROOM = 16 << 20  # bytes of one upload in memory
_AT_ONCE = 8
_TRIES = 3  # attempts to read a folder that changes meanwhile

Progress = Callable[[int, int], None]
"""Called with the bytes done so far and in total, from any thread, one call at a time."""


class ContentPool(Protocol):
    """The place of trees and contents: an `ObjectFolder` of the run store, or one of a team server."""

    def exists(self, path: str) -> bool: ...

    def write(self, path: str, data: bytes) -> None: ...

    def upload(self, path: str, pieces: Iterable[bytes], size: int = 0, room: int = 0) -> None: ...


class FileChanged(Exception):
    """A file changed while it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


def no_progress(done: int, total: int) -> None:
    """Does nothing: progress is not reported."""


def store_tree(
    look: Callable[[], CollectedTree], pool: Callable[[], ContentPool], progress: Progress = no_progress
) -> tuple[str, CollectedTree]:
    """Store the folder's tree in the pool; returns its id and its entries.

    ``look``: lists the folder (`collect`). If the folder changes during the upload, it is listed again, at most three
    times in total. Raises `InvalidInput` if it keeps changing or cannot be read, and `Unreachable` for the store.
    """
    changed = ""
    for _ in range(_TRIES):
        found = look()
        try:
            with reaching():
                return _stored(found, pool(), progress), found
        except FileChanged as error:
            changed = error.path
        except FileNotFoundError as error:
            changed = str(error.filename)
        except PermissionError as error:
            raise InvalidInput("cannot be read: permission denied", where=str(error.filename)) from error
    raise InvalidInput(
        f"{changed} changed while it was read, {_TRIES} times",
        where=str(found.root),
        hint=f"stop the program that writes it, or list it in {OWN} (same format as .gitignore)",
    )


def _stored(found: CollectedTree, pool: ContentPool, progress: Progress) -> str:
    told = _Told(progress, 2 * found.size)
    hashed = dict(_in_threads(lambda one: (one, _hash(one, told)), found.files))
    entries = [replace(one.entry, sha256=hashed[one]) if one in hashed else one.entry for one in found.entries]
    data = tree_bytes(entries)
    tree = tree_id(data)
    if not pool.exists(tree_path(tree)):
        contents = {content: one for one, content in hashed.items()}
        list(_in_threads(lambda item: _upload(pool, item[1], item[0], told), contents.items()))
        pool.write(tree_path(tree), data)
    told.all()
    return tree


def _hash(one: DiskEntry, told: _Told) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(one):
        digest.update(piece)
        told.add(len(piece))
    return digest.hexdigest()


def _upload(pool: ContentPool, one: DiskEntry, sha256: str, told: _Told) -> None:
    path = content_path(sha256)
    if pool.exists(path):
        told.add(one.entry.size)
        return
    digest = hashlib.sha256()

    def checked() -> Iterator[bytes]:
        for piece in _pieces(one):
            digest.update(piece)
            told.add(len(piece))
            yield piece
        if digest.hexdigest() != sha256:
            raise FileChanged(str(one.place))

    if one.entry.size <= _SMALL:
        pool.write(path, b"".join(checked()))
    else:
        pool.upload(path, checked(), one.entry.size, _ROOM)


def _pieces(one: DiskEntry) -> Iterator[bytes]:
    """The content. Raises FileChanged if the file changed since it was listed, before or during the read; OSError."""
    if state_of(one.place) != one.state:
        raise FileChanged(str(one.place))
    left = one.entry.size
    with one.place.open("rb") as file:
        while piece := file.read(min(_PIECE, left + 1)):
            left -= len(piece)
            if left < 0:
                raise FileChanged(str(one.place))
            yield piece
    if left or state_of(one.place) != one.state:
        raise FileChanged(str(one.place))


class _Told:
    """Sums the finished bytes and reports them to ``progress``."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self._done = min(self._done + size, self._total)
            self._progress(self._done, self._total)

    def all(self) -> None:
        self.add(self._total)


def _in_threads(do: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """The results of ``do`` for all items, several at a time; stops at the first exception."""
    with ThreadPoolExecutor(_AT_ONCE, "snapshot") as threads:
        running = [threads.submit(do, item) for item in items]
        try:
            for one in as_completed(running):
                yield one.result()
        finally:
            for one in running:
                one.cancel()


_Item = TypeVar("_Item")


@contextmanager
def reaching() -> Iterator[None]:
    """Turns StoreTrouble into `Unreachable`."""
    try:
        yield
    except StoreTrouble as error:
        raise Unreachable(str(error), hint="see GPUBROKER_RUNS and the credentials for it") from error


def entries_of(pool: ObjectFolder, tree: str) -> Sequence[TreeEntry]:
    """The entries of a stored tree. Raises `Unreachable`, `Malformed`."""
    from broker.agent.source_tree import TreeUnusable, read_tree
    from broker.core.errors import Malformed

    with reaching():
        try:
            return read_tree(pool, tree)
        except TreeUnusable as error:
            raise Malformed(str(error)) from error
