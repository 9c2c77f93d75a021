"""Reads workload files::

    workload: research cluster
    market:
      - {machine: "A100-80GB:8", capacity: owned, machines: 20, cost: $9.60}
      - {machine: "A100-80GB:8", provider: aws, region: us-east-1, capacity: on-demand, price: $40.97}
      - {machine: "A100-80GB:8", provider: aws, region: us-east-1, capacity: spot, price: $14.75, lost_every: 12h}
    teams:
      nlp:
        user: ann                       # default: the first member of the team in the policy files
        jobs:
          - name: sweeps
            arrivals: {per_day: 400, hours: 8-20, weekdays: true, together: 10}      # or 400
            duration: {median: 30m, p95: 8h}                                         # or 30m, or {mean: 2h}
            job: {resources: {accelerators: "A100-80GB:1"}, checkpoint: {every: 10m}, deadline: 24h}

``job`` has the keys of a job file. Instead of ``teams:``, jobs of a public trace
(`broker.whatif.traces`), one machine for each of their GPUs::

    trace: {format: philly, file: cluster_job_log, accelerator: P100, estimates: true, checkpoint: 30m}

Reads only the file of a trace, relative to the workload file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path as FilePath
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from broker.core.documents import Document, Path, read_document
from broker.core.errors import InvalidInput, Problem, UnknownName
from broker.core.job.file.reading import job_of
from broker.core.job.jobs import Job, Work
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.validation import validate
from broker.core.values.accelerators import canonical
from broker.core.values.money import Money
from broker.core.values.units import Amount, PositiveDuration, parse_duration
from broker.whatif.recorded import TraceReading, as_workload, waited_then
from broker.whatif.traces import TraceFormat, read_trace
from broker.whatif.workload import (
    ArrivalPattern,
    JobClass,
    PricePath,
    RecordedWait,
    RunLengths,
    SimulatedWorkload,
    WorkloadPool,
)
from broker.whatif.workload_fields import (
    Capacity,
    Machine,
    Positive,
    Share,
    WorkloadPart,
    class_name,
    day,
    hours_of_day,
    not_often,
    some,
)

KIND = "workload file"
# A Monday, so that working days mean the same in each run.
_START = datetime(2026, 1, 5, tzinfo=UTC)
ENGINE = "simulated"
SOURCE = "workload"


class PoolSection(WorkloadPart):
    """One pool. ``machine``: as in job files, such as A100:8. ``price``: USD per hour and machine; ``cost``: USD per
    hour of an owned or reserved one, used or not. ``machines``: their number; without it unlimited. ``varies``: spread
    of spot prices, ``reprice``: the time between two changes. ``lost_every``: mean time until a machine is
    interrupted."""

    machine: Machine = Field(description="expected a machine, such as A100:8")
    capacity: Capacity = Field(description="expected owned, reserved, on-demand or spot")
    provider: str = "own"
    region: str = "here"
    zone: str | None = None
    machines: Positive | None = None
    price: Amount | None = None
    cost: Amount | None = None
    varies: Share = 0.0
    reprice: Annotated[PositiveDuration, AfterValidator(not_often)] = timedelta(hours=6)
    lost_every: PositiveDuration | None = None

    @model_validator(mode="after")
    def _priced(self) -> PoolSection:
        held = self.capacity in (CapacityType.OWNED, CapacityType.RESERVED)
        if held and self.machines is None:
            raise ValueError(f"{self.capacity} capacity needs `machines`, the number that there are")
        if held and self.price is not None:
            raise ValueError(
                f"{self.capacity} capacity has no `price`: it is paid already; its cost per hour is `cost`"
            )
        if not held and (self.price is None or self.price.micros <= 0):
            raise ValueError("needs a `price` above $0 per hour and machine")
        if not held and self.cost is not None:
            raise ValueError("`cost` is for owned and reserved capacity; rented capacity has a `price`")
        return self

    def pool(self, at: datetime) -> WorkloadPool:
        """As a pool whose price is of ``at`` (UTC)."""
        accelerator, count = self.machine
        held = self.price is None
        offer = Offer(
            provider=self.provider,
            region=self.region,
            zone=self.zone,
            instance_type=f"{accelerator.lower()}-x{count}",
            accelerator=accelerator,
            count=count,
            capacity_type=self.capacity,
            price=Money.ZERO if self.price is None else self.price,
            as_of=at,
            source=SOURCE,
            amortised=self.cost if held else None,
            availability=Availability.AVAILABLE,
            interruption_rate=None if self.lost_every is None else timedelta(hours=1) / self.lost_every,
            slots=self.machines,
            engine=ENGINE,
            money=MoneyKind.AMORTISED if held else MoneyKind.CASH,
        )
        path = PricePath(int(self.reprice.total_seconds()), self.varies) if self.varies else None
        return WorkloadPool(offer, path)


class ArrivalSection(WorkloadPart):
    """``per_day``: jobs on an average day; ``hours``: of the day in UTC, such as 8-20; ``weekdays``: none at weekends;
    ``together``: how many arrive at once; ``profile``: weights of hours, repeated."""

    per_day: Annotated[float, Field(gt=0, le=10_000_000)] = Field(description="expected jobs per day, such as 400")
    hours: Annotated[tuple[int, int], PlainValidator(hours_of_day)] | None = None
    weekdays: bool = False
    together: Positive = 1
    profile: tuple[Annotated[float, Field(ge=0)], ...] = ()


class LengthSection(WorkloadPart):
    """The work of jobs: ``median`` and ``p95`` (log-normal), or ``mean`` (exponential)."""

    median: PositiveDuration | None = None
    p95: PositiveDuration | None = None
    mean: PositiveDuration | None = None

    @model_validator(mode="after")
    def _one_of(self) -> LengthSection:
        if (self.mean is None) == (self.median is None) or (self.p95 is not None) != (self.median is not None):
            raise ValueError("expected `median` and `p95`, or `mean` alone")
        if self.p95 is not None and self.median is not None and self.p95 < self.median:
            raise ValueError("`p95` is less than `median`")
        return self

    def lengths(self) -> RunLengths:
        if self.mean is not None:
            return RunLengths(self.mean.total_seconds(), exponential=True)
        assert self.median is not None
        assert self.p95 is not None
        return RunLengths.of(self.median, self.p95)


def _per_day(value: object) -> object:
    return {"per_day": value} if isinstance(value, int | float) and not isinstance(value, bool) else value


def _length(value: object) -> object:
    if isinstance(value, Mapping):
        return value
    time = parse_duration(value)
    return {"median": time, "p95": time}


class ClassSection(WorkloadPart):
    """One class of jobs. ``estimate``: the length that the broker knows; default: the mean; ``unknown``: none."""

    name: Annotated[str, PlainValidator(class_name)]
    arrivals: Annotated[ArrivalSection, BeforeValidator(_per_day)] = Field(description="expected jobs per day")
    duration: Annotated[LengthSection, BeforeValidator(_length)] = Field(description="expected a time, such as 2h")
    estimate: PositiveDuration | None = None
    told: bool = True
    job: dict[str, Any] = Field(description="expected keys of a job file, such as resources")


class TeamSection(WorkloadPart):
    """``user``: who submits; default: the first member of the team in the policy files."""

    user: str | None = None
    jobs: Annotated[tuple[ClassSection, ...], AfterValidator(some)]


def _accelerator(value: object) -> str:
    try:
        return canonical(str(value))
    except UnknownName as error:
        raise ValueError(str(error)) from error


class TraceSection(WorkloadPart):
    """``file``: of a trace, relative to the workload file. ``accelerator``: the accelerator that its GPUs count as.
    ``estimates``: whether the broker knows the length of jobs. ``checkpoint``: the interval of their checkpoints."""

    format: TraceFormat = Field(description="expected philly, helios or alibaba")
    file: str = Field(description="expected the file of the trace")
    accelerator: Annotated[str, PlainValidator(_accelerator)] = Field(description="expected an accelerator")
    estimates: bool = False
    checkpoint: PositiveDuration | None = None
    max_duration: PositiveDuration = timedelta(days=90)


class WorkloadFile(WorkloadPart):
    """A workload file."""

    workload: str = "workload"
    start: Annotated[datetime, PlainValidator(day)] = _START
    market: Annotated[tuple[PoolSection, ...], AfterValidator(some)]
    teams: Annotated[dict[str, TeamSection], AfterValidator(some)] | None = None
    trace: TraceSection | None = None

    @model_validator(mode="after")
    def _some_jobs(self) -> WorkloadFile:
        if (self.teams is None) == (self.trace is None):
            raise ValueError("expected `teams` with their jobs, or a `trace`")
        return self


def parse_workload(text: str | bytes, *, file: str) -> SimulatedWorkload:
    """The workload of a file. ``file`` is for messages. Raises `InvalidInput` with every mistake and its line."""
    document = read_document(text, file=file, kind=KIND)
    parsed, problems = validate(document, WorkloadFile)
    if parsed is None or problems:
        document.refuse(problems)
    if parsed.trace is not None:
        return _of_trace(parsed, parsed.trace, document)
    return SimulatedWorkload(
        name=parsed.workload,
        start=parsed.start,
        classes=tuple(_classes(parsed, document)),
        pools=tuple(_pools(parsed, document)),
    )


def _of_trace(parsed: WorkloadFile, section: TraceSection, document: Document) -> SimulatedWorkload:
    trace = read_trace(FilePath(document.file).parent / section.file, section.format)
    reading = TraceReading(section.accelerator, section.estimates, section.checkpoint, section.max_duration)
    start, classes, source, days = as_workload(trace.jobs, reading)
    skipped = ", ".join(f"{number:,} {reason}" for reason, number in trace.skipped.items())
    notes = (f"left out of the trace: {skipped}" if skipped else "", waited_then(trace.jobs))
    pools = tuple(_pools(parsed.model_copy(update={"start": start}), document))
    told = tuple(note for note in notes if note)
    recorded = tuple(RecordedWait(one.team, one.gpus, one.waited) for one in trace.jobs if one.waited is not None)
    return SimulatedWorkload(parsed.workload, start, classes, pools, source, days, told, recorded)


def _pools(parsed: WorkloadFile, document: Document) -> list[WorkloadPool]:
    pools = [section.pool(parsed.start) for section in parsed.market]
    known: dict[str, int] = {}
    for number, one in enumerate(pools):
        if (first := known.setdefault(one.offer.pool, number)) != number:
            said = f"is the same capacity as market[{first}]; give it another provider, region or zone"
            document.refuse([document.problem(("market", number), said)])
    return pools


def _classes(parsed: WorkloadFile, document: Document) -> list[JobClass]:
    found: list[JobClass] = []
    problems: list[Problem] = []
    for team, section in (parsed.teams or {}).items():
        names: set[str] = set()
        for number, one in enumerate(section.jobs):
            path: Path = ("teams", team, "jobs", number)
            if one.name in names:
                problems.append(document.problem((*path, "name"), f"{one.name!r} is another class of this team, too"))
            names.add(one.name)
            try:
                found.append(_class(team, section, one, _within(document, (*path, "job")), parsed.start))
            except InvalidInput as error:
                problems += [
                    replace(problem, key=f"{'.'.join(map(str, path))}.job.{problem.key}") for problem in error.problems
                ]
    if problems:
        document.refuse(problems)
    return found


def _class(team: str, section: TeamSection, one: ClassSection, document: Document, start: datetime) -> JobClass:
    lengths = one.duration.lengths()
    job = job_of(document, now=start)
    _check(job, document)
    job = job.model_copy(update={"name": one.name, "team": team})
    if job.work is None and one.told:
        job = job.model_copy(update={"work": work_on(job, one.estimate or timedelta(seconds=round(lengths.mean)))})
    pattern = ArrivalPattern(**{name: getattr(one.arrivals, name) for name in ArrivalSection.model_fields})
    return JobClass(one.name, team, section.user or "", job, pattern, lengths)


def work_on(job: Job, time: timedelta) -> Work:
    """That much work on the first machine of the job."""
    first = next((one for one in job.resources if one.accelerator is not None), None)
    return (
        Work(duration=time) if first is None else Work(duration=time, accelerator=first.accelerator, count=first.count)
    )


def _check(job: Job, document: Document) -> None:
    """Raises `InvalidInput` for keys of a job file that have no meaning in a simulation."""

    def stop(key: str, message: str) -> NoReturn:
        document.refuse([document.problem((key,), message, at_key=True)])

    for key in ("after", "array", "session"):
        if getattr(job, key):
            stop(key, "is not simulated; describe its tasks as a class of jobs")
    if isinstance(job.deadline, datetime):
        stop("deadline", "expected a time after submission, such as 24h")
    if job.model is not None:
        stop("model", "is not sized here; give `resources`, as `gpubroker advise size` finds them")


def _within(document: Document, at: Path) -> Document:
    """A part of the document as a job file, with its positions."""
    data: Any = document.data
    for part in at:
        data = data[part]
    length = len(at)

    def inside(found: Mapping[Path, Any]) -> dict[Path, Any]:
        return {path[length:]: value for path, value in found.items() if path[:length] == at}

    values, texts = inside(document.values), inside(document.texts)
    made = {"run": "true", **data}
    return Document(
        document.file, KIND, made, {**values, (): document.values.get(at, (1, 1))}, inside(document.keys), texts
    )
