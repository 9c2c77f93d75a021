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

``job`` has the keys of a job file. Instead of ``teams:``, jobs of a public trace (`tests.lab.simulation.job_traces`),
one machine for each of their GPUs; its file is relative to the workload file::

    trace: {format: philly, file: cluster_job_log, accelerator: P100, estimates: true, checkpoint: 30m}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from broker.core.documents import Document, print_document, read_document
from broker.core.errors import InvalidInput, UnknownName
from broker.core.job.file import parse_job
from broker.core.job.jobs import Job, Work
from broker.core.market.accelerators import canonical
from broker.core.market.offers import Availability, CapacityType, MoneyKind, Offer
from broker.core.validation import validate
from broker.core.values.money import Money
from broker.core.values.units import Amount, PositiveDuration, parse_duration, split_machine
from tests.lab.simulation.job_traces import TraceFormat, TraceReading, as_workload, read_trace, waits_in_words
from tests.lab.simulation.workload import (
    ENGINE,
    ArrivalPattern,
    JobClass,
    PricePath,
    RecordedWait,
    RunLengths,
    SimulatedWorkload,
    WorkloadPool,
)

_START = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday, so that working days mean the same in each run
_LEAST_REPRICE = timedelta(minutes=5)  # each price change is stored, and all decisions are made again


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _accelerator(value: str) -> str:
    try:
        return canonical(value)
    except UnknownName as error:
        raise ValueError(str(error)) from error


def _machine(value: object) -> tuple[str, int]:
    name, count = split_machine(value)
    return _accelerator(name), count


def _hours(value: object) -> tuple[int, int]:
    first, _, after = str(value).partition("-")
    hours = (int(first), int(after)) if first.strip().isdecimal() and after.strip().isdecimal() else (0, 0)
    if hours[0] == hours[1] or max(hours) > 24:
        raise ValueError(f"expected hours of the day in UTC, such as 8-20; got {value!r}")
    return hours[0] % 24, hours[1]


def _not_often(value: timedelta) -> timedelta:
    if value < _LEAST_REPRICE:
        raise ValueError(f"expected 5m or more; got {value.total_seconds():g}s")
    return value


def _utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Positive = Annotated[int, Field(ge=1, le=10_000_000)]
Accelerator = Annotated[str, AfterValidator(_accelerator)]
Share = Annotated[float, BeforeValidator(lambda value: float(str(value).removesuffix("%")) / 100), Field(ge=0, le=1)]


class PoolSection(_Section):
    """One pool. ``machine``: as in job files, such as A100:8. ``price``: USD per hour and machine; ``cost``: USD per
    hour of use of an owned or reserved one. ``machines``: their number; without it unlimited. ``varies``: spread
    of spot prices, ``reprice``: the time between two changes. ``lost_every``: mean time until a machine is
    interrupted."""

    machine: Annotated[tuple[str, int], BeforeValidator(_machine)]
    capacity: CapacityType
    provider: str = "own"
    region: str = "here"
    zone: str | None = None
    machines: Positive | None = None
    price: Amount | None = None
    cost: Amount | None = None
    varies: Share = 0.0
    reprice: Annotated[PositiveDuration, AfterValidator(_not_often)] = timedelta(hours=6)
    lost_every: PositiveDuration | None = None

    @model_validator(mode="after")
    def _priced(self) -> PoolSection:
        held = self.capacity in (CapacityType.OWNED, CapacityType.RESERVED)
        if held and (self.machines is None or self.price is not None):
            raise ValueError(
                f"{self.capacity} capacity needs `machines`, and has a `cost` per hour instead of a `price`"
            )
        if not held and (self.price is None or self.price.micros <= 0 or self.cost is not None):
            raise ValueError("rented capacity needs a `price` above $0 per hour and machine, and has no `cost`")
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
            price=self.price or self.cost or Money.ZERO,
            as_of=at,
            source="workload",
            availability=Availability.AVAILABLE,
            interruption_rate=None if self.lost_every is None else timedelta(hours=1) / self.lost_every,
            slots=self.machines,
            engine=ENGINE,
            money=MoneyKind.AMORTISED if held else MoneyKind.CASH,
        )
        path = PricePath(int(self.reprice.total_seconds()), self.varies) if self.varies else None
        return WorkloadPool(offer, path)


