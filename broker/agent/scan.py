"""Which entries of the program's folder are finished; `broker.agent.layout` makes checkpoints of them.

An entry is finished when its name is not that of a draft (`is_unfinished`), and

- it was renamed into place: the kernel says so, or it was seen before under such an unfinished name, or
- the helper's ``save()`` noted it, or
- its format shows that it is complete (`is_whole`), it stayed unchanged over two scans, and no process has
  it open for writing, or
- its format does not show that, and it stayed unchanged for the quiet time while no process had it open for writing; a
  small file without a step in its name, such as a tracker, needs no quiet time.

Where its format shows that something is missing (`broker.agent.file_formats`), an entry counts in none of these ways. A
draft of another name in a folder (``x.tmp`` without x) leaves the folder to the same doubt as no format does: it counts
once a next one of its kind was written later, or if those before had such a draft, too.

Rest alone proves little: a program that hangs, and fails, leaves half of an entry at rest. So one with a step must
also look like one that was saved before (its name but for numbers, its files, nine tenths of their size), or like a
next one of its name that was written later, unless it is the first, or the command has ended well. One of 1 MiB without
a step must not have become smaller.

After the command was killed, an entry that was written
in place, without such a format, may be incomplete and is not saved.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import re
import struct
import sys
import time
from pathlib import Path, PurePosixPath
from typing import Callable

from broker.agent.entries import PLAIN_FOLDER, DiskEntry, entries_at, with_targets
from broker.agent.file_formats import is_whole
from broker.agent.gpubroker_checkpoint import drafts, in_order, is_unfinished, position_of, step_of
from broker.agent.layout import (
    LAG,
    SMALL,
    TRACKER,
    FinishedCheckpoint,
    Position,
    TopEntry,
    checkpoints,
    kind_of,
    position,
)
from broker.agent.processes import files_written

_RESTLESS = 600.0  # seconds after which an entry that keeps changing no longer delays the others; before, if another
# was replaced twice meanwhile
_SIMILAR_SIZE = 0.9  # of the entry of its kind that was saved last
_STEPS = 16  # that are remembered after they were removed
_DRAFT_OF = re.compile(  # "default.orbax-checkpoint-tmp-17", "weights.bin.tmp": of "default", of "weights.bin"
    r"([^.].*?)(?:[-._](?:[a-z]+-)*(?:tmp|temp|partial|incomplete|unfinished)(?:[-._]?\d+)*|\.part|~)", re.IGNORECASE
)
NOTES = ".gpubroker-saved.json"  # entries recorded by the helper's save(): {name: {"inode": …, "step": …}}


def open_writers(folder: Path) -> set[str]:
    """The entries that any visible process has open for writing (workers of a command may have their own sessions).

    Processes of other users are not visible. Empty without /proc.
    """
    names: set[str] = set()
    prefix = str(folder.resolve()) + "/"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            names.update(path[len(prefix) :].partition("/")[0] for path in files_written(process, prefix))
    return names


def _shape(entries: tuple[DiskEntry, ...]) -> tuple[set[str], int]:
    return {kind_of(entry.path) for entry in entries}, sum(entry.size for entry in entries)


def _modified(entries: tuple[DiskEntry, ...]) -> int:
    return max(entry.modified for entry in entries)


class _Unreadable(Exception):
    """An entry that cannot be saved as a whole."""


class Scanner:
    """Remembers earlier scans.

    ``writers``: returns the entries open for writing; ``renamed``: returns the entries renamed to their final name
    since its last call. ``quiet``: seconds without a change after which an entry of unknown format counts as finished;
    ``now``: seconds of a monotonic clock.
    """

    def __init__(
        self,
        folder: Path,
        writers: Callable[[], set[str]],
        renamed: Callable[[], set[str]] = lambda: set(),
        quiet: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._writers = writers
        self._renamed = renamed
        self._quiet, self._now = quiet, now
        self._since: dict[str, float] = {}  # when the present content of each was first seen
        self._moved: set[str] = set()
        self._replaced: dict[str, tuple[float, float]] = {}  # the last two times at which each was renamed into place
        self._seen: dict[str, tuple[DiskEntry, ...]] = {}
        self._saved: dict[str, tuple[DiskEntry, ...]] = {}
        self._settled: dict[str, tuple[DiskEntry, ...]] = {}  # at the last scan
        self._unsettled: dict[str, float] = {}  # since when each has not been settled
        self._known: set[str] = set()  # entries that are settled whoever has them open
        self._proven: dict[str, tuple[DiskEntry, ...]] = {}  # contents that more than their rest shows to be complete
        self._shapes: dict[str, tuple[set[str], int]] = {}  # of the last saved entry, by kind
        self._steps: dict[Position, dict[str, DiskEntry]] = {}  # of every entry, its largest file when its step was new
        self._has_steps = False  # whether one with a step was saved
        self._drafts: set[int] = set()  # inodes seen under an unfinished name, now and in the last scan
        self._inodes: set[int] = set()
        self.problems: dict[str, str] = {}  # entries that cannot be saved, and why
        self.omitted: dict[str, str] = {}  # as problems: entries without which others are saved
        self.unfinished = False  # whether the last scan found an entry that is still being written, or not saved

    def adopt(self) -> None:
        """Mark all present entries as saved: they were restored."""
        self._renamed()
        for name in self._names():
            with contextlib.suppress(OSError):
                self._record(name, self._look(name))

    def mark_saved(self, checkpoint: FinishedCheckpoint) -> None:
        """Mark the content of this checkpoint as saved."""
        for member in checkpoint.members:
            self._record(member.name, member.entries)
            self._moved.discard(member.name)

    def _record(self, name: str, entries: tuple[DiskEntry, ...]) -> None:
        self._saved[name], shape = entries, _shape(entries)
        self._has_steps |= step_of(name) is not None
        if step_of(name) is not None or shape[1] >= SMALL:
            self._shapes[kind_of(name)] = shape

    def unsaved(self) -> list[str]:
        """The names of entries in the folder, drafts included, whose present content was neither saved nor restored."""
        saved = {name for name, entries in self._saved.items() if self._seen.get(name, entries) == entries}
        with contextlib.suppress(OSError):
            return sorted({entry.name for entry in self._folder.iterdir()} - {NOTES} - saved)
        return []

    def scan(self, *, killed: bool = False, ended: bool = False) -> list[FinishedCheckpoint]:
        """The finished, unsaved checkpoints, oldest first.

        ``ended``: the command has ended, so nothing changes any more; ``killed``: it has ended and was killed. Raises
        OSError if the folder itself cannot be read.
        """
        self._moved |= self._renamed()
        previous, self._seen = self._seen, {}
        self.problems, self.omitted = {}, {}
        for name in self._names():
            with contextlib.suppress(FileNotFoundError):  # the program removed it meanwhile
                try:
                    self._seen[name] = self._look(name)
                except _Unreadable as error:
                    self.problems[name] = str(error)
        notes = self._notes()  # read after the entries: the program writes the note before it renames the entry
        settled = {name for name in self._seen if self._is_settled(name, previous, notes, killed=killed, ended=ended)}
        if settled - self._known and not ended:
            settled -= self._writers() - self._known
        self._settled = {name: self._seen[name] for name in settled}
        seen = [self._top_entry(name, notes, settled=name in settled) for name in sorted(self._seen)]
        self._inodes = self._drafts
        self._order(seen)

        def trusted(name: str) -> bool:
            place = self._folder / name
            return (ended or previous.get(name) == self._seen[name]) and place.exists() and is_whole(place) is not False

        finished = checkpoints(seen, self._steps, self._read, trusted, ended=ended, clean=ended and not killed)
        nonempty = [entry for entry in seen if entry.size]
        self.unfinished = bool(self._drafts or finished) or not all(entry.settled for entry in nonempty)
        return finished

    def _order(self, seen: list[TopEntry]) -> None:
        """Remember steps in the order in which they were written. One is written again when the largest files of all
        its entries are others: a later file in an older one, or a copy beside it, makes it no newer."""
        numbered = [entry for entry in seen if position(entry)]
        largest = {entry.name: max(entry.entries, key=lambda part: part.size) for entry in numbered}
        order = in_order({entry.name: 0 if entry.saved else largest[entry.name].modified for entry in numbered})
        for place in order:
            files = {name: file for name, file in largest.items() if position_of(name) == place}
            known = self._steps.get(place, {})
            if not known.items() & files.items():
                self._steps.pop(place, None)
                known = {}
            self._steps[place] = files | known
        for place in list(self._steps)[:-_STEPS]:
            if place not in order:
                del self._steps[place]

    def _names(self) -> list[str]:
        """The names of entries that are not drafts."""
        names = {place.name for place in self._folder.iterdir()} - {NOTES}
        unfinished = drafts(names)
        self._drafts = set()
        for name in unfinished:
            with contextlib.suppress(FileNotFoundError):
                self._drafts.add((self._folder / name).lstat().st_ino)
        return sorted(names - unfinished)

    def _look(self, name: str) -> tuple[DiskEntry, ...]:
        """The entry and everything below it. Raises _Unreadable."""

        def tell(path: str, because: str, essential: bool) -> None:
            if not essential:
                self.omitted[path] = f"{path}: {because}"
            else:
                raise _Unreadable(f"{path}: {because}")

        place = self._folder / name
        disk_entries = entries_at(place, self._folder, tell, (PLAIN_FOLDER,))
        if not place.is_symlink():
            disk_entries = with_targets(disk_entries, self._folder, tell)
        entries = tuple(sorted(disk_entries))
        if not entries:
            raise FileNotFoundError(name)
        return entries

    def _is_settled(
        self,
        name: str,
        previous: dict[str, tuple[DiskEntry, ...]],
        notes: dict[str, dict[str, object]],
        *,
        killed: bool,
        ended: bool,
    ) -> bool:
        current = self._seen[name]
        is_unchanged = previous.get(name) == current
        if not is_unchanged:
            self._since[name] = self._now()
        self._known.discard(name)
        inode = (self._folder / name).lstat().st_ino if (self._folder / name).exists() else 0
        is_known = current in (self._saved.get(name), self._settled.get(name)) or (self._folder / name).is_symlink()
        renamed = notes.get(name, {}).get("inode") == inode or inode in self._inodes or name in self._moved
        with contextlib.suppress(FileNotFoundError):
            if is_known or (renamed and self._is_whole(name) is not False):
                self._known.add(name)
                if current != self._settled.get(name):
                    self._proven[name] = current
                    self._replaced[name] = (self._replaced.get(name, (-math.inf, -math.inf))[1], self._now())
                return True
            return (is_unchanged or ended) and self._seems_whole(name, killed=killed, ended=ended)
        return False

    def _top_entry(self, name: str, notes: dict[str, dict[str, object]], *, settled: bool) -> TopEntry:
        current = self._seen[name]
        note, place = notes.get(name, {}), self._folder / name
        noted_step = note.get("step") if place.exists() and note.get("inode") == place.lstat().st_ino else None
        if settled:
            self._unsettled.pop(name, None)
        since = self._now() if settled else self._unsettled.setdefault(name, self._now())
        return TopEntry(
            name,
            current,
            noted_step if isinstance(noted_step, int) else step_of(name),
            settled,
            self._saved.get(name) == current,
            self._has_steps and self._proven.get(name) != current and self._is_similar(name) is None,
            () if settled else self._saved.get(name, ()),
            restless=max(self._now() - _RESTLESS, *(first for first, _ in self._replaced.values()), -math.inf) > since,
        )

    def _read(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return (self._folder / name).read_text("utf-8", "replace")
        return ""

    def _is_whole(self, name: str) -> bool | None:
        """As `is_whole`, for an entry that may be unreadable. Raises FileNotFoundError."""
        try:
            return is_whole(self._folder / name)
        except FileNotFoundError:
            raise
        except OSError:  # reading it fails again, and is reported, when it is saved
            return None

    def _seems_whole(self, name: str, *, killed: bool, ended: bool) -> bool:
        """Whether an entry that was written in place, and no longer changes, is complete."""
        is_complete, place, similar = self._is_whole(name), self._folder / name, self._is_similar(name)
        drafts_inside = self._new_drafts(name)
        if is_complete and drafts_inside:
            is_complete = None
        if is_complete is False and ended:
            self.problems[name] = f"{name} is not whole: it was not written to its end"
        if is_complete is None and killed and drafts_inside:
            self.problems[name] = f"{name} seems not to be whole: {drafts_inside[0]} in it has the name of a draft"
        elif is_complete is None and killed and similar is False:
            self.problems[name] = f"{name} seems not to be whole: it is smaller than the one before, or has fewer files"
        if is_complete is None:
            is_small = step_of(name) is None and sum(entry.size for entry in self._seen[name]) <= TRACKER
            quiet = 0.0 if is_small and not place.is_dir() else self._quiet
            rests = self._now() - self._since[name] >= quiet
            return not killed and (ended or (rests and (similar or (similar is None and not drafts_inside))))
        if is_complete:
            self._proven[name] = self._seen[name]
        return is_complete

    def _new_drafts(self, name: str) -> list[str]:
        """The paths of drafts in a folder: of names that are not beside them, and that the last one of its kind did not
        have."""
        usual = self._shapes.get(kind_of(name), (set[str](), 0))[0]
        paths = {PurePosixPath(entry.path) for entry in self._seen[name] if kind_of(entry.path) not in usual}
        places = {place for path in paths for place in (path, *path.parents) if len(place.parts) > 1}
        found = ((place, _DRAFT_OF.fullmatch(place.name)) for place in places if is_unfinished(place.name))
        return sorted(str(place) for place, draft in found if draft and place.with_name(draft[1]) not in places)

    def _is_similar(self, name: str) -> bool | None:
        """Whether an entry at rest looks like the last one of its kind, or a next one of its size was written after it;
        None if none was saved, and it has a step or a draft."""
        place, kind, (paths, size) = position_of(name), kind_of(name), _shape(self._seen[name])
        modified = _modified(self._seen[name])
        later = [
            entries for other, entries in self._seen.items() if kind_of(other) == kind and place < position_of(other)
        ]
        sizes = [_shape(entries)[1] for entries in later if place and modified < _modified(entries)]
        if (last := self._shapes.get(kind)) is None:
            return True if sizes or not (place or self._new_drafts(name)) else None
        if size >= _SIMILAR_SIZE * last[1]:
            return bool(sizes) or last[0] <= paths
        alike = sum(other >= _SIMILAR_SIZE * size for other in sizes)  # smaller ones outvote those that were saved
        return alike >= min(LAG, sum(kind_of(other) == kind for other in self._saved))

    def _notes(self) -> dict[str, dict[str, object]]:
        try:
            notes = json.loads((self._folder / NOTES).read_bytes())
        except (OSError, ValueError):
            return {}
        return {k: v for k, v in notes.items() if isinstance(v, dict)} if isinstance(notes, dict) else {}


_IN_MOVED_TO = 0x80
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows


class Renames:
    """Detects entries of a folder that were renamed to their final name, by inotify of the Linux kernel. On other
    systems it reports nothing, and callers must judge the entries by their content. Watches from its creation on. Not
    thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = -1
        if not sys.platform.startswith("linux"):
            return
        libc = ctypes.CDLL(None)
        descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor >= 0:  # otherwise the user's limit of inotify instances is reached
            if libc.inotify_add_watch(descriptor, os.fsencode(folder), _IN_MOVED_TO) >= 0:
                self._descriptor = descriptor
            else:
                os.close(descriptor)

    def since_last(self) -> set[str]:
        """The names to which entries were renamed since the last call."""
        names: set[str] = set()
        with contextlib.suppress(BlockingIOError):
            while self._descriptor >= 0:
                events = os.read(self._descriptor, 1 << 16)
                place = 0
                while place < len(events):
                    _, _, _, length = _EVENT.unpack_from(events, place)
                    place += _EVENT.size
                    names.add(os.fsdecode(events[place : place + length].rstrip(b"\0")))
                    place += length
        return names
