"""Checkpoint intervals: the best one, the waste of others, and the expected run between interruptions.

All times in hours. ``write`` (δ): time the program waits per checkpoint; ``between`` (M): mean time between
interruptions; ``interval`` (τ): useful work between checkpoints.
"""

import math
from dataclasses import dataclass

# The largest exponent of e^(rate·stretch): e^50 hours means never, and a larger one overflows the float.
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


@dataclass(frozen=True, slots=True)
class BilledRun:
    """Expected billed hours of a run without its first start.

    ``work``: useful. ``checkpoints``: writing checkpoints. ``lost``: repeated work. ``restarts``: starting again.
    ``interruptions``: their expected number.
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


def expected_run(work: float, rate: float, interval: float, write: float, restart: float) -> BilledRun:
    """The expected run of ``work`` hours of useful work with ``rate`` interruptions per hour.

    Interruptions are a Poisson process. A stretch of s hours without a checkpoint starts over at each interruption, so
    it takes (e^(rate·s) - 1)/rate hours of running and e^(rate·s) - 1 interruptions (Daly 2006, assuming no
    interruptions during restarts). Checkpoints make stretches of ``interval + write``; without them
    (``interval`` infinite) the whole job is one stretch. To first order in ``rate`` this is δ/τ + τ/2M + restart/M.
    """
    if work <= interval:
        stretches, stretch, checkpoints = 1.0, work, 0.0
    else:
        stretches = work / interval
        stretch, checkpoints = interval + write, stretches * write
    if rate < 1e-300:  # below that, a float has too few digits left for the quotient of two products
        return BilledRun(work, checkpoints, 0.0, 0.0, 0.0)
    interruptions = stretches * math.expm1(min(rate * stretch, _LONGEST))
    lost = max(interruptions / rate - work - checkpoints, 0.0)
    return BilledRun(work, checkpoints, lost, interruptions * restart, interruptions)
