"""Entries of a folder: files, links and folders, as they lie on a disk and as they are put back."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Callable, Protocol

_PIECE = 1 << 20
FILE, LINK, FOLDER = "file", "link", "folder"
PLAIN_FOLDER = 0o755
_PLAIN_FOLDERS = (PLAIN_FOLDER, 0o775)  # as made with the usual umasks

Tell = Callable[[str, str, bool], None]
"""Receives an entry that cannot be kept, the reason, and whether content may be lost."""


@dataclass(frozen=True, order=True)
class DiskEntry:
    """``path``: relative to the root; ``modified``: ns; ``target`` of a link: relative to the link."""

    path: str
    kind: str = FILE
    mode: int = 0o644
    size: int = 0
    modified: int = 0
    inode: int = 0
    target: str = ""


class Changed(Exception):
    """An entry was changed or removed while it was read."""


def pieces(place: Path, size: int, is_stopped: Callable[[], bool] = lambda: False) -> Iterator[bytes]:
    """The first ``size`` bytes of a file. Raises OSError, and Changed if it is shorter, or stopped before its end."""
    with place.open("rb") as file:
        while size and not is_stopped() and (piece := file.read(min(_PIECE, size))):
            size -= len(piece)
            yield piece
    if size:
        raise Changed(str(place))


class StoredEntry(Protocol):
    """What is needed to put an entry back."""

    @property
    def path(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def mode(self) -> int: ...
    @property
    def target(self) -> str: ...


def stays_inside(path: str, link: str = "x") -> bool:
    """Whether a relative path stays below the root, as seen from the folder of the entry ``link``."""
    if not path or path.startswith("/"):
        return False
    depth = len(PurePosixPath(link).parts) - 1
    for part in PurePosixPath(path).parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return False
    return True


def inner_target(link: Path, root: Path) -> str | None:
    """The target of a link, relative to the link's folder; None if it is outside of the root."""
    to = link.readlink()
    if to.is_absolute():
        if not to.is_relative_to(root) and not to.resolve().is_relative_to(root.resolve()):
            return None
        inner = to if to.is_relative_to(root) else root / to.resolve().relative_to(root.resolve())
        to = Path(os.path.relpath(inner, link.parent))
    return to.as_posix() if stays_inside(to.as_posix(), link.relative_to(root).as_posix()) else None


def kind_of(mode: int) -> str:
    """What a special file is, in words."""
    for test, name in ((stat.S_ISSOCK, "socket"), (stat.S_ISFIFO, "named pipe"), (stat.S_ISBLK, "block device")):
        if test(mode):
            return name
    return "device"


def entries_at(place: Path, root: Path, tell: Tell, plain: Sequence[int] = _PLAIN_FOLDERS) -> Iterator[DiskEntry]:
    """The entry and everything below it. Folders are listed if they are empty or have none of the ``plain`` modes."""
    path = place.relative_to(root).as_posix()
    try:
        info = place.lstat()
        mode = stat.S_IMODE(info.st_mode) & 0o777
        state = (info.st_mtime_ns, info.st_ino)
        if stat.S_ISLNK(info.st_mode):
            if (target := inner_target(place, root)) is None:
                tell(path, f"a link that points outside the folder, to {place.readlink()}", True)
            else:
                yield DiskEntry(path, LINK, 0o777, 0, *state, target)
        elif stat.S_ISDIR(info.st_mode):
            children = sorted(place.iterdir())
            if path != "." and (not children or mode not in plain):
                yield DiskEntry(path, FOLDER, mode, 0, 0, info.st_ino)
            for child in children:
                yield from entries_at(child, root, tell, plain)
        elif not stat.S_ISREG(info.st_mode):
            tell(path, f"a {kind_of(info.st_mode)}, which cannot be kept", False)
        elif not os.access(place, os.R_OK):
            tell(path, "cannot be read: permission denied", True)
        else:
            yield DiskEntry(path, FILE, mode, info.st_size, *state)
    except FileNotFoundError:
        return  # removed meanwhile
    except OSError as error:
        tell(path, f"cannot be read: {error.strerror or error}", True)


def with_targets(entries: Iterable[DiskEntry], root: Path, tell: Tell) -> Iterator[DiskEntry]:
    """The entries; a link to anything outside them is replaced by its target, because the link alone is useless."""
    all_entries = list(entries)
    known_paths = {".", *(entry.path for entry in all_entries)}
    known_paths.update(parent.as_posix() for entry in all_entries for parent in PurePosixPath(entry.path).parents)
    for entry in all_entries:
        place = root / entry.path
        if entry.kind != LINK or not place.exists():
            yield entry
            continue
        real, inside = place.resolve(), root.resolve()
        if real.is_relative_to(inside) and real.relative_to(inside).as_posix() in known_paths:
            yield entry
            continue
        if not real.is_relative_to(inside):
            tell(entry.path, f"a link that points outside the folder, to {real}", True)
            continue
        for inner in entries_at(real, real.parent, tell):
            if inner.kind == LINK:
                tell(f"{entry.path}: {inner.path}", "a link below a link", True)
            else:
                yield replace(inner, path=entry.path + inner.path[len(real.name) :])


def check_entry(values: Mapping[str, Any], path: str) -> tuple[str, int, str]:
    """Kind, mode and target in a document. Raises ValueError if they cannot be those of an entry at ``path``, or if
    that is not a valid path."""
    kind, mode, target = str(values.get("kind", FILE)), int(values.get("mode", 0o644)) & 0o777, values.get("target", "")
    if kind not in (FILE, LINK, FOLDER):
        raise ValueError(f"an entry of the unknown kind {kind!r}")
    if not stays_inside(path) or (kind == LINK and not stays_inside(str(target), path)):
        raise ValueError(f"a path that leaves its folder: {path}")
    return kind, mode, str(target)


def apply_metadata(root: Path, entries: Iterable[StoredEntry]) -> None:
    """Once the files are written: create empty folders and links, and set the modes. Links come last, so that nothing
    is written through one of them. Raises OSError."""
    ordered = sorted(entries, key=lambda entry: entry.path)
    for entry in ordered:
        if leaves_through_link(root, entry.path) or (entry.kind == FOLDER and (root / entry.path).is_symlink()):
            reason = "a link, here or among its folders, leads elsewhere"
            raise OSError(errno.ELOOP, reason, str(root / entry.path))
        if entry.kind == FOLDER:
            (root / entry.path).mkdir(mode=0o700, parents=True, exist_ok=True)
        elif entry.kind == FILE:
            (root / entry.path).chmod(entry.mode | stat.S_IRUSR)
    for entry in ordered:
        if entry.kind == LINK:
            place = root / entry.path
            place.parent.mkdir(parents=True, exist_ok=True)  # as those of files
            if place.is_symlink() or place.is_file():
                place.unlink()
            place.symlink_to(entry.target)
    for entry in reversed(ordered):
        if entry.kind == FOLDER:
            (root / entry.path).chmod(entry.mode | stat.S_IRWXU)  # else its owner could not remove it


def leaves_through_link(root: Path, path: str) -> bool:
    """Whether a link below the root is among the folders of ``path`` and leads out of the root."""
    inside = root.resolve()
    return not (root / path).parent.resolve().is_relative_to(inside)
