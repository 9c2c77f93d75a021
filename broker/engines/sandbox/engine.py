"""The engine ``sandbox``: each machine (or gang) of the simulated market is a real, detached process on this machine.

The process, `broker.engines.sandbox.machine`, plays the provider: it boots, runs the real agent on every node, gives
notice, and ends the machine with SIGKILL when the market takes it back. Times are those of the sandbox's clock.
"""

import fcntl
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from broker.agent.store import make_private
from broker.core.errors import NoCapacity
from broker.core.market.capacity import Machine
from broker.core.ports import EngineState, EntryCommand, Launch, Observation
from broker.core.values.clock import Clock, ScaledClock
from broker.engines.detached import Slot
from broker.engines.environment import agent_environment
from broker.engines.handles import Handles, note_owner, running_machines
from broker.engines.sandbox.machine import STOP_PATIENCE, SimulatedMachine
from broker.engines.sandbox.market import DEFAULT_SEED, DEFAULT_START, World


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
        """``home``: the engine's own folder. ``scenario``, ``seed`` and ``starts_at`` define the market; the sandbox
        provider has the same. Raises `InvalidInput` for a scenario that cannot be read."""
        self._home = home
        self._handles = Handles(self.name, home)
        self._clock = clock
        self.world = World.load(scenario, seed, starts_at)

    def submit(self, launch: Launch) -> str:
        slot = Slot.of(self._home, launch.key)
        handle = self._handles.of(launch.key)
        if slot.known():
            return handle
        with self._launching() as number_of:
            self._admit(launch, number_of(launch.key))
            make_private(slot.folder)
            note_owner(slot, launch, self._clock)
            slot.write("machine.json", self._machine(launch).to_json())

            def arguments(lock: int) -> list[str]:
                program = [sys.executable, "-P", "-m", "broker.engines.sandbox.machine"]
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

    def machines(self) -> Iterator[Machine]:
        return running_machines(self._home, self._handles, "a sandbox machine")

    def end(self, handle: str) -> None:
        self.cancel(handle)

    def way_in(self, handle: str, node: int, words: Sequence[str], *, terminal: bool) -> EntryCommand:
        return self._handles.way_in(handle, f"node-{node}", words)

    def _machine(self, launch: Launch) -> SimulatedMachine:
        """The machine that the market gives for this launch, with everything it will do to the machine."""
        since, pool, key = self._clock.now(), launch.placement.offer.pool, launch.key
        return SimulatedMachine(
            key=key,
            pool=pool,
            nodes=launch.job.num_nodes,
            run_folder=launch.run_folder,
            clock=_as_scaled(self._clock),
            since=since,
            booted_at=since + self.world.boot(key),
            fate=self.world.next_interruption(pool, key, since),
            notice_seconds=self.world.scenario.notice_seconds,
            lost=self.world.faults.is_lost(key),
        )

    def _observe(self, handle: str) -> Observation:
        remote_state = self._handles.elsewhere(handle)
        if remote_state is not None:
            return remote_state
        slot = self._handles.slot(handle)
        if slot is None or not slot.known() or self.world.faults.is_lost(slot.folder.name):
            return Observation(EngineState.LOST, evidence="the sandbox has no such machine")
        is_alive = slot.alive()  # determined before its files are read: those of a dead machine are complete
        state = slot.read("state.json") or {}
        since = datetime.fromisoformat(state["since"]) if state else None
        if is_alive:
            slot.enforce(STOP_PATIENCE + timedelta(seconds=5))
            state_now = EngineState.UP if state.get("booted") else EngineState.PENDING
            return Observation(state_now, since, evidence="a sandbox machine")
        if state.get("gone_at"):
            gone_at = datetime.fromisoformat(state["gone_at"])
            return Observation(EngineState.GONE, since, gone_at, bool(state["interrupted"]), str(state["evidence"]))
        # The process that plays the provider was killed, and the machine ended with it.
        gone_at = slot.last_seen(self._clock, "alive", "machine.json")
        return Observation(EngineState.GONE, since, gone_at, evidence="the sandbox machine was killed")

    def _admit(self, launch: Launch, number: int) -> None:
        """Raises the error of this launch, the ``number``-th, if the market refuses it: a fault, or `NoCapacity`."""
        pool = launch.placement.offer.pool
        fault = self.world.faults.launch_error(number, pool)
        if fault is not None:
            raise fault
        free = self.world.capacity(pool, self._clock.now()) - self._running(pool)
        if free < launch.job.num_nodes:
            raise NoCapacity(
                f"the simulated market has {free} machines left; the job needs {launch.job.num_nodes}", where=pool
            )

    def _running(self, pool: str) -> int:
        """The number of this engine's running machines in the pool."""
        count = 0
        for folder in self._home.iterdir():
            slot = Slot(folder)
            machine = slot.read("machine.json")
            if machine is not None and machine["pool"] == pool and slot.alive():
                count += int(machine["nodes"])
        return count

    @contextmanager
    def _launching(self) -> Iterator[Callable[[str], int]]:
        """Allows one launch at a time. Yields a function that numbers launch keys from 1, in the order of their first
        launch, also over restarts."""
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


def _as_scaled(clock: Clock) -> ScaledClock:
    """The clock in a form that another process can rebuild from values."""
    return clock if isinstance(clock, ScaledClock) else ScaledClock(now := datetime.now(UTC), now, 1.0)
