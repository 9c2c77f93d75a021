"""Makes finished checkpoints durable, in its own thread, without delaying training.

Store errors are retried with back-off and recorded in the journal; the last verified checkpoint is kept.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable

from broker.agent.checkpoints import (
    FOLDER,
    Manifest,
    SavedFile,
    attempt_of,
    checkpoint_id,
    list_ids,
    manifest_path,
    next_position,
    prune,
)
from broker.agent.entries import FILE, Changed, DiskEntry, pieces
from broker.agent.layout import FinishedCheckpoint
from broker.agent.names import object_path
from broker.agent.rank import RankContext
from broker.agent.scan import Scanner
from broker.agent.store import ROOM, StoreTrouble, to_bytes

log = logging.getLogger("gpubroker-agent")
_LONGEST_PAUSE = 60.0
_STEP_PREFIX = len(
    checkpoint_id(1, 0, "").rpartition("-")[0].rpartition("-")[0]
)  # characters of an id before its count


def upload_room(size: int) -> int:
    """The number of bytes of a checkpoint of this size that an upload may hold in memory: few for a small one, because
    the command needs the memory; 64 MiB (0.4 % of 16 GiB) for a large one, for speed.
    """
    return min(ROOM, size >> 8)


@dataclass(frozen=True)
class _FinishOptions:
    """The parameters of the last passes: see `Saver.finish`."""

    killed: bool
    hurry: bool
    deadline: Callable[[], float]


class Saver:
    """Scans and uploads until finished. ``fenced``: whether a newer attempt exists (may raise StoreTrouble); then
    nothing more is written and ``on_fenced`` is called. ``on_uploaded`` gets bytes and seconds of each checkpoint of
    this rank.
    """

    def __init__(
        self,
        context: RankContext,
        scanner: Scanner,
        fenced: Callable[[], bool],
        on_fenced: Callable[[], None],
        on_uploaded: Callable[[str, int, float], None] = lambda checkpoint, size, seconds: None,
    ) -> None:
        self._store, self._folder, self._scanner = context.store, context.scratch.checkpoints, scanner
        self._spec, self._rank, self._clock, self._journal = context.spec, context.rank, context.clock, context.journal
        self._fenced, self._on_fenced, self._on_uploaded = fenced, on_fenced, on_uploaded
        self._wake = threading.Event()
        self._final: _FinishOptions | None = None
        self._stopped = self._held = False
        self._thread = threading.Thread(target=self._run, name="saver", daemon=True)
        self._place = (0, 0)  # the place of the last saved checkpoint
        self._objects: dict[DiskEntry, SavedFile] = {}  # of the last checkpoint, and of one that is being uploaded
        self._waiting: dict[str, float] = {}  # gangs: ids without all their parts, each with the time since when
        self._files: tuple[SavedFile, ...] = ()  # of the last checkpoint
        self._writes = False  # whether this rank has checkpoints of its own
        self.last: Manifest | None = None
        self.has_saved = False  # whether any was saved in this attempt
        self.looked: Callable[[], None] = lambda: None  # called after each scan for checkpoints
        self.step: int | None = None  # highest step in a name
        self.unsaved: list[str] = []

    def start(self, resumed: Manifest | None) -> None:
        """Start. The folder's present content was restored and is already saved."""
        self._scanner.adopt()
        if resumed is not None:
            self.last, self.step = resumed, resumed.step
            self._writes = any(file.rank == self._rank for file in resumed.files)
        self._thread.start()

    def hold(self) -> None:
        """Stop scanning until `finish`: the command has ended for a reason that is not known yet."""
        self._held = True

    def go_on(self) -> None:
        """Continue scanning: another command begins."""
        self._held = False

    def finish(self, *, killed: bool, hurry: bool, deadline: Callable[[], float]) -> None:
        """The command is over: save finished checkpoints, retrying until ``deadline`` (monotonic; re-read, as it may
        move), and stop. ``hurry``: the machine goes away, and only the newest checkpoint matters.
        """
        self._final = _FinishOptions(killed, hurry, deadline)
        self._wake.set()
        while self._thread.is_alive() and (left := deadline() - time.monotonic()) > 0:
            self._thread.join(min(left, 1.0))
        self._stopped = True

    def abandon(self) -> None:
        """Write nothing any more."""
        self._stopped = True
        self._wake.set()

    def _run(self) -> None:
        failures = 0
        while not self._stopped:
            self._wake.wait(self._pause(failures))
            self._wake.clear()
            if self._stopped:
                return
            final = self._final
            if self._held and final is None:
                continue
            is_complete = self._pass(final)
            self.looked()
            failures = 0 if is_complete else failures + 1
            if final is not None and (is_complete or time.monotonic() >= final.deadline()):
                return

    def _pause(self, failures: int) -> float:
        scan = self._spec.intervals.scan
        if self._final:
            return min(scan, 1.0) if failures else 0.0
        return min(scan * float(1 << min(failures, 10)), max(_LONGEST_PAUSE, scan))

    def _pass(self, final: _FinishOptions | None) -> bool:
        """One scan and its uploads. False if something has to be repeated."""
        ended = final is not None
        try:
            pending = self._scanner.scan(ended=ended, killed=final is not None and final.killed)
        except OSError as error:
            self._trouble(f"the checkpoint folder cannot be read: {error.strerror or error}")
            if not ended or not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                return False
            pending = []  # the command deleted its folder and cannot recreate it now
        for because in self._scanner.problems.values():
            self._trouble(because)
        for because in self._scanner.omitted.values():
            self._journal.trouble("checkpoint_trouble", f"{because}; the rest is saved without it")
        if final is not None and final.hurry:
            pending = pending[-1:]
        self.unsaved = [finished.name for finished in pending]
        try:
            for finished in pending:
                if self._stopped:
                    return True
                self._save(finished)
                self.unsaved.remove(finished.name)
            return self._complete_gang(ended) if self._spec.nodes > 1 else True
        except StoreTrouble as error:
            self._trouble(str(error))
        except OSError as error:
            self._trouble(f"a checkpoint cannot be read: {error.strerror or error}")
        except Changed:
            return not ended  # the next scan finds it again
        except Exception as error:  # training continues whatever happens to a save; recorded and retried
            log.exception("a pass over the checkpoints failed")
            self._trouble(f"unexpected: {error!r}")
        return False

    def _trouble(self, because: str) -> None:
        log.warning("checkpoint trouble: %s", because)
        self._journal.trouble("checkpoint_trouble", because if self._final else f"{because}; the agent retries")

    def _save(self, finished: FinishedCheckpoint) -> None:
        if finished.step is not None:
            self.step = max(self.step or 0, finished.step)
        step, count = place = next_position(self._place, finished.step)
        checkpoint = checkpoint_id(self._spec.attempt, step, finished.name, count)
        began = time.monotonic()
        unsaved = [entry for entry in finished.entries if entry not in self._objects]
        size = sum(entry.size for entry in unsaved)
        for entry in unsaved:
            self._objects[entry] = self._upload(checkpoint, entry, size)
        if size == sum(entry.size for entry in finished.entries):  # otherwise a part of it was uploaded before
            self._on_uploaded(checkpoint, size, time.monotonic() - began)
        if self._check_fence():
            return
        entries = [*finished.entries, *(entry for entry in finished.earlier if entry in self._objects)]
        self._objects = {entry: self._objects[entry] for entry in entries}
        files = self._files = tuple(self._objects.values())
        self._put_part(checkpoint, finished.name, finished.step, files)
        if self._spec.nodes == 1:
            self._put_manifest(checkpoint, finished.name, finished.step, files, time.monotonic() - began)
        else:
            self._waiting.setdefault(checkpoint, time.monotonic())
        self._writes = True
        self._place = place
        self._scanner.mark_saved(finished)

    def _upload(self, checkpoint: str, entry: DiskEntry, total: int) -> SavedFile:
        """Upload one entry of a checkpoint of which ``total`` bytes are uploaded."""
        if entry.kind != FILE:
            return SavedFile(entry.path, "", 0, "", self._rank, entry.kind, entry.mode, entry.target)
        path, size = entry.path, entry.size
        target = f"{checkpoint}/rank-{self._rank}/{object_path(path)}"
        digest = hashlib.sha256()
        room = ROOM if self._final else upload_room(total)
        try:
            self._store.upload(f"{FOLDER}/{target}", self._pieces(entry, digest.update), size, room)
        except (FileNotFoundError, Changed) as error:
            self._discard(checkpoint)
            raise Changed(path) from error
        sha256 = digest.hexdigest()
        return SavedFile(path, target, size, sha256, self._rank, FILE, entry.mode, modified=entry.modified)

    def _pieces(self, entry: DiskEntry, update: Callable[[bytes], object]) -> Iterator[bytes]:
        """The file's content; raises Changed if it differs from the scan."""
        place = self._folder / entry.path
        for piece in pieces(place, entry.size, lambda: self._stopped):
            update(piece)
            yield piece
        info = place.stat()
        if (info.st_size, info.st_mtime_ns, info.st_ino) != (entry.size, entry.modified, entry.inode):
            raise Changed(entry.path)

    def _discard(self, checkpoint: str) -> None:
        """Delete an incomplete checkpoint that will not be completed under this id."""
        started = f"{checkpoint}/"
        self._objects = {entry: saved for entry, saved in self._objects.items() if not saved.object.startswith(started)}
        if not self._store.exists(manifest_path(checkpoint)):
            for path in self._store.sizes(f"{FOLDER}/{checkpoint}/rank-{self._rank}"):
                self._store.delete(path)

    def _check_fence(self) -> bool:
        if self._stopped or self._fenced():
            self._stopped = True
            self._on_fenced()
            return True
        return False

    def _put_part(self, checkpoint: str, name: str, step: int | None, files: tuple[SavedFile, ...]) -> None:
        part = {"name": name, "step": step, "rank": self._rank, "files": [dict(file.__dict__) for file in files]}
        self._store.write(f"{FOLDER}/{checkpoint}/part-{self._rank}.json", to_bytes(part))

    def _put_manifest(
        self, checkpoint: str, name: str, step: int | None, files: tuple[SavedFile, ...], seconds: float
    ) -> None:
        spec = self._spec
        manifest = Manifest(checkpoint, name, spec.attempt, step, self._clock.now(), spec.nodes, files)
        if not self._store.create(manifest_path(checkpoint), manifest.to_bytes()):
            log.info("%s exists already", checkpoint)
        self.last, self.has_saved = manifest, True
        self._journal.checkpoint_saved(checkpoint, step, manifest.size, seconds)
        try:
            if not self._check_fence():  # the newer attempt may be reading the files to be deleted
                prune(self._store, spec.keep, spec.attempt)
        except StoreTrouble as error:
            log.warning("old checkpoints stay for now: %s", error)

    def _complete_gang(self, ended: bool) -> bool:
        """On rank 0, write the manifests whose parts are complete.

        A rank without checkpoints (in many programs only rank 0 saves) writes an empty part after some time.
        """
        is_complete = True
        for checkpoint in list_ids(self._store):
            if attempt_of(checkpoint) != self._spec.attempt or self._store.exists(manifest_path(checkpoint)):
                continue
            is_complete = False
            parts = self._parts(checkpoint)
            since = self._waiting.setdefault(checkpoint, time.monotonic())
            # A rank has nothing new for it if it never saves, or has saved this step and no longer changes.
            has_nothing_new = not self._scanner.unfinished and (not self._writes or self._has_step_of(checkpoint))
            long_enough = ended or time.monotonic() - since > 30 * self._spec.intervals.scan
            if self._rank not in parts and has_nothing_new and long_enough:
                self._put_part(checkpoint, "", None, self._files)
            if self._rank == 0 and set(parts) == set(range(self._spec.nodes)):
                if self._check_fence():
                    return True
                files = tuple(SavedFile.from_json(f) for rank in sorted(parts) for f in parts[rank]["files"])
                described = next(part for _, part in sorted(parts.items()) if part["name"])
                seconds = time.monotonic() - since
                self._put_manifest(checkpoint, str(described["name"]), described["step"], files, seconds)
                del self._waiting[checkpoint]
                is_complete = True
        return is_complete or self._rank != 0 or not ended

    def _has_step_of(self, checkpoint: str) -> bool:
        return checkpoint_id(self._spec.attempt, self._place[0], "")[:_STEP_PREFIX] == checkpoint[:_STEP_PREFIX]

    def _parts(self, checkpoint: str) -> dict[int, Any]:
        ranks: set[int] = {
            rank for rank in range(self._spec.nodes) if self._store.exists(f"{FOLDER}/{checkpoint}/part-{rank}.json")
        }
        parts = {rank: self._store.read_json(f"{FOLDER}/{checkpoint}/part-{rank}.json") for rank in ranks}
        return {rank: part for rank, part in parts.items() if part is not None}
