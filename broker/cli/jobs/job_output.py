"""Printing a job's output: unchanged to files and pipes; without control sequences to a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from broker.app.jobs.logs import LogLine

# Colours and font weights pass (`_STYLE`). Sequences that set titles, write to the clipboard, move the cursor or query
# the terminal do not, because a job's output is not trusted. ECMA-48, sections 5.4 and 5.6.
_STYLE = r"\x1b\[[0-9;:]*m"
_CONTROL = re.compile(
    rf"({_STYLE})"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # control sequences
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # strings: of the operating system, of devices, of applications
    r"|\x1b[ -/]*[0-~]?"  # other escape sequences
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


# Characters written at once: without a buffer (PYTHONUNBUFFERED, usual in containers) each write calls the system.
_LOT = 1 << 16


def print_output(stream: TextIO, lines: Iterable[str]) -> None:
    """Write the lines, each with a line break. Does not flush."""
    clean = stream.isatty()
    for lot in _lots(lines):
        text = "\n".join(lot)
        if clean and _CONTROL.search(text):
            text = "\n".join(map(harmless, lot))
        stream.write(f"{text}\n")


def _lots(lines: Iterable[str]) -> Iterator[list[str]]:
    lot, size = list[str](), 0
    for line in lines:
        lot.append(line)
        size += len(line) + 1
        if size >= _LOT:
            yield lot
            lot, size = [], 0
    if lot:
        yield lot


def no_output_yet(job_id: str, state: str, *, ended: bool) -> str:
    """What `jobs logs` prints for a job without output; ``state``: as `jobs list` shows it."""
    return f"{job_id} has printed nothing; state: {state}" if ended else f"{job_id}: no output yet; state: {state}"


def line_of_job(line: LogLine) -> str:
    """The line; on a multi-node job with the rank that printed it in front."""
    return line.text if line.rank is None else f"[{line.rank}] {line.text}"


def harmless(text: str) -> str:
    """The text with its colours, but without other control sequences."""
    return _CONTROL.sub(lambda found: found[1] or "", text)
