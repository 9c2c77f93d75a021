"""Expected use of a job's billed time on a kind of machine. Money follows in `estimate`.

A job uses as many accelerators as it requests; the others of a larger machine are paid for and idle. Times are hours,
sizes bytes, unless the type says otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from statistics import NormalDist

from broker.core.errors import UnknownName
from broker.core.job.jobs import Job, Work
from broker.core.job.placements import Placement
from broker.core.market.accelerators import relative_throughput
from broker.core.market.offers import CapacityType
from broker.core.values.figures import hours, hours_of
from broker.placement.pricing.conditions import Conditions, Paces, measured_speed
from broker.placement.pricing.data_cost import KeepingRate, data_bytes, data_origins

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


# Below this number of expected interruptions, the cost lines call them rare hardware failures.
_RARE = 0.005
# Assumed hours of a job of unknown length on its reference machine. The job may be shorter, so the assumption is at
# most three times the mean time between interruptions: without checkpoints 3 / (e³ - 1), a sixth of the time, is then
# useful, and spot is not rejected because of an assumption.
ASSUMED_WORK = 8.0
_MAX_INTERRUPTIONS = 3.0
_LARGEST_WRITE = 0.1  # as a share of the job's own checkpoint interval, if their size is unknown


@dataclass(frozen=True, slots=True)
class Effort:
    """The work of a job, the same for every offer.

    ``remaining``: useful work left on the machine ``reference`` names (a `Work` without an accelerator: on any
    machine), None if unknown; ``work`` is the same in hours. ``resuming``: the first start loads a checkpoint.
    ``checkpoints``: whether the job declares them; ``interval``: the job's own, None for the best. ``write``: time the
    program waits per checkpoint: by its size, else assumed. ``restart``: time to load one. ``keep``: checkpoints kept
    in the store, at ``keeping`` (None: free or unknown). ``paces``: speed of earlier attempts.
    """

    nodes: int
    remaining: timedelta | None
    work: float | None
    reference: Work | None
    resuming: bool
    checkpoints: bool
    interval: float | None
    size: int | None
    write: float
    restart: float
    data_size: int
    data_origins: tuple[str, ...]
    start_up: float
    store_location: str | None
    keep: int = 1
    keeping: KeepingRate | None = None
    paces: Paces = field(default_factory=dict)

    @classmethod
    def of(cls, job: Job, conditions: Conditions, remaining: timedelta | None = None) -> Effort:
        """``remaining``: useful work left since the last verified checkpoint, on the job's reference machine; None
        for all of it. If it is less than the job's work, the job loads a checkpoint at its start."""
        plan = job.checkpoint
        declared = (plan.every, plan.size, plan.restart) != (None, None, None)
        work_left = remaining if remaining is not None else job.work.duration if job.work else None
        has_started = remaining is not None and (job.work is None or remaining < job.work.duration)
        write = hours_of(conditions.write)
        if plan.size is not None:
            write = plan.size / job.num_nodes / conditions.write_bytes_per_second / 3600  # each node writes its part
        elif plan.every is not None:
            # A job that saves often saves quickly: the assumed write time must leave time for its work.
            write = min(write, hours_of(plan.every) * _LARGEST_WRITE)
        return cls(
            nodes=job.num_nodes,
            remaining=work_left,
            work=None if work_left is None else hours_of(work_left),
            reference=job.work or _first_machine(job),
            resuming=has_started and declared,
            checkpoints=declared,
            interval=hours_of(plan.every) if plan.every else None,
            size=plan.size,
            write=write,
            restart=hours_of(plan.restart if plan.restart is not None else conditions.restart) if declared else 0.0,
            data_size=data_bytes(job),
            data_origins=data_origins(job),
            start_up=hours_of(conditions.start_up),
            store_location=conditions.store_location,
            keep=plan.keep,
            keeping=conditions.keeping,
            paces=conditions.paces,
        )

    def interval_at(self, rate: float) -> float:
        """Useful hours between checkpoints at ``rate`` interruptions per hour: the job's own interval, else the best
        one; infinite if the job makes no checkpoints."""
        if not self.checkpoints:
            return math.inf
        if self.interval is not None:
            return self.interval
        return daly_interval(self.write, 1 / rate) if rate > 0 and self.write > 0 else math.inf

    def start_on(self, capacity_type: CapacityType) -> float:
        """Hours from launch to the first useful step; zero on owned machines, which are up."""
        return 0.0 if capacity_type is CapacityType.OWNED else self.start_up

    def run(self, throughput: float, interruptions: float, interval: float, start: float) -> BilledRun:
        """The expected run at this rate of interruptions (per hour, all nodes) with a checkpoint after each
        ``interval`` of useful hours. Unknown work takes its assumed length.
        """
        work = (ASSUMED_WORK if self.work is None else self.work) / throughput
        if self.work is None and interruptions > 0:
            work = min(work, _MAX_INTERRUPTIONS / interruptions)
        # Before the first checkpoint there is none to load.
        restore = self.restart if work > interval or self.resuming else 0.0
        return expected_run(work, interruptions, interval, self.write, start + restore)


@dataclass(frozen=True, slots=True)
class Spell:
    """A part of the billed time: its purpose, its hours, and their derivation."""

    name: str
    hours: float
    how: str


@dataclass(frozen=True, slots=True, eq=False)
class RunModel:
    """The expected run of the job from launch to finish. Compared by identity.

    ``duration``: None if the work is unknown; then ``spells`` is one hour of compute.
    ``interval``: useful hours between checkpoints. ``interruptions``: per hour, for all nodes.
    """

    run: BilledRun
    spells: tuple[Spell, ...]
    duration: timedelta | None
    throughput: float
    interruptions: float
    interval: float


def run_model(effort: Effort, accelerator: str | None, count: int, interruptions: float, start: float) -> RunModel:
    """The run on ``count`` accelerators per node, with ``interruptions`` per hour for all nodes, and ``start`` hours
    from launch to the first useful step."""
    throughput, speed_note = speed(effort, accelerator, count)
    interval = effort.interval_at(interruptions)
    run = effort.run(throughput, interruptions, interval, start)
    if effort.work is None:
        duration = None
        spells: tuple[Spell, ...] = (Spell("compute", 1.0, "1 h, as the job gives no amount of work"),)
    else:
        first = start + (effort.restart if effort.resuming else 0.0)
        # The limit keeps timedelta from overflowing; an offer where the job never finishes is rejected anyway.
        duration = timedelta(hours=min(run.hours + first, 1e9))
        spells = tuple(_spells(effort, run, speed_note, first))
    return RunModel(run, spells, duration, throughput, interruptions, interval)


def _spells(effort: Effort, run: BilledRun, speed_note: str, first: float) -> list[Spell]:
    spells = [Spell("compute", run.work, f"{hours(run.work)} of work{speed_note}")]
    if run.checkpoints > 0:
        explanation = f"{hours(run.checkpoints)} of writing them, {hours(effort.write)} each"
        spells.append(Spell("checkpoints", run.checkpoints, explanation))
    if run.interruptions >= _RARE:
        expected = f"{run.interruptions:.3g} interruptions expected"
        derivation = f"{expected}, {hours(run.lost / run.interruptions)} of work done again after each"
        spells.append(Spell("lost work", run.lost, derivation))
        if run.restarts > 0:
            per_restart = hours(run.restarts / run.interruptions)
            spells.append(Spell("restarts", run.restarts, f"{expected}, {per_restart} each to start and restore"))
    elif run.lost + run.restarts > 0:
        lost = run.lost + run.restarts
        spells.append(Spell("lost work", lost, f"{hours(lost)} for hardware failures, which are rare"))
    if first > 0:
        spells.append(Spell("start-up", first, f"{hours(first)} before the first useful step"))
    return spells


