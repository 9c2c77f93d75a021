"""Uploads the command's output in pieces, because object stores cannot append; and limits its size on disk.

A piece is rewritten until it is full (1 MiB), so repeated uploads stay small. The newest 256 MiB of endless output are
kept, here and in the store.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from broker.agent.formats import attempt_path
from broker.agent.masking import NO_MASK, REACH, Mask
from broker.agent.store import ObjectFolder

PIECE = 1 << 20
KEEP = 256 * PIECE
_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02  # of Linux's fallocate(2)


def piece_path(attempt: int, rank: int, piece: int) -> str:
    return attempt_path(attempt, f"logs/{rank}-{piece:06d}.log")


class OutputUploader:
    """One rank's output file. `upload` is called from one thread at a time. ``keep``: bytes, a multiple of `PIECE`."""

    def __init__(
        self, store: ObjectFolder, attempt: int, rank: int, file: Path, keep: int = KEEP, mask: Mask = NO_MASK
    ) -> None:
        self._store, self._attempt, self._rank, self._file, self._mask = store, attempt, rank, file, mask
        self._keep = keep
        self._masked = 0, b""  # the piece that was uploaded last, and its beginning, which stays
        self._done = 0  # bytes that are uploaded completely
        self._dropped = 0  # bytes that are no longer kept on this machine
        self._deleted = 0  # pieces that are no longer kept in the store

    def upload(self, *, last: bool = False) -> None:
        """Upload new output. Raises StoreTrouble; then the next call sends the same bytes. ``last``: the output is
        complete; until then, trailing bytes that may begin a secret are held back."""
        try:
            size = self._file.stat().st_size
            if self._mask and not last and self._read(size - 1, 1) != b"\n":
                size = max(0, size - REACH)
        except OSError:
            return
        first = max(0, size - self._keep) // PIECE
        if first * PIECE > self._dropped:  # before the upload: an unreachable store must not let the disk fill up
            free_start(self._file, first * PIECE)
            self._dropped = first * PIECE
        self._done = max(self._done, self._dropped)
        while self._done < size:
            piece = self._done // PIECE
            data = self._masked[1] if self._masked[0] == piece else b""
            start = piece * PIECE + len(data)
            data += self._mask.window(self._read, start, min((piece + 1) * PIECE, size) - start)
            self._masked = piece, data[:-REACH]
            self._store.write(self._piece(piece), data)
            self._done = piece * PIECE + len(data)
            if len(data) < PIECE:
                break
        while self._deleted < first:
            self._store.delete(self._piece(self._deleted))
            self._deleted += 1

    def _read(self, start: int, size: int) -> bytes:
        with self._file.open("rb") as file:
            file.seek(max(0, start))
            return file.read(size)

    def _piece(self, piece: int) -> str:
        return piece_path(self._attempt, self._rank, piece)


def free_start(file: Path, count: int) -> bool:
    """Free the first ``count`` bytes of a file to which others append: they become a hole, and the offsets of the rest
    stay the same. False, without a change, if the file system does not support that.
    """
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is None:
        return False
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    try:
        descriptor = os.open(file, os.O_WRONLY)
    except OSError:
        return False
    try:
        return bool(fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, 0, count) == 0)
    finally:
        os.close(descriptor)


def last_lines(file: Path, count: int = 1, mask: Mask = NO_MASK) -> list[str]:
    """The last non-empty lines, each of at most 300 characters, as evidence; without terminal control sequences
    (colors, titles, cursor movements) and secrets.
    """
    try:
        with file.open("rb") as source:
            source.seek(max(0, source.seek(0, 2) - 8192))
            lines = mask.hide(source.read()).decode(errors="replace").splitlines()
    except OSError:
        return []
    words = (" ".join("".join(c if c.isprintable() else " " for c in line).split()) for line in lines)
    return [line[:300] for line in words if line][-count:]
