"""Programs that people run inside a job: one file for each, removed when the program ends."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from broker.agent.names import replace_document
from broker.agent.processes import kernel_start

FOLDER = "visitors"
_CAME = "came"


@dataclass(frozen=True)
class EnteredProgram:
    """A program that runs inside the job.

    ``pid``: the process that started it (`broker.agent.running_command`), its parent; ``born``: its start.
    ``moved``: bytes transferred over its SSH connection; None if it has none. ``terminal``: its terminal device.
    """

    pid: int
    born: str | None
    moved: int | None = None
    terminal: str | None = None


class Visit:
    """The entry of this process in the list of such programs of an attempt. ``scratch``: the agent's folder."""

    def __init__(self, scratch: Path, *, over_ssh: bool) -> None:
        folder = scratch / FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        self._file = folder / f"{os.getpid()}.json"
        terminal = None
        with contextlib.suppress(OSError):
            terminal = os.ttyname(0)
        moved = 0 if over_ssh else None
        self._own = EnteredProgram(os.getpid(), kernel_start(), moved, terminal)
        self._write()
        _touch(folder)

    def moved(self, total: int) -> None:
        """Record the number of bytes transferred over the connection so far."""
        self._own = EnteredProgram(self._own.pid, self._own.born, total, self._own.terminal)
        self._write()

    def over(self) -> None:
        """Remove the entry."""
        with contextlib.suppress(OSError):
            self._file.unlink()
        _touch(self._file.parent)

    def _write(self) -> None:
        replace_document(self._file, asdict(self._own))


def _touch(folder: Path) -> None:
    with contextlib.suppress(OSError):
        (folder / _CAME).touch(mode=0o600)


def last_visit(scratch: Path) -> float | None:
    """When such a program last started or ended (seconds since 1970); None if there was none."""
    try:
        return (scratch / FOLDER / _CAME).stat().st_mtime
    except OSError:
        return None


def visitors(scratch: Path) -> list[EnteredProgram]:
    """The programs that run inside the job now."""
    programs = []
    for file in sorted((scratch / FOLDER).glob("*.json")):
        with contextlib.suppress(OSError, ValueError, TypeError):
            program = EnteredProgram(**json.loads(file.read_text()))
            if kernel_start(program.pid) == program.born:
                programs.append(program)
    return programs
