"""Which checkpoints in the program's folder are finished.

Each top-level entry is a checkpoint, except unfinished ones by their name (`is_unfinished`), empty
ones, and symbolic links. An entry is finished when

- it was renamed into place: the kernel says so, or it was seen before under such an unfinished name, or
- the helper's ``save()`` noted it, or
- its format shows that it is complete (`is_whole`), it stayed unchanged over two scans, and no process has
  it open for writing, or
- its format does not show that, and it stayed unchanged for the quiet time while no process had it open for writing.

An entry that is incomplete by its format is never a checkpoint. After the command was killed, an entry that was written
in place, without such a format, may be incomplete and is not saved.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from broker.agent.gpubroker_checkpoint import is_unfinished, step_of
from broker.agent.processes import files_written

NOTES = ".gpubroker-saved.json"  # entries recorded by the helper's save(): {name: {"inode": …, "step": …}}

# (path relative to the checkpoint folder, size, mtime in ns, inode) of every file
Signature = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class Finished:
    """A checkpoint of the program that is not saved yet."""

    name: str
    signature: Signature
    step: int | None

    @property
    def modified(self) -> int:
        return max(file[2] for file in self.signature)


def signature(folder: Path, name: str) -> Signature:
    """The state of every regular file of the entry. Raises OSError if the entry cannot be read or disappears
    meanwhile.
    """
    entry = folder / name
    if not entry.is_dir():
        return (_file(folder, entry),)
    found = []
    for place, _, names in os.walk(entry, onerror=_raise):
        for file in names:
            path = Path(place) / file
            if path.is_symlink() and folder.resolve() not in path.resolve().parents:
                raise OSError(f"{path.relative_to(folder)} is a link out of the checkpoint folder")
            if path.is_file():
                found.append(_file(folder, path))
    return tuple(sorted(found))


def _raise(error: OSError) -> None:
    raise error


def _file(folder: Path, path: Path) -> tuple[str, int, int, int]:
    info = path.stat()
    return (path.relative_to(folder).as_posix(), info.st_size, info.st_mtime_ns, info.st_ino)


def open_writers(folder: Path) -> set[str]:
    """The entries that any visible process has open for writing (workers of a command may have their own sessions).

    Processes of other users are not visible. Empty without /proc.
    """
    found: set[str] = set()
    inside = str(folder.resolve()) + "/"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.update(path[len(inside) :].partition("/")[0] for path in files_written(process, inside))
    return found


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
        self._seen: dict[str, Signature] = {}
        self._saved: dict[str, Signature] = {}
        self._unfinished: set[int] = set()  # inodes seen under an unfinished name
        self.problems: dict[str, str] = {}  # entries that cannot be read, and why

    def adopt(self) -> None:
        """Mark all present entries as saved: they were restored."""
        self._renamed()
        for entry in self._entries():
            if not is_unfinished(entry.name):
                with contextlib.suppress(OSError):
                    self.saved(entry.name, signature(self._folder, entry.name))

    def saved(self, name: str, as_seen: Signature) -> None:
        """Mark this content of the entry as saved."""
        self._saved[name] = as_seen
        self._moved.discard(name)

    @property
    def unfinished(self) -> bool:
        """Whether the last scan found an entry that is still being written."""
        return bool(self._unfinished) or any(self._saved.get(name) != seen for name, seen in self._seen.items())

    def scan(self, *, killed: bool = False, ended: bool = False) -> list[Finished]:
        """The finished, unsaved entries, oldest first.

        ``ended``: the command has ended, so nothing changes any more; ``killed``: it has ended and was killed. Raises
        OSError if the folder itself cannot be read.
        """
        self._moved |= self._renamed()
        before, self._seen = self._seen, {}
        inodes, self._unfinished, self.problems = self._unfinished, set(), {}
        found: list[Finished] = []
        waiting: list[Finished] = []
        for entry in self._entries():
            name = entry.name
            with contextlib.suppress(FileNotFoundError):  # the program removed it meanwhile
                try:
                    info = entry.stat()
                    if is_unfinished(name):
                        self._unfinished.add(info.st_ino)
                        continue
                    now = signature(self._folder, name)
                except FileNotFoundError:
                    raise
                except OSError as error:
                    self.problems[name] = f"{name} cannot be read: {error.strerror or error}"
                    continue
                if not any(file[1] for file in now):
                    continue
                self._seen[name] = now
                rests = before.get(name) == now
                if not rests:
                    self._since[name] = self._now()
                if self._saved.get(name) == now:
                    continue
                note = self._notes().get(
                    name, {}
                )  # read after the entry: the program writes the note before it renames the entry
                noted = note.get("inode") == info.st_ino
                told = note.get("step") if noted else None
                one = Finished(name, now, told if isinstance(told, int) else step_of(name))
                if noted or info.st_ino in inodes or name in self._moved:
                    found.append(one)
                elif (rests or ended) and self._seems_whole(name, killed=killed, ended=ended):
                    waiting.append(one)
        if waiting:
            busy = set() if ended else self._writers()
            found += [one for one in waiting if one.name not in busy]
        # File systems store times in steps of milliseconds or seconds; entries of the same time are ordered by step.
        return sorted(found, key=lambda one: (one.modified, -1 if one.step is None else one.step, one.name))

    def _seems_whole(self, name: str, *, killed: bool, ended: bool) -> bool:
        """Whether an entry that was written in place, and no longer changes, is complete."""
        try:
            whole = is_whole(self._folder / name)
        except FileNotFoundError:
            raise
        except OSError:  # reading it fails again, and is reported, when it is saved
            whole = None
        if whole is False and ended:
            self.problems[name] = f"{name} is not whole: it was not written to its end"
        if whole is None:
            return not killed and (ended or self._now() - self._since[name] >= self._quiet)
        return whole

    def _entries(self) -> list[Path]:
        return [path for path in self._folder.iterdir() if not path.is_symlink()]

    def _notes(self) -> dict[str, dict[str, object]]:
        try:
            notes = json.loads((self._folder / NOTES).read_bytes())
        except (OSError, ValueError):
            return {}
        return {k: v for k, v in notes.items() if isinstance(v, dict)} if isinstance(notes, dict) else {}


_TRAINER_FOLDER = re.compile(r"checkpoint-\d+")
_TRAINER_STATE, _TRAINER_ARGUMENTS = "trainer_state.json", "training_args.bin"
_SHARD, _METADATA = ".distcp", ".metadata"
_ZIP, _ZIP_END, _END_SIZE, _LONGEST_COMMENT = b"PK\x03\x04", b"PK\x05\x06", 22, 0xFFFF
_LONGEST_HEADER = 100 << 20  # what the library itself accepts of safetensors


def is_whole(entry: Path) -> bool | None:
    """True if the format shows that the checkpoint is complete, False if it shows that something is missing, None if it
    shows neither. Raises OSError if the entry cannot be read or disappears meanwhile."""
    if not entry.is_dir():
        return _whole_file(entry)
    found: bool | None = None
    for place, folders, names in os.walk(entry):
        folder = Path(place)
        if any(is_unfinished(name) and not name.startswith(".") for name in (*folders, *names)):
            return False
        if any(name.endswith(_SHARD) for name in names):
            if _METADATA not in names:
                return False
            found = True if folder == entry else found
        if any(_whole_file(folder / name) is False for name in names):
            return False
    return _trainer(entry) if found is None else found


def _trainer(entry: Path) -> bool | None:
    if not _TRAINER_FOLDER.fullmatch(entry.name):
        return None
    try:
        state = json.loads((entry / _TRAINER_STATE).read_bytes())
    except FileNotFoundError:
        return False if (entry / _TRAINER_ARGUMENTS).exists() else None
    except ValueError:
        return False
    return True if isinstance(state, dict) and "global_step" in state else None


def _whole_file(path: Path) -> bool | None:
    with path.open("rb") as file:
        start = file.read(8)
        size = os.fstat(file.fileno()).st_size
        if path.suffix == ".safetensors":
            return _safetensors(file.read(min(int.from_bytes(start, "little"), _LONGEST_HEADER)), start, size)
        if not start.startswith(_ZIP):
            return None
        file.seek(max(0, size - _END_SIZE - _LONGEST_COMMENT))
        return _ZIP_END in file.read()


def _safetensors(header: bytes, start: bytes, size: int) -> bool:
    length = int.from_bytes(start, "little")
    if len(start) < 8 or len(header) < length:
        return False
    try:
        about = json.loads(header)
        ends = [int(one["data_offsets"][1]) for name, one in about.items() if name != "__metadata__"]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return False
    return size >= 8 + length + max(ends, default=0)


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
