"""The job's own files as they were at its submission: folders as lists of entries, contents by their SHA-256.

::

    <runs>/snapshots-<owner>/trees/<sha256>.json     a folder's entries; named by its own hash, written last
    <runs>/snapshots-<owner>/files/<ab>/<sha256>     one content, shared by all files that have it

A tree exists once its list exists: the list is written after every content that it names.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from broker.agent.download import Torn, WantedFile, fetch_one
from broker.agent.entries import FILE, apply_metadata, check_entry
from broker.agent.store import ObjectFolder

_VERSION = 1
_PARALLEL = 8  # files downloaded at a time: most are small, and each takes a request


class TreeUnusable(Exception):
    """A tree that cannot be unpacked completely, with the reason."""


@dataclass(frozen=True, order=True)
class TreeEntry:
    """One file, symbolic link or folder. ``path``: relative to the tree, with forward slashes. ``mode``: permission
    bits. ``size`` (bytes) and ``sha256`` of a file; ``target`` of a link, relative to the link."""

    path: str
    kind: str = FILE
    mode: int = 0o644
    size: int = 0
    sha256: str = ""
    target: str = ""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TreeEntry:
        path, kind = str(values["path"]), str(values["kind"])
        _, mode, target = check_entry(values, path)
        return cls(path, kind, mode, int(values.get("size", 0)), str(values.get("sha256", "")), target)


def tree_bytes(entries: Iterable[TreeEntry]) -> bytes:
    """The list as stored. The same tree always gives the same bytes."""
    rows = [
        {name: value for name, value in entry.__dict__.items() if value not in ("", 0) or name == "mode"}
        for entry in sorted(entries)
    ]
    return json.dumps({"version": _VERSION, "entries": rows}, sort_keys=True, separators=(",", ":")).encode()


def tree_id(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tree_path(tree: str) -> str:
    return f"trees/{tree}.json"


def content_path(sha256: str) -> str:
    return f"files/{sha256[:2]}/{sha256}"


def read_tree(pool: ObjectFolder, tree: str) -> tuple[TreeEntry, ...]:
    """The entries of a tree, folders before their content. Raises TreeUnusable, StoreTrouble."""
    data = pool.read(tree_path(tree))
    if data is None:
        raise TreeUnusable("the snapshot of the job's files is no longer in the run store")
    if tree_id(data) != tree:
        raise TreeUnusable("the snapshot's list differs from what was saved (SHA-256 mismatch)")
    return entries_in(data)


def entries_in(data: bytes) -> tuple[TreeEntry, ...]:
    """The entries of a stored list, folders before their content. Raises TreeUnusable."""
    try:
        return tuple(sorted(TreeEntry.from_json(row) for row in json.loads(data)["entries"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TreeUnusable(f"the snapshot's list cannot be read: {error!r}") from error


def unpack(pool: ObjectFolder, tree: str, into: Path, give_up: Callable[[], bool] = lambda: False) -> int:
    """Write the tree into the folder, which may exist already; returns the number of bytes written.

    Every content is verified.

    Links are created last, so that no file is written through a link of this tree. Raises GaveUp, TreeUnusable,
    StoreTrouble (may be repeated), OSError if the node's disk fails.
    """
    entries = read_tree(pool, tree)
    _make_folder(into)
    files = [entry for entry in entries if entry.kind == FILE]
    for entry in files:
        (into / entry.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ThreadPoolExecutor(_PARALLEL, "unpack") as pool_of_threads:
        running = [pool_of_threads.submit(_fetch, pool, entry, into / entry.path, give_up) for entry in files]
        try:
            for download in as_completed(running):
                download.result()
        except BaseException:
            for download in running:
                download.cancel()
            raise
    apply_metadata(into, entries)
    return sum(entry.size for entry in files)


def _fetch(pool: ObjectFolder, entry: TreeEntry, place: Path, give_up: Callable[[], bool]) -> None:
    file = WantedFile(content_path(entry.sha256), entry.path, entry.size, entry.sha256, place)
    try:
        fetch_one(pool, file, give_up)
    except Torn as error:
        raise TreeUnusable(str(error)) from None


def _make_folder(folder: Path) -> None:
    """Create the folder. If only root may create it, uses sudo, if that needs no password."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    except PermissionError:
        # Fixed arguments and no shell; if sudo is missing or refuses, the first error is raised.
        for command in (["mkdir", "-p", str(folder)], ["chown", str(os.geteuid()), str(folder)]):
            try:
                is_made = subprocess.run(["sudo", "-n", *command], capture_output=True, check=False).returncode == 0  # noqa: S603, S607
            except OSError:
                is_made = False
            if not is_made:
                raise
