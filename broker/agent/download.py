"""Downloads many files and large files, and verifies them while they arrive.

Several small files are downloaded at a time, because each waits for the store's answer; a large file is downloaded in
several ranges at a time, because stores limit the speed of each connection.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Callable

from broker.agent.names import draft
from broker.agent.store import ObjectFolder

_LARGE = 8 << 20  # bytes
_PARALLEL = 16  # files, or ranges of one
_RESERVED_SPACE = 64 << 20  # bytes of a disk that stay free


class Torn(Exception):
    """What fails verification, with the reason."""


class GaveUp(Exception):
    """The caller's ``give_up`` stopped the work before it was finished."""


@dataclass(frozen=True)
class WantedFile:
    """A file to download.

    ``object``: its path in the store; ``name``: for people; ``into``: its path on disk, None to verify it only.
    """

    object: str
    name: str
    size: int
    sha256: str
    into: Path | None = None


def check_room(folder: Path, files: Sequence[WantedFile]) -> None:
    """Raises OSError (no space left) if the folder's disk cannot hold these files."""
    needed, free = sum(file.size for file in files if file.into is not None), shutil.disk_usage(folder).free
    if needed + _RESERVED_SPACE > free:
        advice = f"{needed / 1e9:.1f} GB are needed and {free / 1e9:.1f} GB are free: ask for a larger `disk_size`"
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {advice}", str(folder))


def write(pieces: Iterable[bytes], output: BinaryIO, give_up: Callable[[], bool]) -> tuple[int, str]:
    """Write the pieces; returns their total size and SHA-256. ``give_up`` is checked after each piece. Raises
    GaveUp.
    """
    digest, size = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
        output.write(piece)
        if give_up():
            raise GaveUp
    return size, digest.hexdigest()


def fetch(store: ObjectFolder, files: Sequence[WantedFile], give_up: Callable[[], bool]) -> None:
    """Download and verify all files.

    ``give_up`` is checked after each piece. Raises Torn, GaveUp, StoreTrouble (repeat), and OSError if the disk fails.
    """
    for file in files:
        if file.size >= _LARGE:
            fetch_one(store, file, give_up, _PARALLEL)
    with ThreadPoolExecutor(_PARALLEL, "download") as pool:
        downloads = [pool.submit(fetch_one, store, file, give_up) for file in files if file.size < _LARGE]
        try:
            for finished in as_completed(downloads):
                finished.result()
        finally:
            pool.shutdown(cancel_futures=True)


def fetch_one(store: ObjectFolder, file: WantedFile, give_up: Callable[[], bool], at_once: int = 1) -> None:
    """Download one file, which gets its name once it is verified. ``at_once``: the number of ranges at a time. Raises
    as `fetch`."""
    part = Path(os.devnull)
    if file.into is not None:
        file.into.parent.mkdir(parents=True, exist_ok=True)
        part = draft(file.into)
        with contextlib.suppress(FileNotFoundError):
            part.unlink()  # from an earlier try
    with part.open("wb" if file.into is None else "xb") as output:
        try:
            size, digest = write(store.stream(file.object, at_once=at_once), output, give_up)
        except FileNotFoundError:
            raise Torn(f"{file.name} is no longer in the run store") from None
    if size != file.size:
        raise Torn(f"{file.name} has {size} bytes instead of {file.size}")
    if digest != file.sha256:
        raise Torn(f"{file.name} differs from what was saved (SHA-256 mismatch)")
    if file.into is not None:
        part.replace(file.into)
