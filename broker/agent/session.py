"""Whether a session is still in use, and when it has been idle for too long, checked in a thread of its own.

An unreadable sign counts as use, but at most until ``at_most`` after the last readable one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from broker.agent import gpu, session
from broker.agent.clock import NodeClock
from broker.agent.endings import StopOrder
from broker.agent.environment import Scratch
from broker.agent.formats import SessionSpec, Spec
from broker.agent.idleness import busiest
from broker.agent.processes import ProcessInfo, descendants, guard_mark, marked_pids, processes
from broker.agent.running_command import EnteredProgram, last_visit, visitors

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


log = logging.getLogger("gpubroker-agent")
_PATIENCE = 5.0
_GAP = 20  # intervals between checks


class SessionWatch:
    """``guard``: the pid of the command's guard; ``end`` is called once, with the stop."""

    def __init__(
        self, spec: Spec, scratch: Scratch, clock: NodeClock, guard: int, end: Callable[[StopOrder], None]
    ) -> None:
        assert spec.session is not None, "only sessions are watched"
        self._spec, self._scratch, self._scale, self._guard, self._end = spec, scratch, clock.scale, guard, end
        self._rule = session.SessionIdleness(spec.session, self._now())
        self._cpu: dict[int, float] = {}
        self._moved: dict[int, int] = {}
        self._looked = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="session", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop checking. Does not wait for a check that waits for Jupyter or a driver: the time to save is short."""
        self._stopped.set()
        self._thread.join(1.0)

    def _now(self) -> float:
        return time.monotonic() * self._scale

    def _run(self) -> None:
        interval = self._spec.intervals.session
        while not self._stopped.wait(interval):
            try:
                reason = self._rule.over(self._signs(), self._now(), longest_gap=_GAP * interval * self._scale)
            except Exception:  # an error must not end a session; its time limit and money do
                log.exception("the use of the session could not be read this time")
                continue
            if reason is not None and not self._stopped.is_set():
                self._end(StopOrder("idle", reason))
                return

    def _signs(self) -> list[session.Sign]:
        seconds, self._looked = time.monotonic() - self._looked, time.monotonic()
        running, present = processes(), visitors(self._scratch.root)
        typed_ago = {entry.pid: at for entry in present if (at := _seconds_since_typed(entry.terminal)) is not None}
        visit_time = last_visit(self._scratch.root)
        visited_ago = None if visit_time is None else max(0.0, time.time() - visit_time)
        people = session.visitor_sign(present, running, self._moved, seconds, typed_ago, visited_ago)
        self._moved = {entry.pid: entry.moved for entry in present if entry.moved is not None}
        cpu_seconds = {entry.pid: entry.cpu for entry in descendants([self._guard], running)}
        cpu_seconds |= {pid: running[pid].cpu for pid in marked_pids(guard_mark(self._guard)) if pid in running}
        cpu = session.cpu_sign(self._cpu or cpu_seconds, cpu_seconds, seconds)
        self._cpu = cpu_seconds
        signs = [people, cpu]
        if self._spec.nodes > 1:  # the first node decides for the session, and does not see the signs of the others
            signs.append(session.Sign("the other nodes", session.Use.UNKNOWN))
        if (
            gpu_use := session.gpu_sign(self._spec.gpus, busiest(entry.to_json() for entry in gpu.sample()))
        ) is not None:
            signs.append(gpu_use)
        assert self._spec.session is not None
        if self._spec.session.jupyter:
            signs.append(session.kernel_sign(kernel_states(self._scratch.root / "jupyter")))
        return signs


def _seconds_since_typed(terminal: str | None) -> float | None:
    """How many seconds ago the terminal was read or written; None if there is none."""
    if terminal is not None:
        with contextlib.suppress(OSError):
            info = Path(terminal).stat()
            return max(0.0, time.time() - max(info.st_atime, info.st_mtime))
    return None


def kernel_states(runtime: Path) -> list[str] | None:
    """The states of the kernels of the Jupyter servers that have a file in this folder, by their REST API (``GET
    /api/kernels``); None if one does not answer. ``runtime``: Jupyter's runtime folder.
    """
    import urllib.request  # takes memory, and few jobs have Jupyter

    # Without the proxies of the environment: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    states: list[str] = []
    servers = sorted(runtime.glob("jpserver-*.json"))
    for file in servers:
        try:
            server = json.loads(file.read_text())
            address = f"http://127.0.0.1:{int(server['port'])}{server.get('base_url', '/')}api/kernels"
            request = urllib.request.Request(address, headers={"Authorization": f"token {server['token']}"})
            with opener.open(request, timeout=_PATIENCE) as answer:
                states += _states(json.load(answer))
        except (OSError, ValueError, KeyError, TypeError):
            return None
    return states if servers else None


def _states(kernels: Sequence[Any]) -> list[str]:
    """The states of kernels. A kernel without a connection stays ``starting``: nothing runs in it."""
    return [
        "idle"
        if kernel["execution_state"] == "starting" and not kernel.get("connections", 1)
        else str(kernel["execution_state"])
        for kernel in kernels
    ]
