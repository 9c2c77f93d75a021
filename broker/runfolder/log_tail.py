"""Follows a command's output: returns the lines that reached the run folder since the last call."""

from __future__ import annotations

from collections.abc import Iterator

from broker.agent.output import PIECE
from broker.runfolder.runfolder import RunFolder, no_longer_kept


class Printed:
    """One rank's output in an attempt's run folder.

    Each call reads the last piece, which still grows (up to 1 MiB), again. The agent uploads every few seconds.
    """

    def __init__(self, folder: RunFolder, attempt: int, rank: int = 0) -> None:
        self._folder, self._attempt, self._rank = folder, attempt, rank
        self._read = 0  # bytes
        self._rest = b""

    def new(self) -> Iterator[str]:
        """The complete lines since the last call, oldest first. Raises `Unreachable`, possibly after some lines; the
        next call then continues."""
        for number in self._folder.log_pieces(self._attempt, self._rank):
            start = number * PIECE
            if start + PIECE <= self._read:
                continue
            if start > self._read:
                self._read, self._rest = start, b""
                yield no_longer_kept(start)
            data = self._folder.log_piece(self._attempt, self._rank, number)[self._read - start :]
            self._read += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)

    def last(self) -> list[str]:
        """The text after the last line break, once no more output will come."""
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []
