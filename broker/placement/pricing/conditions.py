"""The conditions of a plan: policy switches, installed engines, and assumptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from broker.core.errors import UnknownName
from broker.core.market.accelerators import relative_throughput
from broker.core.market.offers import Offer
from broker.core.values.figures import hours
from broker.core.values.money import Money
from broker.placement.pricing.data_cost import KeepingRate
from broker.placement.pricing.hazard import interruption_rate, time_to_return

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


@dataclass(frozen=True, slots=True)
class Conditions:
    """Everything the planner needs besides job, offers and time.

    From the active policies (`broker.core.ports.PolicyDefaults`): ``allow_reference_prices``, ``allow_stale_prices``,
    ``cpu_jobs_on_gpus``, ``capacity_order`` (capacity types by preference; unnamed ones follow), and for jobs without
    their own: ``default_max_duration`` and ``value_of_time`` (USD per hour until the finish, jobs without a deadline);
    ``unknown_disk``.

    From the installation: ``engines``: installed engines and the job needs each supports (`Job.needs`);
    ``out_of_reach``: engines whose machines cannot reach the run folders on this machine's disk; ``store_location``:
    the place of run folders and checkpoints as ``provider/region``, None if unknown or this machine's disk;
    ``keeping``: storage rate there, None likewise; ``sandbox``: accept sandbox offers that the job does not name (the
    demo's store).

    ``carbon``: kg CO2e per hour of one machine of an offer, None if unknown; used only for a policy cap or
    ``by_carbon``, which ranks by expected emissions (per useful hour if the work is unknown), then cost, unknown
    emissions last.

    ``hazard``: interruptions per hour of one machine, estimated (`broker.placement.pricing.hazard`) or from priors.
    ``away``: hours until lost capacity returns, likewise.

    ``paces``: speed of earlier attempts of this job, or of jobs with its name and team, by machine.

    Assumptions, replaced by measurements if there are any: ``start_up``: billed time from launch to the first useful
    step on rented capacity (boot, image, set-up); zero on owned machines. ``restart``: time to load a checkpoint if the
    job gives none. ``write_bytes_per_second``: checkpoint write rate of a machine while the program waits; ``write``:
    the write time if the size is unknown. Studies of spot training assume 0.02-0.5 h for start-up and restore together
    (Wu et al., "Can't Be Late", NSDI 2024).
    """

    engines: Mapping[str, frozenset[str]] = field(default_factory=dict)
    out_of_reach: frozenset[str] = frozenset()
    allow_reference_prices: bool = False
    allow_stale_prices: bool = False
    cpu_jobs_on_gpus: bool = False
    capacity_order: tuple[str, ...] = ()
    default_max_duration: timedelta = timedelta(hours=24)
    value_of_time: Money | None = None
    unknown_disk: Money | None = None
    store_location: str | None = None
    keeping: KeepingRate | None = None
    sandbox: bool = False
    carbon: Callable[[Offer], float | None] | None = None
    by_carbon: bool = False
    hazard: Callable[[Offer], float] = interruption_rate
    away: Callable[[Offer], float] = time_to_return
    paces: Paces = field(default_factory=dict)
    start_up: timedelta = timedelta(minutes=5)
    restart: timedelta = timedelta(minutes=2)
    write_bytes_per_second: float = 500e6
    write: timedelta = timedelta(seconds=30)
