"""A command under a guard (see ``guard``): the agent receives its messages and can terminate or kill it."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from broker.agent.processes import end_orphans


@dataclass(frozen=True)
class Started:
    pid: int


@dataclass(frozen=True)
class CannotStart:
    because: str


@dataclass(frozen=True)
class Exited:
    """``status``: the exit status, or minus the number of the signal that killed it."""

    status: int


@dataclass(frozen=True)
class OrphanExited:
    """A process ended that the command had left running: a program of a shell that died before it.

    On Linux only. ``status``: as in `Exited`.
    """

    status: int


@dataclass(frozen=True)
class GroupEmpty:
    """No process of the command's group is left."""


@dataclass(frozen=True)
class GuardGone:
    """The guard ended (the last message of every command)."""


def guard_script(scratch: Path) -> Path:
    """The path of the guard's script: the module's own file, or a copy in ``scratch`` if the package is in an
    archive."""
    own = Path(__file__).with_name("guard.py")
    if own.is_file():
        return own
    source = pkgutil.get_data(__package__, "guard.py")
    assert source is not None, "the guard is shipped with the agent"
    copy = scratch / "guard.py"
    copy.write_bytes(source)
    return copy


@dataclass(frozen=True)
class CommandFiles:
    """``output``: the file to which standard output and error are appended.

    ``scratch``: a folder for a copy of the guard. ``witness``: the file that the guard writes after the command's
    death.
    """

    output: Path
    scratch: Path
    witness: Path | None


class Command:
    """A running command; the constructor starts it.

    ``tell`` receives `Started` or `CannotStart`, `Exited`, `OrphanExited`, `GroupEmpty`, and finally `GuardGone`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        files: CommandFiles,
        umask: int,
        tell: Callable[[Any], None],
        keep_open: Sequence[int] = (),
    ) -> None:
        self._tell, self._scratch = tell, files.scratch
        self.pid: int | None = None
        with files.output.open("ab") as sink:
            self._guard = subprocess.Popen(  # noqa: S603 (running the job's command is what this is for)
                [
                    sys.executable,
                    *("-I", "-S", str(guard_script(files.scratch))),
                    *(str(sink.fileno()), str(files.witness) if files.witness else "-", f"{umask:o}"),
                    ",".join(map(str, keep_open)) or "-",
                    *arguments,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=dict(environment),
                cwd=folder,
                pass_fds=(sink.fileno(), *keep_open),
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._listen, name="command", daemon=True)
        self._reader.start()

    @property
    def guard(self) -> int:
        """The pid of the guard."""
        return self._guard.pid

    def terminate(self) -> None:
        """SIGTERM to the process group."""
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            os.write(self._guard.stdin.fileno(), b"T")

    def kill(self) -> None:
        """SIGKILL to everything that the command started; returns when all of it is dead."""
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        self._guard.wait()
        self._reader.join()

    def _listen(self) -> None:
        assert self._guard.stdout is not None
        for line in self._guard.stdout:
            word, _, value = line.decode(errors="replace").strip().partition(" ")
            if word == "started":
                self.pid = int(value)
                self._tell(Started(self.pid))
            elif word == "failed":
                self._tell(CannotStart(value))
            elif word == "exited":
                self._tell(Exited(int(value)))
            elif word == "left":
                self._tell(OrphanExited(int(value)))
            elif word == "empty":
                self._tell(GroupEmpty())
        if self.pid is not None and self._guard.wait() != 0:
            # The guard was killed. The parent-death signal should have killed the command; make sure.
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
            end_orphans(self._scratch)
        self._tell(GuardGone())
