"""An engine that lies while it is told to: about the dead, about what it knows, and about what is new."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from broker.core.ports import Engine, EngineState, Launch, Observation
from tests.chaos.control import Control

_THERE = (EngineState.UP, EngineState.PENDING)


class Lying:
    """The real engine behind a liar. Each lie that changes an answer counts as a strike."""

    def __init__(self, real: Engine, control: Control) -> None:
        self._real, self._control = real, control
        self._before: dict[str, Observation] = {}
        self.name, self.honours, self.remote = real.name, real.honours, real.remote

    def submit(self, launch: Launch) -> str:
        handle = self._real.submit(launch)
        if self._control.now("engine_repeats_itself") is not None:
            self._control.struck("engine_repeats_itself")
            handle = self._real.submit(launch)
        return handle

    def find(self, key: str) -> str | None:
        handle = self._real.find(key)
        if handle is not None and self._control.now("engine_loses_handles") is not None:
            self._control.struck("engine_loses_handles")
            return None
        return handle

    def observe(self, handles: Sequence[str]) -> Mapping[str, Observation]:
        truth = self._real.observe(handles)
        told = {handle: self._told(handle, seen) for handle, seen in truth.items()}
        self._before.update(truth)
        return told

    def _told(self, handle: str, seen: Observation) -> Observation:
        before = self._before.get(handle)
        if seen.state in _THERE and self._control.now("engine_loses_handles") is not None:
            self._control.struck("engine_loses_handles")
            return Observation(EngineState.LOST, evidence="never heard of it")
        if seen.state is EngineState.GONE and self._control.now("engine_says_running") is not None:
            self._control.struck("engine_says_running")
            return replace(seen, state=EngineState.UP, gone_at=None, interrupted=False, evidence="all is well")
        if before is not None and before != seen and self._control.now("engine_repeats_itself") is not None:
            self._control.struck("engine_repeats_itself")
            return before
        return seen

    def cancel(self, handle: str) -> None:
        self._real.cancel(handle)
        if self._control.now("engine_repeats_itself") is not None:
            self._real.cancel(handle)
