"""Deletes the content of a pool of snapshots that no job needs.

A tree's list is deleted before the contents that only it names, and no content is deleted that another tree's list
names. So a tree whose list exists is complete, even if a deletion is interrupted; the next one deletes the rest.

A list or a content is kept for `GRACE` after it was written, as its job may not be recorded yet. Deletions and uploads
exclude each other (``alone`` of `delete_unneeded`): an upload does not write a content that it finds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from broker.agent.source_tree import content_path, tree_path
from broker.agent.store import ObjectFolder
from broker.core.errors import BrokerError
from broker.engines.snapshots.upload import entries_of, store_errors

GRACE = timedelta(days=1)
_REWRITE_AGE = timedelta(hours=1)
_MAX_TURN_SECONDS = 2.0  # the maximum seconds that submissions wait
_PARALLEL, _BATCH = 8, 64  # contents deleted at a time, and between two checks of the time


class FilesInUse(BrokerError):
    """Files were being submitted all the time, so nothing more was deleted."""


@dataclass(frozen=True, slots=True)
class UnneededFiles:
    """The unneeded content of a pool: lists by the id of their tree, and contents by path, each with its bytes.

    ``stays``: the trees whose contents were excluded.
    """

    trees: Mapping[str, int]
    contents: Mapping[str, int]
    stays: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Total bytes."""
        return sum(self.trees.values()) + sum(self.contents.values())


def old_trees(pool: ObjectFolder, now: datetime) -> frozenset[str]:
    """The trees that are older than `GRACE`. ``now``: UTC. Raises `Unreachable`."""
    return frozenset(tree for tree, (_, at) in _trees(pool).items() if at < now - GRACE)


def keep_young(pool: ObjectFolder, trees: Iterable[str], now: datetime) -> None:
    """Write the lists of these trees again if they are older than an hour, so that they are kept until their job is
    recorded. ``now``: UTC. Raises `StoreTrouble`.
    """
    for tree in trees:
        at = pool.written_at(tree_path(tree))
        if at is not None and at < now - _REWRITE_AGE and (data := pool.read(tree_path(tree))) is not None:
            pool.write(tree_path(tree), data)


def unneeded_files(pool: ObjectFolder, deleted_trees: Collection[str], now: datetime) -> UnneededFiles:
    """The content to be deleted with these trees: their lists, and every content older than `GRACE` that no other tree
    names. ``now``: UTC. Raises `Unreachable`, and `Malformed` if a list cannot be read, as the contents of its tree are
    then unknown.
    """
    trees = _trees(pool)
    with store_errors():
        stored = pool.dated_sizes("files")
    deletable = {tree: size for tree, (size, at) in trees.items() if tree in deleted_trees and at < now - GRACE}
    kept_trees = trees.keys() - deletable.keys()
    named_contents = _named_contents(pool, kept_trees)
    old_contents = {
        path: size for path, (size, at) in stored.items() if at < now - GRACE and path not in named_contents
    }
    return UnneededFiles(deletable, old_contents, frozenset(kept_trees))


def delete_unneeded(
    pool: ObjectFolder,
    unneeded_content: UnneededFiles,
    now: datetime,
    needed_since: Callable[[], Collection[str]],
    alone: Callable[[], AbstractContextManager[bool]],
) -> UnneededFiles:
    """Delete the result of `unneeded_files`, in short turns; returns the deleted part, without content that has been
    needed since.

    ``now``: as passed to `unneeded_files`. ``needed_since``: returns the trees of open jobs and of later jobs; called
    in each turn. ``alone``: a block during which no files are submitted; yields false if there are submissions. May be
    repeated, and may be interrupted anywhere. Raises as `unneeded_files`, and `FilesInUse`.
    """
    trees, contents_left, known_trees = (
        dict(unneeded_content.trees),
        dict(unneeded_content.contents),
        set(unneeded_content.stays),
    )
    gone_trees, deleted = dict[str, int](), dict[str, int]()
    while trees or contents_left:
        with alone() as is_alone:
            if not is_alone:
                raise FilesInUse("files were being submitted all the time", hint="try again later")
            until = time.monotonic() + _MAX_TURN_SECONDS
            present, needed = _trees(pool), needed_since()
            kept_trees = {
                tree_name
                for tree_name, (_, at) in present.items()
                if tree_name not in trees or tree_name in needed or at >= now - GRACE
            }
            for path in _named_contents(pool, kept_trees - known_trees):
                contents_left.pop(path, None)
            known_trees |= kept_trees
            _delete(pool, {tree: tree_path(tree) for tree in present.keys() - kept_trees}, trees, gone_trees)
            trees.clear()
            while contents_left and time.monotonic() < until:
                _delete(pool, {path: path for path in islice(contents_left, _BATCH)}, contents_left, deleted)
    return UnneededFiles(gone_trees, deleted, unneeded_content.stays)


def _delete(pool: ObjectFolder, paths: Mapping[str, str], remaining: dict[str, int], deleted: dict[str, int]) -> None:
    with store_errors(), ThreadPoolExecutor(_PARALLEL, "snapshot") as threads:
        for name, _ in zip(paths, threads.map(pool.delete, paths.values()), strict=True):
            deleted[name] = remaining.pop(name)


def _named_contents(pool: ObjectFolder, trees: Iterable[str]) -> set[str]:
    """The paths of the contents that the lists of these trees name."""
    return {content_path(entry.sha256) for tree in trees for entry in entries_of(pool, tree) if entry.sha256}


def _trees(pool: ObjectFolder) -> dict[str, tuple[int, datetime]]:
    """The ids of trees, each with the bytes of its list and the time when it was written."""
    with store_errors():
        sizes = pool.dated_sizes("trees")
    return {path.rpartition("/")[2].removesuffix(".json"): value for path, value in sizes.items()}
