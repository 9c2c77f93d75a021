"""One pretend machine (or gang of them), and the provider's part towards it. Run as a program by the sandbox engine.

::

    launch ── boot ──▶ agents run ──▶ all ended ──▶ off
                          ├─ notice ─▶ SIGKILL, everything at once      (the market takes the machine back)
                          └─ SIGTERM ─▶ the agents' own grace ─▶ off    (the engine cancels it)

Usage: python -m broker.simulation.machine FOLDER LOCK_FD
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from broker.agent.clock import to_text
from broker.agent.command import CannotStart, Command, Exited, GuardGone
from broker.agent.notices import FILE_VARIABLE
from broker.core.values.clock import ScaledClock
from broker.engines.detached import Slot
from broker.simulation.market import World

# How long after a cancellation the agents may take (the wall's time); their own grace is shorter.
STOP_PATIENCE = timedelta(seconds=120)
_TICK = 0.2


@dataclass(frozen=True, slots=True)
class SimulatedMachine:
    """What a machine is made from. ``market``: scenario, seed and start of the world it lives in. ``since``: when it
    was launched, and is billed from."""

    key: str
    pool: str
    nodes: int
    run_folder: str
    market: tuple[str, int, datetime]
    clock: ScaledClock
    since: datetime

    def to_json(self) -> dict[str, Any]:
        scenario, seed, starts_at = self.market
        return {
            "key": self.key,
            "pool": self.pool,
            "nodes": self.nodes,
            "run_folder": self.run_folder,
            "market": [scenario, seed, starts_at.isoformat()],
            "since": self.since.isoformat(),
            "clock": [self.clock.origin.isoformat(), self.clock.starts_at.isoformat(), self.clock.scale],
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SimulatedMachine:
        scenario, seed, starts_at = values["market"]
        origin, begins, scale = values["clock"]
        return cls(
            key=values["key"],
            pool=values["pool"],
            nodes=values["nodes"],
            run_folder=values["run_folder"],
            market=(scenario, seed, datetime.fromisoformat(starts_at)),
            clock=ScaledClock(datetime.fromisoformat(origin), datetime.fromisoformat(begins), scale),
            since=datetime.fromisoformat(values["since"]),
        )


class SimulatedProvider:
    """Plays the provider towards one machine."""

    def __init__(self, slot: Slot, machine: SimulatedMachine, lock: int) -> None:
        self._slot, self._machine, self._lock = slot, machine, lock
        self._clock = machine.clock
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._nodes: list[Command] = []
        self._cancelled_at: float | None = None
        self._noticed = False
        self._ended: set[int] = set()
        self._killed = 0
        self._umask = os.umask(0o077)  # what the machine keeps is private; the job gets its own back

    def run(self) -> None:
        """Until the machine is gone."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        world = World.load(*self._machine.market)
        since = self._machine.since
        self._state()
        fate = world.next_interruption(self._machine.pool, self._machine.key, since)
        booted_at = since + world.boot(self._machine.key)
        lost = world.faults.is_lost(self._machine.key)
        while True:
            now = self._clock.now()
            if fate is not None and now >= fate:
                return self._take_away("taken back by the simulated market", interrupted=True)
            if fate is not None and now >= fate - world.scenario.notice:
                self._give_notice(fate)
            if self._cancelled_at is not None:
                if not self._nodes:
                    return self._take_away("cancelled while it booted")
                if time.monotonic() - self._cancelled_at > STOP_PATIENCE.total_seconds():
                    return self._take_away("cancelled, and did not stop by itself")
            if not self._nodes and now >= booted_at:
                self._boot()
            if self._nodes and lost:
                return self._take_away("lost, as the scenario wants it")
            if self._nodes and len(self._ended) == len(self._nodes):
                if self._cancelled_at is not None:
                    return self._take_away("cancelled")
                if self._noticed:
                    return self._take_away("the simulated market wanted it back", interrupted=True)
                if self._killed:
                    return self._take_away(f"its agent was killed by signal {self._killed}")
                return self._take_away("switched off after the job")
            self._wait(fate, None if self._nodes else booted_at, world.scenario.notice)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        if self._cancelled_at is None:
            self._cancelled_at = time.monotonic()
            for node in self._nodes:
                node.terminate()
        self._inbox.put(None)

    def _wait(self, fate: datetime | None, booted_at: datetime | None, notice: timedelta) -> None:
        """Until something may have happened."""
        (self._slot.folder / "alive").touch()
        now = self._clock.now()
        times = [fate, fate - notice if fate and not self._noticed else None, booted_at]
        waits = [(at - now).total_seconds() / self._clock.scale for at in times if at is not None]
        try:
            message = self._inbox.get(timeout=max(0.0, min([_TICK, *waits])))
        except queue.Empty:
            return
        if message is None:  # SIGTERM came
            return
        rank, what = message
        if isinstance(what, Exited) and what.status < 0:
            self._killed = -what.status
        elif isinstance(what, GuardGone) and rank not in self._ended:  # killed, and the agent with it
            self._killed = signal.SIGKILL
        if isinstance(what, Exited | CannotStart | GuardGone):
            self._ended.add(rank)

    def _boot(self) -> None:
        """Start the agents."""
        machine, folder = self._machine, self._slot.folder
        for rank in range(machine.nodes):
            scratch = folder / f"node-{rank}"
            scratch.mkdir(mode=0o700, exist_ok=True)
            agent = [sys.executable, "-P", "-m", "broker.agent", "--folder", machine.run_folder]
            options = ["--rank", str(rank), "--gang", f"{machine.key}/{os.getpid()}", "--scratch", str(scratch)]
            self._nodes.append(
                Command(
                    [*agent, *options],
                    environment={**os.environ, FILE_VARIABLE: str(folder / "notice.json")},
                    folder=Path("/"),
                    output=folder / f"agent-{rank}.log",
                    scratch=scratch,
                    umask=self._umask,
                    witness=None,
                    tell=lambda what, rank=rank: self._inbox.put((rank, what)),  # type: ignore[misc]  # the default binds it
                    keep_open=[self._lock],
                )
            )
        self._state(booted=True)
        if self._cancelled_at is not None:  # it came in between
            for node in self._nodes:
                node.terminate()

    def _give_notice(self, fate: datetime) -> None:
        if not self._noticed:
            self._noticed = True
            notice = {"source": "sandbox", "terminates_at": to_text(fate)}
            self._slot.write("notice.json", notice)

    def _take_away(self, evidence: str, *, interrupted: bool = False) -> None:
        """SIGKILL to all that runs on the machine; its disk goes with it."""
        for node in self._nodes:
            node.kill()
        self._state(booted=True, gone_at=self._clock.now(), interrupted=interrupted, evidence=evidence)
        for rank in range(self._machine.nodes):
            for name in ("checkpoints", "work", "lib"):
                shutil.rmtree(self._slot.folder / f"node-{rank}" / name, ignore_errors=True)

    def _state(
        self,
        *,
        booted: bool = False,
        gone_at: datetime | None = None,
        interrupted: bool = False,
        evidence: str = "",
    ) -> None:
        """What the engine reads."""
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
