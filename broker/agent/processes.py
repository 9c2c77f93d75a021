"""Processes of this machine, from Linux's ``/proc``. Elsewhere nothing is found."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from broker.agent.claims import kernel_start

ENTERED = "GPUBROKER_ENTERED"
"""The variable set for programs that people started beside a job's command: the `mark` of its guard, which
ends them.
"""

_PROC = Path("/proc")
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
    found = {}
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            name, _, rest = (folder / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
            words = rest.split()
            if words[0] not in "ZX":
                cpu = sum(map(int, words[11:15])) / _TICKS
                found[int(folder.name)] = ProcessInfo(int(folder.name), int(words[1]), name, cpu)
    return found


def descendants(roots: Iterable[int], among: Mapping[int, ProcessInfo]) -> Iterator[ProcessInfo]:
    """The processes with these pids, and all their descendants."""
    children: dict[int, list[int]] = {}
    for one in among.values():
        children.setdefault(one.parent, []).append(one.pid)
    left, seen = list(roots), set()
    while left:
        pid = left.pop()
        if pid in among and pid not in seen:
            seen.add(pid)
            left += children.get(pid, ())
            yield among[pid]


def mark(guard: int) -> str:
    """The value of `ENTERED` for programs beside the command of this guard. The guard computes the same."""
    return f"{guard}-{kernel_start(guard)}"


def marked(value: str) -> set[int]:
    """The pids of processes that began with `ENTERED` set to ``value``. Those of other users are not found."""
    wanted = f"{ENTERED}={value}".encode()
    found = set()
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
    return found


def variables(pid: int) -> dict[str, str]:
    """The variables with which the process started. Raises OSError, also without ``/proc``."""
    text = (_PROC / str(pid) / "environ").read_bytes()
    pairs = (one.partition(b"=") for one in text.split(b"\0") if b"=" in one)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
