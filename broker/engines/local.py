"""This machine as capacity: the agent runs detached and outlives the command line and the broker.

Everything about an attempt is in the engine's folder under its key, readable by its owner only. If the machine itself
goes down, its end is the last heartbeat (the agent touches a file), early by at most one heartbeat.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from broker.agent.clock import from_text
from broker.core.market.machines import Machine
from broker.core.ports import EngineState, Launch, Observation
from broker.core.values.clock import Clock
from broker.engines.detached import Slot
from broker.engines.environment import agent_environment
from broker.engines.handles import Handles
from broker.engines.owner import living, note_owner


class Local:
    """The engine of owned capacity on this machine. Its handles are `broker.engines.handles`."""

    name = "local"
    honours = frozenset({"workdir", "setup", "secrets"})
    remote = False

    def __init__(self, home: Path, clock: Clock) -> None:
        """``home``: the engine's own folder, created when needed. ``clock`` dates what the agent could not."""
        self._root = home
        self._handles = Handles(self.name, home)
        self._clock = clock

    def submit(self, launch: Launch) -> str:
        slot = Slot.of(self._root, launch.key)

        def arguments(lock: int) -> list[str]:
            agent = [sys.executable, "-P", "-m", "broker.agent", "--folder", launch.run_folder]
            return [*agent, "--gang", launch.key, "--scratch", str(slot.folder), "--hold", str(lock)]

        note_owner(slot, launch, self._clock)
        slot.start(arguments, agent_environment(launch.secrets))
        return self._handles.of(launch.key)

    def find(self, key: str) -> str | None:
        return self._handles.find(key)

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        return {handle: self._observe(handle) for handle in handles}

    def cancel(self, handle: str) -> None:
        slot = self._handles.slot(handle)
        if slot is not None:
            slot.cancel()
            slot.enforce(_patience(slot))

    def machines(self) -> Iterator[Machine]:
        return living(self._root, self._handles, "processes on this machine")

    def end(self, handle: str) -> None:
        self.cancel(handle)

    def logs(self, handle: str) -> Iterator[str]:
        slot = self._handles.slot(handle)
        return slot.lines("output.log") if slot is not None else iter(())

    def _observe(self, handle: str) -> Observation:
        elsewhere = self._handles.elsewhere(handle)
        if elsewhere is not None:
            return elsewhere
        slot = self._handles.slot(handle)
        if slot is None or not slot.known():
            return Observation(EngineState.LOST, evidence="this machine knows nothing of it")
        # Check for life before reading its files: those of a dead process are complete.
        alive = slot.alive()
        agent = slot.read("agent.json")
        since = from_text(agent["at"]) if agent else None
        if alive:
            slot.enforce(_patience(slot))
            return Observation(EngineState.UP if agent else EngineState.PENDING, since)
        if agent is None:
            ended = slot.last_seen(self._clock, "process.log")
            return Observation(EngineState.GONE, None, ended, evidence=slot.last_words() or "the agent did not start")
        if agent["ended"] is not None:
            cause = agent["ended"]["cause"]
            gone_at = from_text(agent["ended"]["at"])
            interrupted = cause == "preempted" and slot.read("cancelled.json") is None
            return Observation(EngineState.GONE, since, gone_at, interrupted, f"the agent ended: {cause}")
        # The guard writes when it saw the command die.
        gone_at = slot.last_seen(self._clock, "agent.json", "alive", "died")
        return Observation(EngineState.GONE, since, gone_at, evidence="the agent died without a message")


def _patience(slot: Slot) -> timedelta:
    """After SIGTERM the agent gives the command its grace, and itself as long again to upload; then it is stuck."""
    agent = slot.read("agent.json")
    return timedelta(seconds=2 * float(agent["grace"]) + 15 if agent else 15)
