"""Uploads what the command prints, in pieces, because an object store cannot append.

A piece is rewritten until it is full (1 MiB), then the next one begins: what is uploaded again stays small.
"""

from __future__ import annotations

from pathlib import Path

from broker.launch.agent.formats import attempt_path
from broker.launch.agent.store import Store

PIECE = 1 << 20


def piece_path(attempt: int, rank: int, piece: int) -> str:
    return attempt_path(attempt, f"logs/{rank}-{piece:06d}.log")


class OutputUploader:
    """One rank's output file. `upload` is called from one thread at a time."""

    def __init__(self, store: Store, attempt: int, rank: int, file: Path) -> None:
        self._store, self._attempt, self._rank, self._file = store, attempt, rank, file
        self._done = 0  # bytes that are safe

    def upload(self) -> None:
        """Bring the store up to date. Raises StoreTrouble; then the same bytes are sent the next time."""
        try:
            size = self._file.stat().st_size
        except OSError:
            return
        while self._done < size:
            piece = self._done // PIECE
            with self._file.open("rb") as file:
                file.seek(piece * PIECE)
                data = file.read(PIECE)
            self._store.write(piece_path(self._attempt, self._rank, piece), data)
            self._done = piece * PIECE + len(data)
            if len(data) < PIECE:
                return


def last_lines(file: Path, count: int = 1) -> list[str]:
    """The last lines that are not empty, each at most 300 characters; for evidence. What terminals would obey rather
    than print (colours, titles, cursor movements) is left out."""
    try:
        with file.open("rb") as source:
            source.seek(max(0, source.seek(0, 2) - 8192))
            lines = source.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    words = (" ".join("".join(c if c.isprintable() else " " for c in line).split()) for line in lines)
    return [line[:300] for line in words if line][-count:]
