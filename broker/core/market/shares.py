"""Resources of a machine that several jobs share: of the whole, of the part of one job, of the free rest. Pure.

Figures are whole numbers, so that parts and rest add up exactly to the whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True)
class MachineShare:
    """``milli_cpus``: thousandths of a CPU. ``mib``: memory in MiB. ``gpus``: how many of each accelerator, by its
    canonical name. A difference is negative if more was given than there is."""

    milli_cpus: int = 0
    mib: int = 0
    gpus: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, cpus: float, memory_gib: float, accelerator: str | None = None, count: int = 0) -> MachineShare:
        """The share with an offer's figures; fractions of a MiB and of a thousandth of a CPU are truncated."""
        gpus = ((accelerator, count),) if accelerator is not None and count else ()
        return cls(int(round(cpus * 1000, 3)), int(round(memory_gib * _MIB_PER_GIB, 3)), gpus)

    @property
    def cpus(self) -> float:
        return self.milli_cpus / 1000

    @property
    def memory_gib(self) -> float:
        return self.mib / _MIB_PER_GIB

    @property
    def gpu_count(self) -> int:
        return sum(count for _, count in self.gpus)

    def __add__(self, other: MachineShare) -> MachineShare:
        return self._add_scaled(other, 1)

    def __sub__(self, other: MachineShare) -> MachineShare:
        return self._add_scaled(other, -1)

    def __mul__(self, nodes: int) -> MachineShare:
        """The share of that many nodes."""
        return MachineShare(
            self.milli_cpus * nodes, self.mib * nodes, _normalize((name, count * nodes) for name, count in self.gpus)
        )

    def __lt__(self, other: MachineShare) -> bool:
        """Whether the other does not fit into it. Not the opposite of ``>``: one may have more CPUs and less memory."""
        return not self >= other

    def __ge__(self, other: MachineShare) -> bool:
        """Whether the other fits into it."""
        own = dict(self.gpus)
        has_room = self.milli_cpus >= other.milli_cpus and self.mib >= other.mib
        return has_room and all(own.get(name, 0) >= count for name, count in other.gpus if count > 0)

    def part_of(self, whole: MachineShare) -> Fraction:
        """The largest fraction of any resource of the whole, from 0 to 1."""
        available = dict(whole.gpus)
        pairs = [(self.milli_cpus, whole.milli_cpus), (self.mib, whole.mib)]
        pairs += [(count, available.get(name, 0)) for name, count in self.gpus]
        return min(
            max(
                (Fraction(part, whole_amount) for part, whole_amount in pairs if whole_amount > 0), default=Fraction(1)
            ),
            Fraction(1),
        )

    def at_most(self, other: MachineShare) -> MachineShare:
        """The smaller of each figure, at least zero."""
        limits = dict(other.gpus)
        gpus = tuple((name, max(min(count, limits.get(name, 0)), 0)) for name, count in self.gpus)
        return MachineShare(
            max(min(self.milli_cpus, other.milli_cpus), 0), max(min(self.mib, other.mib), 0), _normalize(gpus)
        )

    def most(self, other: MachineShare) -> MachineShare:
        """The larger of each figure."""
        own, other_gpus = dict(self.gpus), dict(other.gpus)
        gpus = tuple((name, max(own.get(name, 0), other_gpus.get(name, 0))) for name in own | other_gpus)
        return MachineShare(max(self.milli_cpus, other.milli_cpus), max(self.mib, other.mib), _normalize(gpus))

    def _add_scaled(self, other: MachineShare, sign: int) -> MachineShare:
        gpus = self.gpus
        if other.gpus:
            own, other_gpus = dict(gpus), dict(other.gpus)
            gpus = _normalize((name, own.get(name, 0) + sign * other_gpus.get(name, 0)) for name in own | other_gpus)
        return MachineShare(self.milli_cpus + sign * other.milli_cpus, self.mib + sign * other.mib, gpus)

    def __str__(self) -> str:
        """``2 CPUs, 3.5 GiB, 1 × H100``."""
        cpus = "1 CPU" if self.milli_cpus == 1000 else f"{self.cpus:g} CPUs"
        return ", ".join([cpus, f"{self.memory_gib:.3g} GiB", *(f"{count} × {name}" for name, count in self.gpus)])


def total(shares: Iterable[MachineShare]) -> MachineShare:
    combined = MachineShare()
    for share in shares:
        combined += share
    return combined


def _normalize(gpus: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, count) for name, count in gpus if count))
