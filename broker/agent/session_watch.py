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
from broker.agent.processes import descendants, mark, marked, processes
from broker.agent.visitors import last_came, visitors

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
        every = self._spec.intervals.session
        while not self._stopped.wait(every):
            try:
                told = self._rule.over(self._signs(), self._now(), longest_gap=_GAP * every * self._scale)
            except Exception:  # an error must not end a session; its time limit and money do
                log.exception("the use of the session could not be read this time")
                continue
            if told is not None and not self._stopped.is_set():
                self._end(StopOrder("idle", told))
                return

    def _signs(self) -> list[session.Sign]:
        seconds, self._looked = time.monotonic() - self._looked, time.monotonic()
        running, beside = processes(), visitors(self._scratch.root)
        typed = {one.pid: at for one in beside if (at := _typed(one.terminal)) is not None}
        came = last_came(self._scratch.root)
        ago = None if came is None else max(0.0, time.time() - came)
        people = session.of_visitors(beside, running, self._moved, seconds, typed, ago)
        self._moved = {one.pid: one.moved for one in beside if one.moved is not None}
        ours = {one.pid: one.cpu for one in descendants([self._guard], running)}
        ours |= {pid: running[pid].cpu for pid in marked(mark(self._guard)) if pid in running}
        cpu = session.of_cpu(self._cpu or ours, ours, seconds)
        self._cpu = ours
        found = [people, cpu]
        if self._spec.nodes > 1:  # the first node decides for the session, and does not see the signs of the others
            found.append(session.Sign("the other nodes", session.Use.UNKNOWN))
        if (of_gpus := session.of_gpus(self._spec.gpus, busiest(one.to_json() for one in gpu.sample()))) is not None:
            found.append(of_gpus)
        assert self._spec.session is not None
        if self._spec.session.jupyter:
            found.append(session.of_kernels(kernel_states(self._scratch.root / "jupyter")))
        return found


def _typed(terminal: str | None) -> float | None:
    """How many seconds ago the terminal was read or written; None if there is none."""
    if terminal is not None:
        with contextlib.suppress(OSError):
            about = Path(terminal).stat()
            return max(0.0, time.time() - max(about.st_atime, about.st_mtime))
    return None


def kernel_states(runtime: Path) -> list[str] | None:
    """The states of the kernels of the Jupyter servers that have a file in this folder, by their REST API (``GET
    /api/kernels``); None if one does not answer. ``runtime``: Jupyter's runtime folder.
    """
    import urllib.request  # takes memory, and few jobs have Jupyter

    # Without the proxies of the environment: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    found: list[str] = []
    servers = sorted(runtime.glob("jpserver-*.json"))
    for file in servers:
        try:
            about = json.loads(file.read_text())
            address = f"http://127.0.0.1:{int(about['port'])}{about.get('base_url', '/')}api/kernels"
            request = urllib.request.Request(address, headers={"Authorization": f"token {about['token']}"})
            with opener.open(request, timeout=_PATIENCE) as answer:
                found += _states(json.load(answer))
        except (OSError, ValueError, KeyError, TypeError):
            return None
    return found if servers else None


def _states(kernels: Sequence[Any]) -> list[str]:
    """The states of kernels. A kernel without a connection stays ``starting``: nothing runs in it."""
    return [
        "idle"
        if one["execution_state"] == "starting" and not one.get("connections", 1)
        else str(one["execution_state"])
        for one in kernels
    ]
