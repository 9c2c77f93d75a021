"""The answers of a real NVML, call by call: what the double of it in the tests is held to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class NvmlAnswer:
    """One call of the binding. ``arguments``: those that are numbers (handles are left out). ``kind``: the type of the
    answer; ``value``: as JSON, for a structure its fields. ``error``: the class and the number of what was raised."""

    call: str
    arguments: tuple[int, ...]
    kind: str
    value: Any = None
    error: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        told = {"call": self.call, "arguments": list(self.arguments), "kind": self.kind}
        return {**told, "error": dict(self.error)} if self.error else {**told, "value": self.value}


@dataclass
class RecordedNvml:
    """Stands before the binding, passes each call on and notes the answer."""

    binding: Any
    answers: list[NvmlAnswer] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        there = getattr(self.binding, name)
        return self._noting(name, there) if name.startswith("nvml") and callable(there) else there

    def _noting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            numbers = tuple(one for one in arguments if isinstance(one, int))
            try:
                answer = call(*arguments)
            except self.binding.NVMLError as error:
                told = {"class": type(error).__name__, "number": error.value, "text": str(error)}
                self.answers.append(NvmlAnswer(name, numbers, "raised", error=told))
                raise
            self.answers.append(NvmlAnswer(name, numbers, type(answer).__name__, as_json(answer)))
            return answer

        return noted


def as_json(value: Any) -> Any:
    """Numbers and texts as they are; of a structure its numbers; of a handle nothing."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    names = [name for name, *_ in getattr(type(value), "_fields_", [])]
    fields = {name: getattr(value, name) for name in names if not name.startswith("_")}
    return {name: one for name, one in fields.items() if isinstance(one, int | float)} or None


def ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """The answer, or None where the driver has none."""
    try:
        return getattr(nvml, name)(*arguments)
    except nvml.NVMLError:
        return None


def beside(nvml: Any, index: int) -> dict[str, Any]:
    """NVML's own words on what the agent reads through ``nvidia-smi``: percent, MiB, watts."""
    nvml.nvmlInit()
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        rates = ask(nvml, "nvmlDeviceGetUtilizationRates", handle)
        memory = ask(nvml, "nvmlDeviceGetMemoryInfo", handle)
        power = ask(nvml, "nvmlDeviceGetPowerUsage", handle)
        running = ask(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)
        return {
            "utilisation": None if rates is None else rates.gpu,
            "memory_used": None if memory is None else memory.used / 2**20,
            "memory_total": None if memory is None else memory.total / 2**20,
            "power": None if power is None else power / 1000,
            "processes": None if running is None else len(running),
        }
    finally:
        nvml.nvmlShutdown()
