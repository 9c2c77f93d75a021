"""Brings a job's results to the run folder: files that match ``outputs:``, and all below ``$GPUBROKER_OUTPUT_DIR``.

::

    attempts/<n>/outputs/<path>        the files of rank 0; of rank k below outputs-<k>
    attempts/<n>/outputs.json          the list of files, with sizes and SHA-256; of rank k outputs-<k>.json

A file is uploaded once it is unchanged over two scans, in the same way again after each later change, every minute
while it keeps changing, and at the end in any state. Files that the job was submitted with are no results unless they
changed. A symbolic link counts as its target, if the target is below the same folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, Callable, TypeVar

from broker.agent.clock import from_text, to_text
from broker.agent.formats import VERSION, BadDocument, attempt_path, ranked, reading
from broker.agent.names import object_path
from broker.agent.rank import RankContext
from broker.agent.saver import room_beside
from broker.agent.source_tree import stays_inside
from broker.agent.store import ROOM, ObjectFolder, StoreTrouble

log = logging.getLogger("gpubroker-agent")
_Result = TypeVar("_Result")
_PIECE = 1 << 20
_RESTLESS = 60.0  # seconds after which a file that keeps changing is uploaded in any case
_LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class OutputFile:
    """One result.

    ``path``: as the program named it; ``object``: its path in the attempt's folder; ``size``: bytes; ``at``: when the
    agent read it.
    """

    path: str
    object: str
    size: int
    sha256: str
    at: datetime

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "at": to_text(self.at)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> OutputFile:
        """Raises BadDocument, KeyError, TypeError, ValueError."""
        path, where, size = str(values["path"]), str(values["object"]), int(values["size"])
        if not (stays_inside(path) and stays_inside(where)) or ".." in Path(path).parts or size < 0:
            raise BadDocument(f"a path that leaves its folder: {path}")
        return cls(path, where, size, str(values["sha256"]), from_text(values["at"]))


def outputs_document(files: Sequence[OutputFile]) -> dict[str, Any]:
    return {"version": VERSION, "count": len(files), "files": [file.to_json() for file in files]}


def read_index(store: ObjectFolder, path: str) -> tuple[OutputFile, ...]:
    """The results in the document at ``path``. Raises StoreTrouble, and BadDocument unless it lists as many as the
    agent counted: a result that is missing from a list would be lost unnoticed."""
    with reading(path):
        values = store.read_json(path) or {"files": (), "count": 0}
        files = tuple(OutputFile.from_json(row) for row in values["files"])
        if len(files) != values["count"]:
            raise BadDocument(f"it lists {len(files)} results, and the agent saved {values['count']}")
    return files


def newest(found: Iterable[tuple[str, _Result]]) -> dict[str, _Result]:
    """Results by path. Later ones replace those at the same path, below it, or above it."""
    last = {path: (number, value) for number, (path, value) in enumerate(found)}
    chosen: dict[str, _Result] = {}
    above = ""
    for path in sorted(last, key=lambda one: one.split("/")):
        if above and path.startswith(f"{above}/"):
            if last[path][0] < last[above][0]:
                continue
            del chosen[above]
        chosen[path], above = last[path][1], path
    return chosen


State = tuple[int, int, int]  # size, time of change (ns), inode


@dataclass(frozen=True)
class _OutputOnDisk:
    place: Path
    state: State


class _OutputChanged(Exception):
    """A file changed while it was read."""


class Outputs:
    """One rank's results: of the working folder ``work`` and of `$GPUBROKER_OUTPUT_DIR`."""

    def __init__(
        self,
        here: RankContext,
        work: Path,
    ) -> None:
        self._store, self._spec, self._rank, self._clock = here.store, here.spec, here.rank, here.clock
        self._work, self._folder, self._journal = work, here.scratch.outputs, here.journal
        self._wake = threading.Event()
        self._deadline: Callable[[], float] | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="outputs", daemon=True)
        self._brought: dict[str, State] = {}
        self._last: dict[str, State] = {}
        self._saved: dict[str, tuple[State, float]] = {}
        self._since: dict[str, float] = {}  # when a file was first seen
        self._index: dict[str, OutputFile] = {}
        self._folders: set[str] = set()  # of the results in the index
        self._listed: Sequence[OutputFile] = ()
        self._unwritten = False
        self._told: str | None = None
        self.unsaved: list[str] = []

    def start(self) -> None:
        """Treat the present files as inputs: they are no results unless they change."""
        self._brought = {path: seen.state for path, seen in self._found().items()}
        self._thread.start()

    def finish(self, deadline: Callable[[], float]) -> None:
        """Upload new results after the command's end, retrying until ``deadline`` (monotonic; re-read), and stop."""
        if not self._thread.is_alive():
            return
        self._deadline = deadline
        self._wake.set()
        while self._thread.is_alive() and (left := deadline() - time.monotonic()) > 0:
            self._thread.join(min(left, 1.0))
        self._stopped = True
        if self._listed:
            self._journal.append("outputs_saved", files=len(self._listed), size=sum(one.size for one in self._listed))
        if self._unwritten:
            self._trouble("the list of results could not be saved")
        if self.unsaved:
            names = ", ".join(self.unsaved[:3]) + (" and more" if len(self.unsaved) > 3 else "")
            self._trouble(f"{len(self.unsaved)} not saved before the end: {names}")

    def abandon(self) -> None:
        """Write nothing any more."""
        self._stopped = True
        self._wake.set()

    def _run(self) -> None:
        failures, every = 0, self._spec.intervals.outputs
        while not self._stopped:
            last = self._deadline is not None
            if not last:
                self._wake.wait(min(every * float(1 << min(failures, 10)), max(_LONGEST_PAUSE, every)))
            elif failures:
                time.sleep(min(every, 1.0))  # the last passes: pause before the store is used again
            self._wake.clear()
            last = self._deadline is not None
            done = self._stopped or self._pass(last=last)
            failures = 0 if done else failures + 1
            if last and (done or self._deadline is None or time.monotonic() >= self._deadline()):
                return

    def _pass(self, *, last: bool) -> bool:
        """One scan and its uploads. False if something has to be repeated."""
        try:
            found = self._found()
            due = [path for path, seen in found.items() if self._is_due(path, seen.state, last=last)]
            self._last = {path: seen.state for path, seen in found.items()}
            self.unsaved = list(due)
            for path in due:
                if self._stopped:
                    return True
                try:
                    self._upload(path, found[path])
                except FileNotFoundError:
                    pass  # the program removed it; an earlier upload stays
                except _OutputChanged:
                    if last:
                        return False  # only processes that outlived the command may still write
                    continue
                self.unsaved.remove(path)
            if self._unwritten:
                files = sorted(self._index.values(), key=lambda one: one.path)
                place = attempt_path(self._spec.attempt, ranked("outputs.json", self._rank))
                self._store.write_json(place, outputs_document(files))
                self._listed, self._unwritten = files, False
            return True
        except StoreTrouble as error:
            self._trouble(str(error))
        except OSError as error:
            self._trouble(f"{error.filename or 'a result'} cannot be read: {error.strerror or error}")
        except Exception as error:  # a failure to save results must not end the job; recorded and retried
            log.exception("a pass over the outputs failed")
            self._trouble(f"unexpected: {error!r}")
        return False

    def _is_due(self, path: str, state: State, *, last: bool) -> bool:
        if self._brought.get(path) == state:
            return False
        now = time.monotonic()
        saved, at = self._saved.get(path, (None, self._since.setdefault(path, now)))
        if saved == state:
            return False
        return last or self._last.get(path) == state or now - at > _RESTLESS

    def _upload(self, path: str, seen: _OutputOnDisk) -> None:
        folder = "outputs" if self._rank == 0 else f"outputs-{self._rank}"
        where = f"{folder}/{object_path(path)}"
        digest, size, at = hashlib.sha256(), seen.state[0], self._clock.now()
        room = room_beside(size) if self._deadline is None else ROOM
        self._make_way(path, attempt_path(self._spec.attempt, where))
        self._store.upload(attempt_path(self._spec.attempt, where), self._pieces(seen, digest.update), size, room)
        self._saved[path] = seen.state, time.monotonic()
        self._index[path] = OutputFile(path, where, size, digest.hexdigest(), at)
        self._unwritten = True

    def _make_way(self, path: str, where: str) -> None:
        """Delete results in whose place this one lies: a file that is a folder now, or the other way round."""
        folders = [parent.as_posix() for parent in PurePosixPath(path).parents][:-1]
        below = [other for other in self._index if other.startswith(f"{path}/")] if path in self._folders else []
        for other in {*below, *folders} & self._index.keys():
            self._store.delete(attempt_path(self._spec.attempt, self._index.pop(other).object))
        if below:
            self._store.drop_folder(where)
        self._folders.update(folders)

    def _pieces(self, seen: _OutputOnDisk, take: Callable[[bytes], object]) -> Iterator[bytes]:
        """The bytes of the file up to its size at the scan; the next scan finds later additions."""
        with seen.place.open("rb") as file:
            left = seen.state[0]
            while left and not self._stopped:
                piece = file.read(min(_PIECE, left))
                if not piece:
                    break
                left -= len(piece)
                take(piece)
                yield piece
            if left:
                raise _OutputChanged

    def _found(self) -> dict[str, _OutputOnDisk]:
        """All results by path; on a conflict, those of `$GPUBROKER_OUTPUT_DIR` count."""
        found: dict[str, _OutputOnDisk] = {}
        if self._work.is_dir():
            for pattern in self._spec.outputs:
                for place in sorted(self._work.glob(pattern.rstrip("/"))) if pattern.strip("./") else [self._work]:
                    found.update(_files(place, self._work))
        found.update(_files(self._folder, self._folder))
        return found

    def _trouble(self, because: str) -> None:
        log.warning("output trouble: %s", because)
        if because != self._told:
            self._told = because
            self._journal.append("output_trouble", because=because)


def _files(place: Path, root: Path) -> Iterator[tuple[str, _OutputOnDisk]]:
    """The files at or below ``place``; unreadable ones are skipped."""
    inside = root.resolve()
    for file in _walk(place):
        try:
            if file.is_symlink() and not file.resolve().is_relative_to(inside):
                continue
            path = file.relative_to(root).as_posix()
            info = file.stat()
        except (OSError, ValueError):
            continue
        if file.is_file():
            yield path, _OutputOnDisk(file, (info.st_size, info.st_mtime_ns, info.st_ino))


def _walk(place: Path) -> Iterator[Path]:
    if not place.is_dir():
        yield place
        return
    for folder, _, names in os.walk(place):
        yield from (Path(folder) / name for name in sorted(names))
