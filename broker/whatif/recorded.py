"""Recorded jobs as a workload: classes by team, GPUs and rounded length, so that one decision serves many."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from broker.core.job.jobs import CheckpointPlan, Job, MachineRequest, Work
from broker.whatif.figures import WaitFigures
from broker.whatif.traces import TraceJob
from broker.whatif.workload import DAY, JobClass, Submission, WorkloadSize

_APART = 1800  # seconds: jobs that are repeated for a larger demand arrive within this time of the recorded one


@dataclass(frozen=True, slots=True)
class TraceReading:
    """How recorded jobs become jobs of the broker. A job of n GPUs is n machines of ``accelerator`` with one GPU each,
    all at once. ``told``: whether the broker knows their length, rounded up to a power of two minutes; ``checkpoint``:
    the interval of their checkpoints; None: none; ``longest``: their `max_duration`."""

    accelerator: str
    told: bool = False
    checkpoint: timedelta | None = None
    longest: timedelta = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class RecordedJobs:
    """Recorded jobs (second, class, seconds of work) in the order of arrival, by team so that their demand can be
    changed."""

    jobs: tuple[Submission, ...]
    classes: tuple[JobClass, ...]

    def count(self, size: WorkloadSize) -> int:
        return sum(1 for _ in self.submissions(size))

    def submissions(self, size: WorkloadSize) -> Iterator[Submission]:
        """Each job repeated by its team's factor of demand; the fraction of the factor is drawn by chance."""
        within = [one for one in self.jobs if one[0] < size.days * DAY]
        factors = [size.factor(one.team) for one in self.classes]
        whole = sum(factors[place] for _, place, _ in within)
        scale = 1.0 if size.jobs is None or not whole else size.jobs / whole
        if scale == 1.0 and all(factor == 1.0 for factor in factors):
            yield from within
            return
        chance = random.Random(f"{size.seed}/demand")  # noqa: S311  # seeded, no secret
        made: list[Submission] = []
        for at, place, work in within:
            times = factors[place] * scale
            number = math.floor(times) + (chance.random() < times % 1)
            made += [(at, place, work)] * min(number, 1)
            made += [(max(at + chance.randrange(-_APART, _APART), 0), place, work) for _ in range(max(number - 1, 0))]
        yield from sorted(made)


def as_workload(
    jobs: Sequence[TraceJob], reading: TraceReading
) -> tuple[datetime, tuple[JobClass, ...], RecordedJobs, int]:
    """The start of the day of the first job (UTC), the classes, the jobs, and the number of days in which they came.
    ``jobs``: by submission, at least one."""
    start = jobs[0].submitted // DAY * DAY
    places: dict[tuple[str, int, int], int] = {}
    classes: list[JobClass] = []
    found: list[Submission] = []
    for job in jobs:
        rounded = _rounded(job.seconds) if reading.told else 0
        key = job.team, job.gpus, rounded
        if key not in places:
            places[key] = len(classes)
            classes.append(_class(job.team, job.gpus, rounded, reading))
        found.append((job.submitted - start, places[key], job.seconds))
    days = found[-1][0] // DAY + 1
    made = tuple(classes)
    return datetime.fromtimestamp(start, UTC), made, RecordedJobs(tuple(found), made), days


def waited_then(jobs: Sequence[TraceJob]) -> str:
    """The waiting that the trace recorded, in a sentence; empty if it has none."""
    return told_waits([job.waited for job in jobs if job.waited is not None])


def told_waits(waits: Sequence[int]) -> str:
    """Recorded waits (seconds) in a sentence; empty for none."""
    if not waits:
        return ""
    told = WaitFigures.of(waits)
    return (
        f"waiting as recorded: mean {timedelta(seconds=round(told.mean))}, median {timedelta(seconds=told.p50)}, "
        f"95th percentile {timedelta(seconds=told.p95)}, of {len(waits):,} jobs"
    )


def _rounded(seconds: int) -> int:
    return 60 << max(math.ceil(math.log2(seconds / 60)), 0)


def _class(team: str, gpus: int, rounded: int, reading: TraceReading) -> JobClass:
    name = f"{gpus}-gpus" + (f"-{rounded // 60}m" if rounded else "")
    one = MachineRequest(accelerator=reading.accelerator, count=1)
    work = Work(duration=timedelta(seconds=rounded), accelerator=reading.accelerator, count=1) if rounded else None
    job = Job(
        name=name,
        run="true",
        team=team,
        resources=(one,),
        num_nodes=gpus,
        work=work,
        max_duration=reading.longest,
        checkpoint=CheckpointPlan(every=reading.checkpoint) if reading.checkpoint else CheckpointPlan(),
    )
    return JobClass(name, team, "", job)