class ArrivalSection(_Section):
    """The fields of `ArrivalPattern`; a number alone is ``per_day``."""

    per_day: Annotated[float, Field(gt=0, le=10_000_000)]
    hours: Annotated[tuple[int, int], BeforeValidator(_hours)] | None = None
    weekdays: bool = False
    together: Positive = 1
    profile: tuple[Annotated[float, Field(ge=0)], ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        return {"per_day": value} if isinstance(value, int | float) else value


class LengthSection(_Section):
    """The work of jobs: ``median`` and ``p95`` (log-normal), or ``mean`` (exponential); a time alone is all of them."""

    median: PositiveDuration | None = None
    p95: PositiveDuration | None = None
    mean: PositiveDuration | None = None

    @model_validator(mode="before")
    @classmethod
    def _time(cls, value: object) -> object:
        if isinstance(value, Mapping):
            return value
        time = parse_duration(value)
        return {"median": time, "p95": time}

    @model_validator(mode="after")
    def _one_of(self) -> LengthSection:
        if (self.mean is None) == (self.median is None) or (self.p95 is not None) != (self.median is not None):
            raise ValueError("expected `median` and `p95`, or `mean` alone")
        if self.p95 is not None and self.median is not None and self.p95 < self.median:
            raise ValueError("`p95` is less than `median`")
        return self

    def lengths(self) -> RunLengths:
        if self.median is None or self.p95 is None:
            return RunLengths((self.mean or timedelta()).total_seconds(), exponential=True)
        return RunLengths.of(self.median, self.p95)


class ClassSection(_Section):
    """One class of jobs. ``estimate``: the length that the broker knows; default: the mean; ``told`` false: none."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,40}$")]
    arrivals: ArrivalSection
    duration: LengthSection
    estimate: PositiveDuration | None = None
    told: bool = True
    job: dict[str, Any]


class TeamSection(_Section):
    """``user``: who submits; default: the first member of the team in the policy files."""

    user: str | None = None
    jobs: Annotated[tuple[ClassSection, ...], Field(min_length=1)]


class TraceSection(_Section):
    """``accelerator``: what its GPUs count as. ``estimates``: whether the broker knows the length of jobs.
    ``checkpoint``: the interval of their checkpoints."""

    format: TraceFormat
    file: str
    accelerator: Accelerator
    estimates: bool = False
    checkpoint: PositiveDuration | None = None
    max_duration: PositiveDuration = timedelta(days=90)


class WorkloadFile(_Section):
    workload: str = "workload"
    start: Annotated[datetime, AfterValidator(_utc)] = _START
    market: Annotated[tuple[PoolSection, ...], Field(min_length=1)]
    teams: Annotated[dict[str, TeamSection], Field(min_length=1)] | None = None
    trace: TraceSection | None = None

    @model_validator(mode="after")
    def _some_jobs(self) -> WorkloadFile:
        if (self.teams is None) == (self.trace is None):
            raise ValueError("expected `teams` with their jobs, or a `trace`")
        return self


def read_workload(path: Path) -> SimulatedWorkload:
    """The workload of a file. Raises `InvalidInput` with every mistake and its line."""
    try:
        return parse_workload(path.read_bytes(), file=str(path))
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path)) from error


def parse_workload(text: str | bytes, *, file: str) -> SimulatedWorkload:
    document = read_document(text, file=file, kind="workload file")
    parsed, problems = validate(document, WorkloadFile)
    if parsed is None or problems:
        document.refuse(problems)
    if parsed.trace is not None:
        return _of_trace(parsed, parsed.trace, document)
    classes = tuple(_classes(parsed, document))
    return SimulatedWorkload(parsed.workload, parsed.start, classes, _pools(parsed, parsed.start, document))


def _of_trace(parsed: WorkloadFile, section: TraceSection, document: Document) -> SimulatedWorkload:
    trace = read_trace(Path(document.file).parent / section.file, section.format)
    reading = TraceReading(section.accelerator, section.estimates, section.checkpoint, section.max_duration)
    start, classes, source, days = as_workload(trace.jobs, reading)
    recorded = tuple(RecordedWait(job.team, job.gpus, job.waited) for job in trace.jobs if job.waited is not None)
    skipped = ", ".join(f"{number:,} {reason}" for reason, number in trace.skipped.items())
    notes = (f"left out of the trace: {skipped}" if skipped else "", waits_in_words([job.waited for job in recorded]))
    pools = _pools(parsed, start, document)
    return SimulatedWorkload(
        parsed.workload, start, classes, pools, source, days, tuple(note for note in notes if note), recorded
    )


def _pools(parsed: WorkloadFile, start: datetime, document: Document) -> tuple[WorkloadPool, ...]:
    pools = tuple(section.pool(start) for section in parsed.market)
    names = [pool.offer.pool for pool in pools]
    for number, name in enumerate(names):
        if (first := names.index(name)) != number:
            same = f"is the same capacity as market[{first}]; give it another provider, region or zone"
            document.refuse([document.problem(("market", number), same)])
    return pools


def _classes(parsed: WorkloadFile, document: Document) -> Iterator[JobClass]:
    for team, section in (parsed.teams or {}).items():
        names = [job.name for job in section.jobs]
        for number, job in enumerate(section.jobs):
            if names.index(job.name) != number:
                path = ("teams", team, "jobs", number, "name")
                document.refuse([document.problem(path, f"{job.name!r} is another class of this team, too")])
            place = f"{document.file}: teams.{team}.jobs.{number}.job"
            yield _class(team, section.user or "", job, place, parsed.start)


def _class(team: str, user: str, section: ClassSection, place: str, start: datetime) -> JobClass:
    lengths = section.duration.lengths()
    job = parse_job(print_document({"run": "true", **section.job}), file=place, now=start)
    if job.after or job.array or job.session or job.model or isinstance(job.deadline, datetime):
        said = "`after`, `array`, `session`, `model` and a deadline at a point in time are not simulated"
        raise InvalidInput(said, where=place)
    job = job.model_copy(update={"name": section.name, "team": team})
    if job.work is None and section.told:
        work = _work_on(job, section.estimate or timedelta(seconds=round(lengths.mean)))
        job = job.model_copy(update={"work": work})
    pattern = ArrivalPattern(**{name: getattr(section.arrivals, name) for name in ArrivalSection.model_fields})
    return JobClass(section.name, team, user, job, pattern, lengths)


def _work_on(job: Job, time: timedelta) -> Work:
    """That much work on the first machine of the job."""
    first = next((machine for machine in job.resources if machine.accelerator is not None), None)
    if first is None:
        return Work(duration=time)
    return Work(duration=time, accelerator=first.accelerator, count=first.count)
