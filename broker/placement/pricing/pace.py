"""Measured speed of machines for a job's work, used to convert ``work: 48h on A100:8``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from broker.core.errors import UnknownName
from broker.core.market.accelerators import relative_throughput
from broker.core.values.figures import hours

Machine = tuple[str, int]  # accelerator and its count per node


@dataclass(frozen=True, slots=True)
class Pace:
    """Training steps and their hours, over all attempts on one kind of machine."""

    steps: float
    hours: float

    @property
    def per_hour(self) -> float:
        return self.steps / self.hours

    def __add__(self, other: Pace) -> Pace:
        return Pace(self.steps + other.steps, self.hours + other.hours)


Paces = Mapping[Machine, Pace]


def measured_speed(paces: Paces, machine: Machine, reference: Machine) -> tuple[float, str] | None:
    """The speed of ``machine`` relative to ``reference`` and its derivation; None without usable measurements.

    Uses the measured pace of the reference. Without it, the geometric mean of the paces derived from the measured
    machines by the accelerator table; this needs two kinds of machines. Another number of measured cards scales
    proportionally.
    """
    if machine == reference:
        return None  # 1.0 by definition
    nearest = _nearest(paces, machine)
    if nearest is None:
        return None
    base = _nearest(paces, reference)
    of_reference = _from_table(paces, reference) if base is None else paces[base].per_hour / base[1] * reference[1]
    if of_reference is None:
        return None
    throughput = paces[nearest].per_hour / nearest[1] * machine[1] / of_reference
    scaling_note = "" if nearest == machine else f" with {nearest[0]}:{nearest[1]}"
    derivation = (
        f" ({machine[0]}:{machine[1]} does {throughput:.2f} × what {reference[0]}:{reference[1]} does, "
        f"measured over {hours(paces[nearest].hours)} of earlier attempts{scaling_note})"
    )
    return throughput, derivation


def _nearest(paces: Paces, machine: Machine) -> Machine | None:
    """The measured machine with the same accelerator and the nearest count."""
    candidates = [candidate for candidate in paces if candidate[0] == machine[0]]
    return min(candidates, key=lambda candidate: (abs(math.log(candidate[1] / machine[1])), candidate[1]), default=None)


def _from_table(paces: Paces, reference: Machine) -> float | None:
    """Steps per hour of the reference machine, from other machines' paces and the accelerator table."""
    estimates = []
    for (accelerator, count), pace in paces.items():
        try:
            ratio = relative_throughput(accelerator, reference[0])
        except UnknownName:
            ratio = None
        if ratio:
            estimates.append((accelerator, math.log(pace.per_hour / (ratio * count / reference[1]))))
    if len({accelerator for accelerator, _ in estimates}) < 2:
        return None
    return math.exp(sum(log for _, log in estimates) / len(estimates))
