"""The simulated market's machines: real processes on this machine, at the sandbox's pace. Everything here is pretend
but the processes, their signals and their death.

Each machine (or gang) is one detached process, `broker.simulation.machine`, which plays the provider's part:
boots, runs the real agent on every node, gives notice, and takes the machine away with SIGKILL when the market says so.
"""

from __future__ import annotations

import fcntl
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from broker.agent.store import make_private
from broker.core.errors import NoCapacity
from broker.core.market.machines import Machine as Listed
from broker.core.ports import EngineState, Launch, Observation
from broker.core.values.clock import Clock, ScaledClock
from broker.engines.detached import Slot
from broker.engines.environment import agent_environment
from broker.engines.handles import Handles
from broker.engines.owner import living, note_owner
from broker.simulation.machine import STOP_PATIENCE, SimulatedMachine
from broker.simulation.market import DEFAULT_SEED, DEFAULT_START, World


class SandboxEngine:
    """The engine of the sandbox market. Its handles are `broker.engines.handles`."""

    name = "sandbox"
    honours = frozenset({"several_nodes", "workdir", "setup", "secrets"})
    remote = False

    def __init__(
        self,
        home: Path,
        clock: Clock,
        scenario: str = "default",
        seed: int = DEFAULT_SEED,
        starts_at: datetime = DEFAULT_START,
    ) -> None:
        """``home``: the engine's own folder. ``scenario``, ``seed`` and ``starts_at`` are the market, the same as the
        sandbox provider's. Raises `InvalidInput` for a scenario that cannot be read."""
        self._home = home
        self._handles = Handles(self.name, home)
        self._clock = clock
        self._market = (scenario, seed, starts_at)
        self.world = World.load(scenario, seed, starts_at)

    def submit(self, launch: Launch) -> str:
        slot = Slot.of(self._home, launch.key)
        handle = self._handles.of(launch.key)
        if slot.known():
            return handle
        with self._launching() as number_of:
            self._admit(launch, number_of(launch.key))
            machine = SimulatedMachine(
                key=launch.key,
                pool=launch.placement.offer.pool,
                nodes=launch.job.num_nodes,
                run_folder=launch.run_folder,
                market=self._market,
                clock=_scaled(self._clock),
                since=self._clock.now(),
            )
            make_private(slot.folder)
            note_owner(slot, launch, self._clock)
            slot.write("machine.json", machine.to_json())

            def arguments(lock: int) -> list[str]:
                program = [sys.executable, "-P", "-m", "broker.simulation.machine"]
                return [*program, str(slot.folder), str(lock)]

            slot.start(arguments, agent_environment(launch.secrets))
        return handle

    def find(self, key: str) -> str | None:
        return self._handles.find(key)

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        return {handle: self._observe(handle) for handle in handles}

    def cancel(self, handle: str) -> None:
        slot = self._handles.slot(handle)
        if slot is not None:
            slot.cancel()
            slot.enforce(STOP_PATIENCE + timedelta(seconds=5))

    def machines(self) -> Iterator[Listed]:
        return living(self._home, self._handles, "a sandbox machine")

    def end(self, handle: str) -> None:
        self.cancel(handle)

    def logs(self, handle: str) -> Iterator[str]:
        slot = self._handles.slot(handle)
        if slot is None:
            return
        machine = slot.read("machine.json")
        nodes = int(machine["nodes"]) if machine else 0
        for rank in range(nodes):
            for line in slot.lines(f"node-{rank}", "output.log"):
                yield f"(rank {rank}) {line}" if nodes > 1 else line

    def _observe(self, handle: str) -> Observation:
        elsewhere = self._handles.elsewhere(handle)
        if elsewhere is not None:
            return elsewhere
        slot = self._handles.slot(handle)
        if slot is None or not slot.known() or self.world.faults.is_lost(slot.folder.name):
            return Observation(EngineState.LOST, evidence="the sandbox knows nothing of it")
        alive = slot.alive()  # before what it wrote: what a dead machine wrote is complete
        state = slot.read("state.json") or {}
        since = datetime.fromisoformat(state["since"]) if state else None
        if alive:
            slot.enforce(STOP_PATIENCE + timedelta(seconds=5))
            up = EngineState.UP if state.get("booted") else EngineState.PENDING
            return Observation(up, since, evidence="a sandbox machine")
        if state.get("gone_at"):
            gone_at = datetime.fromisoformat(state["gone_at"])
            return Observation(EngineState.GONE, since, gone_at, bool(state["interrupted"]), str(state["evidence"]))
        # The process that plays the provider was killed, and took the machine with it.
        gone_at = slot.last_seen(self._clock, "alive", "machine.json")
        return Observation(EngineState.GONE, since, gone_at, evidence="the sandbox machine was killed")

    def _admit(self, launch: Launch, number: int) -> None:
        """Raises what the market answers to that launch, if it is not a yes."""
        pool = launch.placement.offer.pool
        fault = self.world.faults.launch_error(number, pool)
        if fault is not None:
            raise fault
        free = self.world.capacity(pool, self._clock.now()) - self._running(pool)
        if free < launch.job.num_nodes:
            raise NoCapacity(f"{free} machines left in the simulated market, {launch.job.num_nodes} wanted", where=pool)

    def _running(self, pool: str) -> int:
        """How many machines of the pool this engine runs."""
        found = 0
        for folder in self._home.iterdir():
            slot = Slot(folder)
            machine = slot.read("machine.json")
            if machine is not None and machine["pool"] == pool and slot.alive():
                found += int(machine["nodes"])
        return found

    @contextmanager
    def _launching(self) -> Iterator[Callable[[str], int]]:
        """One launch at a time, and which one it is: keys are numbered from 1 as they first come, and that survives
        a restart."""
        make_private(self._home)
        with (self._home / "launches.json").open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            keys = [json.loads(line) for line in file if line.endswith("\n")]

            def number_of(key: str) -> int:
                if key not in keys:
                    keys.append(key)
                    file.write(json.dumps(key) + "\n")
                    file.flush()
                return keys.index(key) + 1

            yield number_of


def _scaled(clock: Clock) -> ScaledClock:
    """The clock as values that another process can build it from."""
    return clock if isinstance(clock, ScaledClock) else ScaledClock(now := datetime.now(UTC), now, 1.0)
