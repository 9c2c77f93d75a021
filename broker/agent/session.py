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
        if any(one.use is Use.BUSY for one in signs) or now - self._looked_at > longest_gap:
            self._used_at = now
        unread = [one.name for one in signs if one.use is Use.UNKNOWN]
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
        return f"no sign of use for {_minutes(quiet)}: {', '.join(one.name for one in signs)} idle"


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 60 else f"{seconds:.0f} s"


def of_visitors(
    visitors: Collection[EnteredProgram],
    running: Mapping[int, ProcessInfo],
    moved: Mapping[int, int],
    seconds: float,
    typed: Mapping[int, float],
    came: float | None = None,
) -> Sign:
    """Activity of people inside the job since the last check, ``seconds`` ago: one of them runs a program other
    than a waiting shell, or bytes were transferred over a connection, or a terminal was used.

    ``moved``: the transferred bytes of each (by pid) at that check; ``typed``: how many seconds ago the terminal of
    each was used; ``came``: how many seconds ago somebody last entered or left.
    """
    busy = (came is not None and came < seconds) or any(
        _runs_something(one, running)
        or (one.moved is not None and one.moved - moved.get(one.pid, one.moved) > BUSY_BYTES * seconds)
        or typed.get(one.pid, seconds) < seconds
        for one in visitors
    )
    return Sign("SSH and programs that people run", Use.BUSY if busy else Use.IDLE)


def _runs_something(one: EnteredProgram, running: Mapping[int, ProcessInfo]) -> bool:
    """Whether the visitor runs anything but shells and the programs of the connection."""
    of_it = (process.name for process in descendants([one.pid], running) if process.pid != one.pid)
    return any(name not in SHELLS and not name.startswith("sshd") and name != "sftp-server" for name in of_it)


def of_cpu(before: Mapping[int, float], now: Mapping[int, float], seconds: float) -> Sign:
    """The CPU use of the job's processes in that time. ``before`` and ``now``: CPU seconds of each, by pid."""
    used = sum(cpu - before.get(pid, 0.0) for pid, cpu in now.items())
    name = "CPU"
    if not now or seconds <= 0:
        return Sign(name, Use.UNKNOWN)
    return Sign(name, Use.BUSY if used / seconds >= BUSY_CPU else Use.IDLE)


def of_gpus(gpus: int, busiest: float | None) -> Sign | None:
    """The activity of the accelerators.

    ``gpus``: the number that the job has; ``busiest``: percent, None if not reported.
    """
    if not gpus:
        return None
    use = Use.UNKNOWN if busiest is None else Use.BUSY if busiest >= BUSY_GPU else Use.IDLE
    return Sign("GPUs", use)


def of_kernels(states: Sequence[str] | None) -> Sign:
    """The activity of Jupyter's kernels. ``states``: their ``execution_state``; None if Jupyter did not answer."""
    if states is None:
        return Sign("Jupyter", Use.UNKNOWN)
    return Sign("Jupyter", Use.IDLE if all(one in ("idle", "dead") for one in states) else Use.BUSY)
