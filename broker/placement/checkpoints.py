"""Checkpoint intervals: what is best, what another one wastes, and how a run goes between interruptions.

All times in hours. ``write`` (δ) is how long the program waits while a checkpoint is written, ``between`` (M) the mean
time between interruptions, ``interval`` (τ) the useful work from one checkpoint to the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# An interval that wastes this much more of the time than the best one is worth a warning.
WORTH_A_WARNING = 0.05
# e^50 hours are older than the universe; beyond that only the float would suffer.
_LONGEST = 50.0


def young_interval(write: float, between: float) -> float:
    """√(2δM), in hours (Young 1974). Good while M is much longer than δ."""
    return math.sqrt(2 * write * between)


def daly_interval(write: float, between: float) -> float:
    """Daly's better estimate, in hours (Daly 2006, eq. 37); M itself where δ ≥ 2M."""
    if math.isinf(between):
        return math.inf
    if write >= 2 * between:
        return between
    ratio = write / (2 * between)
    return young_interval(write, between) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - write


def expected_waste(interval: float, write: float, between: float, restart: float) -> float:
    """The part of the time that brings no progress, to first order: δ/τ + τ/2M + restart/M. May exceed 1, which means
    that there is hardly any progress."""
    return write / interval + interval / (2 * between) + restart / between


@dataclass(frozen=True, slots=True)
class Advice:
    """The best interval against the job's own (hours), and what each wastes (part of the time)."""

    best: float
    best_waste: float
    own: float | None
    own_waste: float | None

    @property
    def warns(self) -> bool:
        """The job's own interval wastes noticeably more than need be."""
        return self.own_waste is not None and self.own_waste - self.best_waste > WORTH_A_WARNING


def advise(own: float | None, write: float, between: float, restart: float) -> Advice:
    """How often to write a checkpoint. ``between`` finite, ``write`` > 0, ``own`` > 0 or None."""
    best = daly_interval(write, between)
    return Advice(
        best=best,
        best_waste=expected_waste(best, write, between, restart),
        own=own,
        own_waste=None if own is None else expected_waste(own, write, between, restart),
    )


@dataclass(frozen=True, slots=True)
class Run:
    """How the billed hours of a run are expected to be spent, apart from its first start.

    ``work``: useful. ``checkpoints``: waiting for checkpoints to be written. ``lost``: work done again after an
    interruption. ``restarts``: getting going again after one. ``interruptions``: their expected number.
    """

    work: float
    checkpoints: float
    lost: float
    restarts: float
    interruptions: float

    @property
    def hours(self) -> float:
        return self.work + self.checkpoints + self.lost + self.restarts

    @property
    def useful_fraction(self) -> float:
        """η: the part of the billed time that becomes progress."""
        return self.work / self.hours if self.hours > 0 else 1.0


def expected_run(work: float, rate: float, interval: float, write: float, restart: float) -> Run:
    """The expected course of ``work`` hours of useful work with ``rate`` interruptions per hour.

    Interruptions are a Poisson process. A stretch of s hours that must be done in one piece is begun anew at each
    interruption, so it takes (e^(rate·s) - 1)/rate hours of running and e^(rate·s) - 1 interruptions (Daly 2006, with
    restarts taken as free of interruptions). Checkpoints make stretches of ``interval + write``; without them
    (``interval`` infinite) the whole job is one stretch. To first order in ``rate`` this is δ/τ + τ/2M + restart/M.
    """
    if work <= interval:
        stretches, stretch, checkpoints = 1.0, work, 0.0
    else:
        stretches = work / interval
        stretch, checkpoints = interval + write, stretches * write
    if rate <= 0:
        return Run(work, checkpoints, 0.0, 0.0, 0.0)
    interruptions = stretches * math.expm1(min(rate * stretch, _LONGEST))
    lost = max(interruptions / rate - work - checkpoints, 0.0)
    return Run(work, checkpoints, lost, interruptions * restart, interruptions)
