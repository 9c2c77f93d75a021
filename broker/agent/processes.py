"""Processes of this machine, from Linux's ``/proc``. Elsewhere nothing is found."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ENTERED = "GPUBROKER_ENTERED"
"""The variable set for programs that people started inside a job: the `guard_mark` of its guard, which
ends them.
"""

_PROC = Path("/proc")
_PATIENCE = 5.0
_FOLDERS = ("work", "outputs", "inputs", "checkpoints", "home")  # not those of other ranks, which lie beside them
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessInfo:
    """A process. ``cpu``: seconds of CPU time that it used, including those of children that it has waited for."""

    pid: int
    parent: int
    name: str
    cpu: float


def processes() -> dict[int, ProcessInfo]:
    """All running processes, by pid, without zombies."""
    running = {}
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            name, _, rest = (folder / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
            words = rest.split()
            if words[0] not in "ZX":
                cpu = sum(map(int, words[11:15])) / _TICKS
                running[int(folder.name)] = ProcessInfo(int(folder.name), int(words[1]), name, cpu)
    return running


def descendants(roots: Iterable[int], among: Mapping[int, ProcessInfo]) -> Iterator[ProcessInfo]:
    """The processes with these pids, and all their descendants."""
    children: dict[int, list[int]] = {}
    for process in among.values():
        children.setdefault(process.parent, []).append(process.pid)
    pending, seen = list(roots), set()
    while pending:
        pid = pending.pop()
        if pid in among and pid not in seen:
            seen.add(pid)
            pending += children.get(pid, ())
            yield among[pid]


def kernel_start(pid: int | None = None) -> str | None:
    """The start of the process (None: this one) in kernel ticks since boot, which changes of the wall clock do not
    affect. None if there is no such process, if it is a zombie, or without /proc."""
    with contextlib.suppress(OSError, IndexError):
        words = Path(f"/proc/{pid or 'self'}/stat").read_text().rpartition(")")[2].split()
        return None if words[0] in "ZX" else words[19]
    return None


def orphans(scratch: Path) -> set[int]:
    """The processes that the command of an agent with this scratch folder started, however they left its session: they
    began with the variables of the job, or write to its output, or are in one of its folders without a terminal (a
    person who looks around has one), or descend from such a process."""
    pids = _pids_with(f"GPUBROKER_CHECKPOINT_DIR={scratch / 'checkpoints'}", os.path.realpath(scratch / "output.log"))
    pids |= _pids_in(scratch)
    return {process.pid for process in descendants(pids, processes())} - {os.getpid()}


def files_written(process: Path, at: str) -> Iterator[str]:
    """The files that a process (its folder in ``/proc``) has open for writing, whose path begins with ``at``. Raises
    OSError for a process that is gone or of another user."""
    for descriptor in (process / "fd").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):  # closed meanwhile: the others still count
            target = str(descriptor.readlink())
            if target.startswith(at):
                flags = (process / "fdinfo" / descriptor.name).read_text().split("flags:")[1].split()[0]
                if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                    yield target


def end_orphans(scratch: Path) -> bool:
    """Kill all `orphans`; false if one still runs after some seconds. Call it only when the agent is dead, or when the
    guard of its command is."""
    deadline = time.monotonic() + _PATIENCE
    while pids := orphans(scratch):
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def guard_mark(guard: int) -> str:
    """The value of `ENTERED` for programs that people run inside the job of this guard. The guard computes the same."""
    return f"{guard}-{kernel_start(guard)}"


def marked_pids(value: str) -> set[int]:
    """The pids of processes that began with `ENTERED` set to ``value``. Those of other users are not found."""
    return _pids_with(f"{ENTERED}={value}")


def _pids_with(variable: str, output: str = "") -> set[int]:
    pids = set()
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            is_marked = os.fsencode(variable) in (folder / "environ").read_bytes().split(b"\0")
            if is_marked or (output and any(files_written(folder, output))):
                pids.add(int(folder.name))
    return pids


def _pids_in(scratch: Path) -> set[int]:
    """Processes without a terminal whose current folder is one of the job's, also if it was removed."""
    root = os.path.realpath(scratch)
    folders = tuple(f"{root}/{name}{end}" for name in _FOLDERS for end in ("/", " (deleted)"))
    pids = set()
    for process in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if f"{(process / 'cwd').readlink()}/".startswith(folders):
                words = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if words[4] == "0":
                    pids.add(int(process.name))
    return pids


def variables(pid: int) -> dict[str, str]:
    """The variables with which the process started. Raises OSError, also without ``/proc``."""
    text = (_PROC / str(pid) / "environ").read_bytes()
    pairs = (entry.partition(b"=") for entry in text.split(b"\0") if b"=" in entry)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
