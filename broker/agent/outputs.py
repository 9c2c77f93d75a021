"""Brings a job's results to the run folder: files that match ``outputs:``, and all below ``$GPUBROKER_OUTPUT_DIR``.

::

    attempts/<n>/outputs/<path>        the files of rank 0; of rank k below outputs-<k>
    attempts/<n>/outputs.json          the list of files, with sizes and SHA-256; of rank k outputs-<k>.json

A file is uploaded once it is unchanged over two scans, in the same way again after each later change, every minute
while it keeps changing, and at the end in any state. Files submitted with the job count as results only if they
changed. A link to something that is not a result counts as its target, if that is below the same folder. What cannot be
kept (links that lead out, sockets, unreadable files) is reported once.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, Callable, TypeVar

from broker.agent.clock import from_text, to_text
from broker.agent.entries import (
    FILE,
    FOLDER,
    Changed,
    DiskEntry,
    StoredEntry,
    check_entry,
    entries_at,
    pieces,
    stays_inside,
    with_targets,
)
from broker.agent.formats import VERSION, BadDocument, attempt_path, parsing, rank_document
from broker.agent.names import object_path
from broker.agent.rank import RankContext
from broker.agent.saver import upload_room
from broker.agent.store import ROOM, ObjectFolder, StoreTrouble

log = logging.getLogger("gpubroker-agent")
_Result = TypeVar("_Result")
_RESTLESS = 60.0  # seconds after which a file that keeps changing is uploaded in any case
_LONGEST_PAUSE = 60.0
_NAMED_AT_ONCE, _MOST_NAMED = 5, 100  # entries that cannot be kept, in one event and in all


@dataclass(frozen=True)
class OutputFile:
    """One result: a file, a link, or an empty folder.

    ``path``: as the program named it; ``object``: the path of a file in the attempt's folder; ``size``: bytes; ``at``:
    when the agent read it; ``target`` of a link.
    """

    path: str
    object: str
    size: int
    sha256: str
    at: datetime
    kind: str = FILE
    mode: int = 0o644
    target: str = ""

    def to_json(self) -> dict[str, Any]:
        return {**self.__dict__, "at": to_text(self.at)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> OutputFile:
        """Raises BadDocument, KeyError, TypeError, ValueError."""
        path, object_name, size = str(values["path"]), str(values["object"]), int(values["size"])
        kind, mode, target = check_entry(values, path)
        if (kind == FILE and not stays_inside(object_name)) or ".." in Path(path).parts or size < 0:
            raise BadDocument(f"a path that leaves its folder: {path}")
        return cls(path, object_name, size, str(values["sha256"]), from_text(values["at"]), kind, mode, target)


def outputs_document(files: Sequence[OutputFile]) -> dict[str, Any]:
    return {"version": VERSION, "count": len(files), "files": [file.to_json() for file in files]}


def read_index(store: ObjectFolder, path: str) -> tuple[OutputFile, ...]:
    """The results in the document at ``path``. Raises StoreTrouble, and BadDocument unless it lists as many as the
    agent counted: a result that is missing from a list would be lost unnoticed."""
    with parsing(path):
        values = store.read_json(path) or {"files": (), "count": 0}
        files = tuple(OutputFile.from_json(row) for row in values["files"])
        if len(files) != values["count"]:
            raise BadDocument(f"it lists {len(files)} results, and the agent saved {values['count']}")
    return files


def key_of(entry: StoredEntry, within: str = "") -> str:
    """The key of an entry for `newest`."""
    return within + entry.path + ("/" if entry.kind == FOLDER else "")


def newest(results: Iterable[tuple[str, _Result]]) -> dict[str, _Result]:
    """Results by path; ``results``: by `key_of`. Later ones replace those at the same path, and files in whose place a
    folder is now, or the other way round."""
    last = {path: (number, value) for number, (path, value) in enumerate(results)}
    by_path: dict[str, _Result] = {}
    above = ""
    for path in sorted(last, key=lambda text: text.split("/")):
        if above and path.startswith(f"{above}/"):
            if last[path][0] < last[above][0]:
                continue
            del by_path[above]
        by_path[path], above = last[path][1], path
    return {path.rstrip("/"): value for path, value in by_path.items()}


@dataclass(frozen=True)
class _OutputOnDisk:
    place: Path
    entry: DiskEntry


class Outputs:
    """One rank's results: of the working folder ``work`` and of `$GPUBROKER_OUTPUT_DIR`."""

    def __init__(self, context: RankContext, work: Path) -> None:
        self._store, self._spec, self._rank, self._clock = context.store, context.spec, context.rank, context.clock
        self._work, self._folder, self._journal = work, context.scratch.outputs, context.journal
        self._wake = threading.Event()
        self._deadline: Callable[[], float] | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="outputs", daemon=True)
        self._initial: dict[str, DiskEntry] = {}
        self._last: dict[str, DiskEntry] = {}
        self._saved: dict[str, tuple[DiskEntry, float]] = {}
        self._left_out: set[str] = set()  # what cannot be kept, and was told
        self._since: dict[str, float] = {}  # when a file was first seen
        self._index: dict[str, OutputFile] = {}
        self._folders: set[str] = set()  # of the results in the index
        self._listed: Sequence[OutputFile] = ()
        self._unwritten = False
        self.unsaved: list[str] = []

    def adopt(self) -> None:
        """Treat the present files as inputs: they count as results only if they change."""
        results, self._left_out = self._outputs_on_disk()
        self._initial = {path: result.entry for path, result in results.items()}

    def start(self) -> None:
        """Upload results from now on."""
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
            self._journal.append("outputs_saved", files=len(self._listed), size=sum(file.size for file in self._listed))
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
        failures, interval = 0, self._spec.intervals.outputs
        while not self._stopped:
            last = self._deadline is not None
            if not last:
                self._wake.wait(min(interval * float(1 << min(failures, 10)), max(_LONGEST_PAUSE, interval)))
            elif failures:
                time.sleep(min(interval, 1.0))  # the last passes: pause before the store is used again
            self._wake.clear()
            last = self._deadline is not None
            is_complete = self._stopped or self._pass(last=last)
            failures = 0 if is_complete else failures + 1
            if last and (is_complete or self._deadline is None or time.monotonic() >= self._deadline()):
                return

    def _pass(self, *, last: bool) -> bool:
        """One scan and its uploads. False if something has to be repeated."""
        try:
            results, left_out = self._outputs_on_disk()
            self._report_left_out(left_out)
            due = [path for path, result in results.items() if self._is_due(path, result.entry, last=last)]
            self._last = {path: result.entry for path, result in results.items()}
            self.unsaved = list(due)
            for path in due:
                if self._stopped:
                    return True
                try:
                    self._upload(path, results[path])
                except FileNotFoundError:
                    pass  # the program removed it; an earlier upload stays
                except Changed:
                    if last:
                        return False  # only processes that outlived the command may still write
                    continue
                self.unsaved.remove(path)
            if self._unwritten:
                files = sorted(self._index.values(), key=lambda file: file.path)
                place = attempt_path(self._spec.attempt, rank_document("outputs.json", self._rank))
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

    def _is_due(self, path: str, state: DiskEntry, *, last: bool) -> bool:
        if self._initial.get(path) == state:
            return False
        now = time.monotonic()
        saved, at = self._saved.get(path, (None, self._since.setdefault(path, now)))
        if saved == state:
            return False
        return last or self._last.get(path) == state or now - at > _RESTLESS

    def _upload(self, path: str, result: _OutputOnDisk) -> None:
        folder = "outputs" if self._rank == 0 else f"outputs-{self._rank}"
        target, entry = f"{folder}/{object_path(path)}", result.entry
        digest, size, at = hashlib.sha256(), entry.size, self._clock.now()
        room = upload_room(size) if self._deadline is None else ROOM
        self._delete_replaced(entry, attempt_path(self._spec.attempt, target))
        attributes = entry.kind, entry.mode, entry.target
        if entry.kind == FILE:
            self._store.upload(
                attempt_path(self._spec.attempt, target), self._pieces(result, digest.update), size, room
            )
            self._index[path] = OutputFile(path, target, size, digest.hexdigest(), at, *attributes)
        else:
            self._index[path] = OutputFile(path, "", 0, "", at, *attributes)
        self._saved[path] = entry, time.monotonic()
        self._unwritten = True

    def _delete_replaced(self, entry: DiskEntry, target: str) -> None:
        """Delete results in whose place this one lies: a file that is a folder now, or the other way round."""
        path, is_file = entry.path, entry.kind != FOLDER
        folders = [parent.as_posix() for parent in PurePosixPath(path).parents][:-1]
        below = (
            [replaced for replaced in self._index if replaced.startswith(f"{path}/")]
            if is_file and path in self._folders
            else []
        )
        files = [folder for folder in folders if folder in self._index and self._index[folder].kind != FOLDER]
        for replaced in (*below, *files):
            if (removed := self._index.pop(replaced).object) != "":
                self._store.delete(attempt_path(self._spec.attempt, removed))
        if below:
            self._store.drop_folder(target)
        self._folders.update(folders)

    def _pieces(self, result: _OutputOnDisk, update: Callable[[bytes], object]) -> Iterator[bytes]:
        """The bytes of the file up to its size at the scan; the next scan finds later additions."""
        for piece in pieces(result.place, result.entry.size, lambda: self._stopped):
            update(piece)
            yield piece

    def _outputs_on_disk(self) -> tuple[dict[str, _OutputOnDisk], set[str]]:
        """All results by path; on a conflict, those of `$GPUBROKER_OUTPUT_DIR` count. And what cannot be kept, with the
        reasons."""
        left_out: set[str] = set()

        def tell(path: str, because: str, _: bool) -> None:
            left_out.add(f"{path}: {because}")

        def below(root: Path, places: Iterable[Path]) -> Iterator[tuple[str, _OutputOnDisk]]:
            entries = {entry for place in places for entry in entries_at(place, root, tell)}
            for entry in with_targets(sorted(entries), root, tell):
                yield key_of(entry), _OutputOnDisk(root / entry.path, entry)

        places = [place for pattern in self._spec.outputs for place in self._matching(pattern)]
        results = [*below(self._work, places), *below(self._folder, [self._folder])]
        return newest(results), left_out

    def _matching(self, pattern: str) -> list[Path]:
        if not pattern.strip("./"):
            return [self._work] if self._work.is_dir() else []
        path = self._work / pattern.rstrip("/")
        if path.is_symlink() or path.exists():  # also a name with characters of patterns
            return [path]
        return sorted(self._work.glob(pattern.rstrip("/")))

    def _report_left_out(self, left_out: set[str]) -> None:
        new = sorted(left_out - self._left_out)
        self._left_out |= left_out
        for at in range(0, min(len(new), _MOST_NAMED), _NAMED_AT_ONCE):
            self._trouble(f"not kept: {'; '.join(new[at : at + _NAMED_AT_ONCE])}")
        if len(new) > _MOST_NAMED:
            self._trouble(f"not kept: {len(new) - _MOST_NAMED} more")

    def _trouble(self, because: str) -> None:
        log.warning("output trouble: %s", because)
        self._journal.trouble("output_trouble", because)
