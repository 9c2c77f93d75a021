"""A job's output as it is printed: unchanged to files and pipes; to a terminal, without what would control it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from broker.app.jobs.logs import LogLine

# A program's colours and weights may pass (`_STYLE`). What sets titles, writes to the clipboard, moves the cursor or
# asks the terminal for an answer may not: a job's output may come from anybody. ECMA-48, sections 5.4 and 5.6.
_STYLE = r"\x1b\[[0-9;:]*m"
_CONTROL = re.compile(
    rf"({_STYLE})"
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # control sequences
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # strings: of the operating system, of devices, of applications
    r"|\x1b[ -/]*[0-~]?"  # other escape sequences
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"
)


def print_output(stream: TextIO, lines: Iterable[str]) -> None:
    """Write the lines, each with a line break. Does not flush."""
    clean = stream.isatty()
    stream.writelines(f"{harmless(line) if clean else line}\n" for line in lines)


def line_of_job(line: LogLine) -> str:
    """The line behind the rank that printed it, on a job of several nodes."""
    return line.text if line.rank is None else f"[{line.rank}] {line.text}"


def harmless(text: str) -> str:
    """The text with its colours and without all else that controls a terminal."""
    return _CONTROL.sub(lambda found: found[1] or "", text)
