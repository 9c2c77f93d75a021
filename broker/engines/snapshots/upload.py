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

from broker.agent.entries import Changed, pieces
from broker.agent.source_tree import TreeEntry, content_path, tree_bytes, tree_id, tree_path
from broker.agent.store import ObjectFolder, StoreTrouble
from broker.core.errors import InvalidInput, Unreachable
from broker.engines.snapshots.collect import IGNORE_FILE, CollectedTree, DiskEntry, file_state

_Result = TypeVar("_Result")
_SMALL_FILE = 8 << 20  # bytes; such a file is uploaded in one request
_MAX_MEMORY = 16 << 20  # bytes of one upload in memory
_PARALLEL = 8
_TRIES = 3  # attempts to read a folder that changes meanwhile

Progress = Callable[[int, int], None]
"""Called with the bytes done so far and in total, from any thread, one call at a time."""


class ContentPool(Protocol):
    """The place of trees and contents: an `ObjectFolder` of the run store, or one of a team server."""

    def exists(self, path: str) -> bool: ...

    def write(self, path: str, data: bytes) -> None: ...

    def upload(self, path: str, pieces: Iterable[bytes], size: int = 0, room: int = 0) -> None: ...


def no_progress(done: int, total: int) -> None:
    """Does nothing: progress is not reported."""


def store_tree(
    list_folder: Callable[[], CollectedTree], pool: Callable[[], ContentPool], progress: Progress = no_progress
) -> tuple[str, CollectedTree]:
    """Store the folder's tree in the pool; returns its id and its entries.

    ``list_folder``: lists the folder (`collect`). If the folder changes during the upload, it is listed again, at most
    three times in total. Raises `InvalidInput` if it keeps changing or cannot be read, and `Unreachable` for the store.
    """
    changed_path = ""
    for _ in range(_TRIES):
        collected = list_folder()
        try:
            with store_errors():
                return _store(collected, pool(), progress), collected
        except Changed as error:
            changed_path = str(error)
        except FileNotFoundError as error:
            changed_path = str(error.filename)
        except PermissionError as error:
            raise InvalidInput("cannot be read: permission denied", where=str(error.filename)) from error
    raise InvalidInput(
        f"{changed_path} changed while it was read, {_TRIES} times",
        where=str(collected.root),
        hint=f"stop the program that writes it, or list it in {IGNORE_FILE} (same format as .gitignore)",
    )


def _store(collected: CollectedTree, pool: ContentPool, progress: Progress) -> str:
    reporter = _ByteProgress(progress, 2 * collected.size)
    hashes = dict(_in_threads(lambda file: (file, _hash(file, reporter)), collected.files))
    entries = [replace(file.entry, sha256=hashes[file]) if file in hashes else file.entry for file in collected.entries]
    data = tree_bytes(entries)
    tree = tree_id(data)
    if not pool.exists(tree_path(tree)):
        contents = {content: file for file, content in hashes.items()}
        list(_in_threads(lambda item: _upload(pool, item[1], item[0], reporter), contents.items()))
        pool.write(tree_path(tree), data)
    reporter.all()
    return tree


def _hash(file: DiskEntry, reporter: _ByteProgress) -> str:
    digest = hashlib.sha256()
    for piece in _pieces(file):
        digest.update(piece)
        reporter.add(len(piece))
    return digest.hexdigest()


def _upload(pool: ContentPool, file: DiskEntry, sha256: str, reporter: _ByteProgress) -> None:
    path = content_path(sha256)
    if pool.exists(path):
        reporter.add(file.entry.size)
        return
    digest = hashlib.sha256()

    def verified_pieces() -> Iterator[bytes]:
        for piece in _pieces(file):
            digest.update(piece)
            reporter.add(len(piece))
            yield piece
        if digest.hexdigest() != sha256:
            raise Changed(str(file.place))

    if file.entry.size <= _SMALL_FILE:
        pool.write(path, b"".join(verified_pieces()))
    else:
        pool.upload(path, verified_pieces(), file.entry.size, _MAX_MEMORY)


def _pieces(item: DiskEntry) -> Iterator[bytes]:
    """The content. Raises Changed if the file changed since it was listed, before or during the read; OSError."""
    if file_state(item.place) == item.state:
        yield from pieces(item.place, item.entry.size)
    if file_state(item.place) != item.state:
        raise Changed(str(item.place))


class _ByteProgress:
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


def _in_threads(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """The results of ``work`` for all items, several at a time; stops at the first exception."""
    with ThreadPoolExecutor(_PARALLEL, "snapshot") as threads:
        futures = [threads.submit(work, item) for item in items]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


_Item = TypeVar("_Item")


@contextmanager
def store_errors() -> Iterator[None]:
    """Turns StoreTrouble into `Unreachable`."""
    try:
        yield
    except StoreTrouble as error:
        raise Unreachable(str(error), hint="see GPUBROKER_RUNS and the credentials for it") from error


def entries_of(pool: ObjectFolder, tree: str) -> Sequence[TreeEntry]:
    """The entries of a stored tree. Raises `Unreachable`, `Malformed`."""
    from broker.agent.source_tree import TreeUnusable, read_tree
    from broker.core.errors import Malformed

    with store_errors():
        try:
            return read_tree(pool, tree)
        except TreeUnusable as error:
            raise Malformed(str(error)) from error
