"""Checks the signs of use of a session, in its own thread, and reports when it has been idle for too long."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from broker.agent import gpu, session
from broker.agent.clock import NodeClock
from broker.agent.endings import StopOrder
from broker.agent.environment import Scratch
from broker.agent.formats import Spec
from broker.agent.idleness import busiest
from broker.agent.processes import descendants, guard_mark, marked_pids, processes
from broker.agent.visitors import last_visit, visitors

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
