"""The use of the machine while the job runs: processors, memory, disks and network from ``/proc``, with the
accelerators' samples. Only Linux has it; elsewhere the accelerators alone are summed up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from broker.agent.idleness import busiest

# Percent of the job's processors from which they are saturated, and processors that wait for disks from which those
# are: an accelerator without work then waits for data.
_BUSY_CPUS, _WAITING_CPUS = 90.0, 0.5
_IDLE_BELOW = 5.0  # percent
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Usage:
    """Means and peaks since the last `take`. ``root``: where ``proc`` and ``sys`` are."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._before: dict[str, float] = {}
        self._sums: dict[str, tuple[int, float, float]] = {}

    def add_sample(self, gpus: Sequence[Mapping[str, Any]]) -> None:
        """Add a sample of the accelerators (empty: there are none) and of the machine since the last sample."""
        figures = {**self._machine(), **_accelerators(gpus)}
        waiting = figures.pop("waiting_cpus", 0.0)
        if "gpu" in figures and "cpu" in figures:
            unused = 100 - figures["gpu"]
            waits_for_cpu = figures["cpu"] >= _BUSY_CPUS
            figures["gpu_waits_cpu"] = unused if waits_for_cpu else 0.0
            figures["gpu_waits_disk"] = unused if waiting >= _WAITING_CPUS and not waits_for_cpu else 0.0
        for name, value in figures.items():
            count, total, peak = self._sums.get(name, (0, 0.0, value))
            self._sums[name] = (count + 1, total + value, max(peak, value))

    def take(self) -> dict[str, dict[str, float]]:
        """The figures since the last call, by name (`broker.core.events.agent_events.ResourcesUsed`); empty with fewer
        than two samples, which say nothing."""
        sums = {name: entry for name, entry in self._sums.items() if entry[0] > 1}
        if not sums:
            return {}
        self._sums = {}
        return {
            name: {"samples": count, "mean": round(total / count, 3), "peak": round(peak, 3)}
            for name, (count, total, peak) in sums.items()
        }

    def _machine(self) -> dict[str, float]:
        try:
            counters = {"time": time.monotonic(), **dict(self._counters())}
            memory = self._memory()
        except (OSError, ValueError, IndexError, KeyError):
            return {}
        before, self._before = self._before, counters
        seconds = counters["time"] - before.get("time", counters["time"])
        figures = {"memory": memory}
        if seconds > 0:
            change = {name: value - before[name] for name, value in counters.items()}
            figures["cpu"] = min(max(100 * change["busy"] / (seconds * self._processors()), 0.0), 100.0)
            figures["waiting_cpus"] = change["waiting"] / seconds
            figures["disk_read"] = max(change["read"] / seconds / 1e6, 0.0)
            figures["network"] = max(change["received"] / seconds / 1e6, 0.0)
        return figures

    def _processors(self) -> float:
        """The number of processors that the job may use: of its control group, else of its processes."""
        quota, period = self._text("sys/fs/cgroup/cpu.max", "max 100000").split()
        return len(_own_processors()) if quota == "max" else int(quota) / int(period)

    def _counters(self) -> Iterator[tuple[str, float]]:
        """Seconds of busy processors and of those that wait for disks, bytes read from disks and received."""
        own = {f"cpu{number}" for number in _own_processors()}
        rows = [line.split() for line in self._text("proc/stat").splitlines()]
        times = [[int(cell) for cell in row[1:9]] for row in rows if row and row[0] in own]
        busy = sum(sum(cells) - cells[3] - cells[4] for cells in times) / _TICKS
        if not self._text("sys/fs/cgroup/cpu.max", "max").startswith("max"):
            busy = _fields(self._text("sys/fs/cgroup/cpu.stat"))["usage_usec"] / 1e6
        yield "busy", busy
        yield "waiting", sum(cells[4] for cells in times) / _TICKS
        yield "read", _fields(self._text("proc/vmstat"))["pgpgin"] * 1024.0
        links = (line.split(":") for line in self._text("proc/net/dev").splitlines()[2:])
        yield "received", float(sum(int(cells.split()[0]) for name, cells in links if name.strip() != "lo"))

    def _memory(self) -> float:
        """GiB in use: of the job's control group if that is limited, else of the machine."""
        if self._text("sys/fs/cgroup/memory.max", "max").strip() != "max":
            parts = _fields(self._text("sys/fs/cgroup/memory.stat"))
            return (parts["anon"] + parts["shmem"]) / 2**30
        parts = _fields(self._text("proc/meminfo").replace(":", ""))
        return (parts["MemTotal"] - parts["MemAvailable"]) / 2**20

    def _text(self, path: str, default: str | None = None) -> str:
        try:
            return (self._root / path).read_text()
        except FileNotFoundError:
            if default is None:
                raise
            return default


def _accelerators(gpus: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    figures: dict[str, float] = {}
    percent = busiest(gpus)
    if percent is not None:
        figures["gpu"] = percent
        figures["gpu_idle"] = 100.0 if percent < _IDLE_BELOW else 0.0
    memory = [float(gpu["memory_used"]) for gpu in gpus if gpu.get("memory_used") is not None]
    if memory:
        figures["gpu_memory"] = max(memory) / 1024
    power = [float(gpu["power"]) for gpu in gpus if gpu.get("power") is not None]
    if power:
        figures["power"] = sum(power)
    return figures


def _own_processors() -> set[int]:
    affinity = getattr(os, "sched_getaffinity", None)
    return set(affinity(0)) if affinity else set(range(os.cpu_count() or 1))


def _fields(text: str) -> dict[str, int]:
    """``name value`` on each line."""
    return {cells[0]: int(cells[1]) for cells in map(str.split, text.splitlines()) if len(cells) > 1}
