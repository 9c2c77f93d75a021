"""Jobs of public cluster traces, with their team, GPUs, submission, run time and recorded wait, as a workload.

Formats: ``philly``: ``cluster_job_log`` of https://github.com/msr-fiddle/philly-traces (Microsoft, ATC '19);
``helios``: ``cluster_log.csv`` of https://github.com/S-Lab-System-Group/HeliosData (SenseTime, SC '21); ``alibaba``:
``openb_pod_list_*.csv`` of https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2023.

Jobs without GPUs, and those that never ran, are left out and counted. Times without a zone count as UTC. Pods of
Alibaba that have a part of a GPU count as one GPU.
"""

import csv
import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from broker.core.errors import InvalidInput
from broker.core.job.jobs import CheckpointPlan, Job, MachineRequest, Work
from tests.lab.simulation.figures import WaitFigures
from tests.lab.simulation.workload import DAY, JobClass, Submission, WorkloadSize

_APART = 1800  # seconds: jobs that are repeated for a larger demand arrive within this time of the recorded one


class TraceFormat(StrEnum):
    PHILLY = "philly"
    HELIOS = "helios"
    ALIBABA = "alibaba"


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job. ``submitted``: seconds since 1970 (or since the start of the trace, where it has no dates); ``seconds``:
    its run time; ``waited``: the recorded time until its start; None if unknown."""

    team: str
    gpus: int
    submitted: int
    seconds: int
    waited: int | None


@dataclass(frozen=True, slots=True)
class JobTrace:
    """The jobs by submission. ``skipped``: the number left out, by reason."""

    jobs: tuple[TraceJob, ...]
    skipped: Mapping[str, int]


class _Skipped(Exception):
    """A row that does not count as a job. Its text is the reason."""


def read_trace(path: Path, form: TraceFormat) -> JobTrace:
    """The jobs of a trace. Raises `InvalidInput` with the place of what is not of that format, and for a file without
    a job."""
    read = {TraceFormat.PHILLY: _philly, TraceFormat.HELIOS: _helios, TraceFormat.ALIBABA: _alibaba}[form]
    jobs: list[TraceJob] = []
    skipped: Counter[str] = Counter()
    try:
        for number, row in enumerate(_rows(path, form), start=1):
            try:
                jobs.append(read(row))
            except _Skipped as reason:
                skipped[str(reason)] += 1
            except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
                raise InvalidInput(f"is not a job of a {form} trace: {error}", where=f"{path}, job {number}") from error
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise InvalidInput(f"is not a {form} trace: {error}", where=str(path)) from error
    if not jobs:
        why = ", ".join(f"{number:,} {reason}" for reason, number in skipped.items()) or "it is empty"
        raise InvalidInput(f"has no job with GPUs that ran: {why}", where=str(path))
    return JobTrace(tuple(sorted(jobs, key=lambda job: job.submitted)), dict(skipped))


def _rows(path: Path, form: TraceFormat) -> Iterator[Any]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from json.load(file) if form is TraceFormat.PHILLY else csv.DictReader(file)


def _philly(row: Any) -> TraceJob:
    attempts = row["attempts"]
    if not attempts:
        raise _Skipped("never started")
    spans = [(attempt["start_time"], attempt["end_time"]) for attempt in attempts]
    started = [(_seconds(start), end) for start, end in spans if start not in (None, "None", "")]
    ran = sum(max(_seconds(end) - start, 0) for start, end in started if end not in (None, "None", ""))
    if not ran:
        raise _Skipped("without a recorded run")
    gpus = max(sum(len(machine["gpus"]) for machine in attempt["detail"]) for attempt in attempts)
    submitted, first = _seconds(row["submitted_time"]), min(start for start, _ in started)
    return _job(str(row["vc"]), gpus, submitted, ran, first - submitted)


def _helios(row: Mapping[str, str]) -> TraceJob:
    gpus, ran, waited = int(row["gpu_num"]), int(float(row["duration"])), int(float(row["queue"]))
    return _job(row["vc"].strip(), gpus, _seconds(row["submit_time"]), ran, waited)


def _alibaba(row: Mapping[str, str]) -> TraceJob:
    gpus = int(row["num_gpu"])
    if gpus and not row["scheduled_time"]:
        raise _Skipped("never started")
    submitted, started = int(float(row["creation_time"])), int(float(row["scheduled_time"] or 0))
    ran = int(float(row["deletion_time"])) - started
    return _job(row["qos"].strip() or "none", gpus, submitted, ran, started - submitted)


def _job(team: str, gpus: int, submitted: int, ran: int, waited: int) -> TraceJob:
    if not gpus:
        raise _Skipped("without GPUs")
    if ran <= 0:
        raise _Skipped("without a recorded run")
    if not 0 < gpus <= 100_000:
        raise ValueError(f"{gpus} GPUs; expected 1 to 100,000")
    return TraceJob(team, gpus, submitted, ran, max(waited, 0))


def _seconds(text: str) -> int:
    at = datetime.fromisoformat(text)
    return math.floor((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())


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
        chance = random.Random(f"{size.seed}/demand")
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


def waits_in_words(waits: Sequence[int]) -> str:
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