def _first_machine(job: Job) -> Work | None:
    """The reference machine for unknown work: the first the job names."""
    first = next(iter(job.resources), None)
    if first is None or first.accelerator is None:
        return None
    return Work(duration=timedelta(hours=1), accelerator=first.accelerator, count=first.count)


def speed(effort: Effort, accelerator: str | None, count: int) -> tuple[float, str]:
    """Speed of ``count`` accelerators relative to the reference machine, and its derivation: measured on earlier
    attempts, else from the accelerator table.
    """
    reference = effort.reference
    if accelerator is None or reference is None or reference.accelerator is None or count == 0:
        return 1.0, ""
    machine, reference_machine = (accelerator, count), (reference.accelerator, max(reference.count, 1))
    return measured_speed(effort.paces, machine, reference_machine) or _relative(*machine, *reference_machine)


@cache
def _relative(accelerator: str, count: int, reference: str, reference_count: int) -> tuple[float, str]:
    try:
        ratio = relative_throughput(accelerator, reference)
    except UnknownName:
        ratio = None
    throughput = (1.0 if ratio is None else ratio) * count / reference_count
    reference_machine = f"{reference}:{reference_count}"
    if ratio is None:
        return (
            throughput,
            f" (how {accelerator} compares with {reference_machine} is not known: taken as equal per card)",
        )
    if throughput == 1.0:
        return throughput, ""
    return (
        throughput,
        f" ({accelerator}:{count} does {throughput:.2f} × what {reference_machine} does, by their peak speeds)",
    )


# Added to the bound: a start may take longer, and a hold is topped up a quarter of an hour before its end.
SPARE = timedelta(minutes=20)
_MANY = 200.0  # above this expectation, the number of interruptions is approximated by a normal distribution
_NEVER = 1e9  # hours


def quantile_duration(job: Job, placement: Placement, share: float) -> timedelta | None:
    """The time from launch to finish that at least ``share`` of the runs on this placement do not exceed, plus `SPARE`;
    None if the work is unknown. ``share``: over 0 and below 1. Pure."""
    if placement.duration is None:
        return None
    effort = Effort.of(job, Conditions())
    rate, start = placement.interruptions_per_hour, effort.start_on(placement.offer.capacity_type)
    interval = effort.interval_at(rate)
    work = hours_of(placement.duration) * placement.useful_fraction
    restart = start + effort.restart
    longest = restart + run_quantile(share, work, rate, interval, effort.write, restart)
    return max(timedelta(hours=min(longest, _NEVER)), placement.duration) + SPARE


def run_quantile(share: float, work: float, rate: float, interval: float, write: float, restart: float) -> float:
    """Hours that at least ``share`` of the runs do not exceed. Arguments as of `expected_run`."""
    if work <= interval:
        stretches, stretch, running = 1, work, work
    else:
        stretches, stretch = math.ceil(work / interval), interval + write
        running = work + stretches * write
    interruptions = interruption_quantile(share, stretches, rate * stretch)
    return running + interruptions * (stretch + restart)


def interruption_quantile(share: float, stretches: int, per_stretch: float) -> float:
    """The number of interruptions that at least ``share`` of the runs do not exceed. ``per_stretch``: expected
    interruptions in the time of one stretch; a stretch is done when it passes without one."""
    if per_stretch <= 0:
        return 0
    expected = stretches * math.expm1(min(per_stretch, 50.0))
    if expected > _MANY:
        deviation = math.sqrt(expected * math.exp(min(per_stretch, 50.0)))
        return math.ceil(expected + NormalDist().inv_cdf(share) * deviation)
    passes = math.exp(-per_stretch)
    chance, number = passes**stretches, 0
    total = chance
    while total < share and chance > 0:
        chance *= (number + stretches) / (number + 1) * (1 - passes)
        number += 1
        total += chance
    return number
