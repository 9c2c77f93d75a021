"""Whether a session is still in use, and when it has been idle for too long. Pure: times come from the caller.

An unreadable sign counts as use, but at most until ``at_most`` after the last readable one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from broker.agent.formats import SessionSpec
from broker.agent.processes import ProcessInfo, descendants
from broker.agent.visitors import EnteredProgram

SHELLS = frozenset({"ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"})
BUSY_CPU = 0.1
"""A job uses its machine above this CPU use (number of CPUs); servers that wait use less."""
BUSY_GPU = 5.0
"""Percent."""
BUSY_BYTES = 100.0
"""Bytes per second over a connection that count as use; keeping it open takes less."""


class Use(Enum):
    """The value of one sign of use."""

    BUSY = "busy"
    IDLE = "idle"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Sign:
    """One sign of use. ``name``: for people."""

    name: str
    use: Use


class SessionIdleness:
    """The rule of one session. ``started``: when it began. Times are seconds of the spec's clock."""

    def __init__(self, rule: SessionSpec, started: float) -> None:
        self._rule = rule
        self._used_at = self._unread_at = self._looked_at = started

    def over(self, signs: Sequence[Sign], now: float, *, longest_gap: float) -> str | None:
        """Why the session must end, by the signs at this moment; None while it may continue.

        A pause of more than ``longest_gap`` (seconds) since the last check counts as use, since nothing was observed in
        it.
        """
        if any(sign.use is Use.BUSY for sign in signs) or now - self._looked_at > longest_gap:
            self._used_at = now
        unread = [sign.name for sign in signs if sign.use is Use.UNKNOWN]
        self._looked_at = now
        quiet = now - self._used_at
        if unread and (self._rule.at_most is None or quiet < self._rule.at_most):
            self._unread_at = now
            return None
        if unread:
            return f"no sign of use for {_minutes(quiet)}; {' and '.join(unread)} could not be read"
        quiet = now - max(self._used_at, self._unread_at)
        if self._rule.idle is None or quiet < self._rule.idle:
            return None
        return f"no sign of use for {_minutes(quiet)}: {', '.join(sign.name for sign in signs)} idle"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


def visitor_sign(
    visitors: Collection[EnteredProgram],
    running: Mapping[int, ProcessInfo],
    moved: Mapping[int, int],
    seconds: float,
    typed_ago: Mapping[int, float],
    visited_ago: float | None = None,
) -> Sign:
    """Activity of people inside the job since the last check, ``seconds`` ago: one of them runs a program other
    than a waiting shell, or bytes were transferred over a connection, or a terminal was used.

    ``moved``: the transferred bytes of each (by pid) at that check; ``typed_ago``: how many seconds ago the terminal of
    each was used; ``visited_ago``: how many seconds ago somebody last entered or left.
    """
    busy = (visited_ago is not None and visited_ago < seconds) or any(
        _runs_program(visitor, running)
        or (visitor.moved is not None and visitor.moved - moved.get(visitor.pid, visitor.moved) > BUSY_BYTES * seconds)
        or typed_ago.get(visitor.pid, seconds) < seconds
        for visitor in visitors
    )
    return Sign("SSH and programs that people run", Use.BUSY if busy else Use.IDLE)


def _runs_program(visitor: EnteredProgram, running: Mapping[int, ProcessInfo]) -> bool:
    """Whether the visitor runs anything but shells and the programs of the connection."""
    names = (process.name for process in descendants([visitor.pid], running) if process.pid != visitor.pid)
    return any(name not in SHELLS and not name.startswith("sshd") and name != "sftp-server" for name in names)


def cpu_sign(before: Mapping[int, float], now: Mapping[int, float], seconds: float) -> Sign:
    """The CPU use of the job's processes in that time. ``before`` and ``now``: CPU seconds of each, by pid."""
    cpu_seconds = sum(cpu - before.get(pid, 0.0) for pid, cpu in now.items())
    name = "CPU"
    if not now or seconds <= 0:
        return Sign(name, Use.UNKNOWN)
    return Sign(name, Use.BUSY if cpu_seconds / seconds >= BUSY_CPU else Use.IDLE)


def gpu_sign(gpus: int, busiest: float | None) -> Sign | None:
    """The activity of the accelerators.

    ``gpus``: the number that the job has; ``busiest``: percent, None if not reported.
    """
    if not gpus:
        return None
    use = Use.UNKNOWN if busiest is None else Use.BUSY if busiest >= BUSY_GPU else Use.IDLE
    return Sign("GPUs", use)


def kernel_sign(states: Sequence[str] | None) -> Sign:
    """The activity of Jupyter's kernels. ``states``: their ``execution_state``; None if Jupyter did not answer."""
    if states is None:
        return Sign("Jupyter", Use.UNKNOWN)
    return Sign("Jupyter", Use.IDLE if all(state in ("idle", "dead") for state in states) else Use.BUSY)
