"""Files of ended jobs: their size in the store, and their deletion.

While a job runs, its agent keeps the newest checkpoints and deletes the others (`checkpoint.keep`). After the job's
end, checkpoints are deleted only on request, or after the time that the active policy keeps them, because they may be
the job's result.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import unquote, urlsplit

from broker.agent.checkpoints import FOLDER, check_sizes, delete, list_ids, manifest_path, read_manifest
from broker.agent.download import Torn
from broker.agent.formats import ATTEMPTS
from broker.agent.store import ObjectFolder
from broker.engines.runfolder.runfolder import reaching


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """One checkpoint in the store: its size in bytes, whether it is finished (has a manifest), and whether it is whole
    (every file of its manifest exists with its full size). The content is not read: that may be terabytes."""

    id: str
    size: int
    finished: bool
    whole: bool


def stored_checkpoints(folder: str) -> tuple[StoredCheckpoint, ...]:
    """The checkpoints in a job's folder (its URL), oldest first, including unfinished ones.

    Read-only. Raises `Unreachable`.
    """
    url_parts = urlsplit(folder)
    if url_parts.scheme == "file" and not Path(unquote(url_parts.path)).is_dir():
        return ()
    with reaching(folder):
        store, results = ObjectFolder.open(folder), []
        for checkpoint in list_ids(store):
            sizes = store.sizes(f"{FOLDER}/{checkpoint}")
            finished = manifest_path(checkpoint) in sizes
            whole = finished and _is_whole(store, checkpoint)
            results.append(StoredCheckpoint(checkpoint, sum(sizes.values()), finished, whole))
        return tuple(results)


def _is_whole(store: ObjectFolder, checkpoint: str) -> bool:
    try:
        check_sizes(store, read_manifest(store, checkpoint))
    except Torn:
        return False
    return True


def superfluous_checkpoints(stored: Sequence[StoredCheckpoint]) -> tuple[StoredCheckpoint, ...]:
    """All but the newest whole checkpoint.

    If none is whole, all but the newest finished one, which may still be usable.
    """
    newest_first = stored[::-1]
    newest = next((checkpoint for checkpoint in newest_first if checkpoint.whole), None)
    last = newest or next((checkpoint for checkpoint in newest_first if checkpoint.finished), None)
    return tuple(checkpoint for checkpoint in stored if checkpoint is not last)


def drop_checkpoints(folder: str, dropped: Sequence[StoredCheckpoint]) -> None:
    """As `checkpoints.delete`. May be repeated. Raises `Unreachable`."""
    with reaching(folder):
        delete(ObjectFolder.open(folder), [checkpoint.id for checkpoint in dropped])


class AttemptFiles(StrEnum):
    """Files of attempts in the run folder besides checkpoints and the records of their outcome."""

    RESULTS = "results"
    LOGS = "logs"


_PATTERNS = {
    AttemptFiles.RESULTS: re.compile(rf"{ATTEMPTS}/\d+/outputs(-\d+)?(/|\.json$)"),
    AttemptFiles.LOGS: re.compile(rf"{ATTEMPTS}/\d+/logs/"),
}


def attempt_files(folder: str) -> dict[AttemptFiles, dict[str, int]]:
    """The files of each kind in a job's folder (its URL): paths with their sizes in bytes. Raises `Unreachable`."""
    url_parts = urlsplit(folder)
    if url_parts.scheme == "file" and not Path(unquote(url_parts.path)).is_dir():
        return {}
    with reaching(folder):
        sizes = ObjectFolder.open(folder).sizes(ATTEMPTS)
    return {
        kind: {path: size for path, size in sizes.items() if pattern.match(path)} for kind, pattern in _PATTERNS.items()
    }


def drop_files(folder: str, paths: Collection[str]) -> None:
    """Delete these files, lists of results first, so that listed results always exist.

    May be repeated. Raises `Unreachable`.
    """
    with reaching(folder):
        store = ObjectFolder.open(folder)
        for path in sorted(paths, key=lambda name: not name.endswith(".json")):
            store.delete(path)
        for parent in {path.rpartition("/")[0] for path in paths if path.count("/") > 2}:
            store.drop_folder("/".join(parent.split("/")[:3]))
