"""One simulated machine (or gang), and its provider. The sandbox engine runs this file as a program.

::

    launch ── boot ──▶ agents run ──▶ all ended ──▶ off
                          ├─ notice ─▶ SIGKILL, everything at once      (the market takes the machine back)
                          └─ SIGTERM ─▶ the agents' own grace ─▶ off    (the engine cancels it)

One such process starts for every launch, so it imports little: the engine, which has the market loaded, passes what the
market will do to the machine (`SimulatedMachine`).

Usage: python -m broker.engines.sandbox.machine FOLDER LOCK_FD
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from broker.agent.clock import to_text
from broker.agent.command import CannotStart, Command, Exited, GuardGone
from broker.agent.notices import FILE_VARIABLE
from broker.core.values.clock import ScaledClock
from broker.engines.detached import Slot
from broker.engines.gang import start_agent

# Wall time that the agents have after a cancellation; their own grace is shorter.
STOP_PATIENCE = timedelta(seconds=120)
_TICK = 0.2
_TIMES = ("since", "booted_at", "fate")


@dataclass(frozen=True, slots=True)
class SimulatedMachine:
    """One machine and its future. Times are UTC in the sandbox's clock.

    ``since``: launch, and start of billing. ``booted_at``: start of the agents. ``fate``: when the market takes the
    machine back, None if it does not; the notice comes ``notice_seconds`` (of the sandbox's clock) earlier. ``lost``:
    the machine disappears once it has booted.
    """

    key: str
    pool: str
    nodes: int
    run_folder: str
    clock: ScaledClock
    since: datetime
    booted_at: datetime
    fate: datetime | None
    notice_seconds: float
    lost: bool

    @property
    def notice_at(self) -> datetime | None:
        return self.fate - timedelta(seconds=self.notice_seconds) if self.fate else None

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        values["clock"] = [self.clock.origin.isoformat(), self.clock.starts_at.isoformat(), self.clock.scale]
        return values | {name: at.isoformat() for name in _TIMES if (at := values[name]) is not None}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SimulatedMachine:
        origin, starts_at, scale = values["clock"]
        clock = ScaledClock(datetime.fromisoformat(origin), datetime.fromisoformat(starts_at), scale)
        times = {name: datetime.fromisoformat(values[name]) for name in _TIMES if values[name] is not None}
        return cls(**{**values, **times, "clock": clock})


class SimulatedProvider:
    """Plays the provider of one machine."""

    def __init__(self, slot: Slot, machine: SimulatedMachine, lock: int) -> None:
        self._slot, self._machine, self._lock = slot, machine, lock
        self._clock = machine.clock
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._nodes: list[Command] = []
        self._cancelled_at: float | None = None
        self._noticed = False
        self._ended: set[int] = set()
        self._killed = 0
        self._umask = os.umask(0o077)  # files of the machine are private; the job keeps its own umask

    def run(self) -> None:
        """Plays until the machine is gone."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._write_state()
        while (end := self._end()) is None:
            now = self._clock.now()
            if self._machine.notice_at is not None and now >= self._machine.notice_at:
                self._give_notice()
            if not self._nodes and now >= self._machine.booted_at:
                self._boot()
            else:
                self._wait()
        self._take_away(*end)

    def _end(self) -> tuple[str, bool] | None:
        """The reason why the machine ends now, and whether that is an interruption; None: it continues."""
        if self._machine.fate is not None and self._clock.now() >= self._machine.fate:
            return "taken back by the simulated market", True
        if self._cancelled_at is not None:
            if not self._nodes:
                return "cancelled while it booted", False
            if time.monotonic() - self._cancelled_at > STOP_PATIENCE.total_seconds():
                return "cancelled, and killed because it did not stop", False
        if not self._nodes:
            return None
        if self._machine.lost:
            return "lost: the scenario has a fault for this machine", False
        if len(self._ended) < len(self._nodes):
            return None
        if self._cancelled_at is not None:
            return "cancelled", False
        if self._noticed:
            return "ended after the simulated market's notice", True
        if self._killed:
            return f"its agent was killed by signal {self._killed}", False
        return "switched off after the job", False

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if self._cancelled_at is None:
            self._cancelled_at = time.monotonic()
            for node in self._nodes:
                node.terminate()
        self._inbox.put(None)

    def _wait(self) -> None:
        """Waits until something may have happened."""
        (self._slot.folder / "alive").touch()
        now = self._clock.now()
        machine = self._machine
        times = [
            machine.fate,
            None if self._noticed else machine.notice_at,
            None if self._nodes else machine.booted_at,
        ]
        waits = [(at - now).total_seconds() / self._clock.scale for at in times if at is not None]
        try:
            message = self._inbox.get(timeout=max(0.0, min([_TICK, *waits])))
        except queue.Empty:
            return
        if message is None:  # SIGTERM came
            return
        rank, event = message
        if isinstance(event, Exited) and event.status < 0:
            self._killed = -event.status
        elif isinstance(event, GuardGone) and rank not in self._ended:  # the guard was killed, and the agent with it
            self._killed = signal.SIGKILL
        if isinstance(event, Exited | CannotStart | GuardGone):
            self._ended.add(rank)

    def _boot(self) -> None:
        machine, folder = self._machine, self._slot.folder
        for rank in range(machine.nodes):
            self._nodes.append(
                start_agent(
                    folder,
                    rank,
                    run_folder=machine.run_folder,
                    gang=f"{machine.key}/{os.getpid()}",
                    environment={**os.environ, FILE_VARIABLE: str(folder / "notice.json")},
                    umask=self._umask,
                    tell=lambda event, rank=rank: self._inbox.put((rank, event)),  # type: ignore[misc]  # the default binds it
                    keep_open=[self._lock],
                )
            )
        self._write_state(booted=True)
        if self._cancelled_at is not None:  # cancelled while they started
            for node in self._nodes:
                node.terminate()

    def _give_notice(self) -> None:
        if not self._noticed and self._machine.fate is not None:
            self._noticed = True
            self._slot.write("notice.json", {"source": "sandbox", "terminates_at": to_text(self._machine.fate)})

    def _take_away(self, evidence: str, interrupted: bool) -> None:
        """Ends the machine: kills each of its processes (SIGKILL) and deletes its disk."""
        for node in self._nodes:
            node.kill()
        self._write_state(booted=True, gone_at=self._clock.now(), interrupted=interrupted, evidence=evidence)
        for rank in range(self._machine.nodes):
            for name in ("checkpoints", "work", "lib"):
                shutil.rmtree(self._slot.folder / f"node-{rank}" / name, ignore_errors=True)
            (self._slot.folder / f"node-{rank}" / "output.log").unlink(missing_ok=True)

    def _write_state(
        self,
        *,
        booted: bool = False,
        gone_at: datetime | None = None,
        interrupted: bool = False,
        evidence: str = "",
    ) -> None:
        state = {
            "since": self._machine.since.isoformat(),
            "booted": booted,
            "gone_at": gone_at.isoformat() if gone_at else None,
            "interrupted": interrupted,
            "evidence": evidence,
        }
        self._slot.write("state.json", state)


def main(arguments: list[str]) -> int:
    folder, lock = Path(arguments[0]), int(arguments[1])
    os.set_inheritable(lock, False)
    machine = SimulatedMachine.from_json(json.loads((folder / "machine.json").read_text("utf-8")))
    SimulatedProvider(Slot(folder), machine, lock).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
