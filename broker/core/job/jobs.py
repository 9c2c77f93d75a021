"""Jobs: desired work, as the job file describes it, in one canonical form.

`broker.core.job.file` reads files into these and prints them back; everything else takes them as they are. Durations
are `timedelta`, sizes are bytes, memory of machines is GiB, money is USD per `Money`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import Field

from broker.core.job.arrays import ARRAY_VARIABLE, COUNT_VARIABLE, INDEX_VARIABLE, JobArray, TaskOf
from broker.core.job.fields import (
    Amount,
    Command,
    Deadline,
    Duration,
    Envs,
    Location,
    Name,
    OneOrMore,
    Outputs,
    Pattern,
    Ports,
    PositiveDuration,
    ProviderPattern,
    Setup,
    Size,
    WholeNumber,
)
from broker.core.job.snapshots import FileSnapshot, in_workdir, is_local
from broker.core.market.offers import CapacityType, Interconnect
from broker.core.records import Record
from broker.core.values.money import Money


class When(StrEnum):
    """The required state of the earlier job: succeeded, or ended."""

    SUCCEEDED = "succeeded"
    ENDED = "ended"


class Predecessor(Record):
    """A job that comes before. ``job``: its name or id in a job file, its id from the submission on.

    ``inputs``: which of its results the job finds in ``$GPUBROKER_INPUT_DIR/<folder>``: paths, or patterns of paths.
    ``folder``: the job as the file names it, set at submission. ``tasks``: of an array the numbers of its tasks, by
    the array that ran them last (a retry runs a part of them), set at submission; the results of each are in a folder
    named by its number.
    """

    job: str
    when: When = When.SUCCEEDED
    inputs: tuple[str, ...] = ()
    folder: str = ""
    tasks: dict[str, tuple[int, ...]] = Field(default_factory=dict)


class Workload(StrEnum):
    """The kind of work."""

    TRAINING = "training"
    BATCH = "batch"
    INFERENCE = "inference"
    DEVELOPMENT = "development"


class Priority(StrEnum):
    """Priority among jobs when capacity is short."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"


class DiskTier(StrEnum):
    """Speed of the machine's disk, in SkyPilot's steps."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    ULTRA = "ultra"
    BEST = "best"


class NetworkTier(StrEnum):
    """The network between machines: the default one, or the provider's fastest for them."""

    STANDARD = "standard"
    BEST = "best"


class MachineRequest(Record):
    """One acceptable machine: accelerators of one kind (none for a CPU job, or one that names an instance type), and
    minima for the rest.

    ``count``: the exact number on a rented machine; with ``at_least`` (``4+`` in the file) the minimum. ``infra``:
    restriction to ``provider[/region[/zone]]``; parts may be ``*``. ``image``: required machine or container image, in
    the form of SkyPilot's ``image_id``. ``ports``: ports or ranges to be reachable from outside. ``labels``: added to
    gpubroker's own labels of the machine.
    """

    accelerator: str | None = None
    count: int = 0
    at_least: bool = False
    cpus: float | None = None
    memory_gib: float | None = None
    instance_type: str | None = None
    infra: str | None = None
    capacity_types: tuple[CapacityType, ...] = ()
    disk_gib: float | None = None
    disk_tier: DiskTier | None = None
    network_tier: NetworkTier | None = None
    image: str | None = None
    ports: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def machine(self) -> str:
        if self.accelerator is None:
            return self.instance_type or "cpu"
        return f"{self.accelerator}:{self.count}{'+' if self.at_least else ''}"


class Work(Record):
    """The amount of work: ``duration`` of useful work on a reference machine. ``accelerator`` None: on whatever machine
    the job gets.
    """

    duration: timedelta
    accelerator: str | None = None
    count: int = 0


class CheckpointPlan(Record):
    """The job's checkpoints: interval, size in bytes, time to restart from one, number to keep."""

    every: PositiveDuration | None = None
    size: Size | None = None
    restart: Duration | None = None
    keep: WholeNumber = Field(default=3, ge=1, le=1000)


class Retry(Record):
    """How often a *failure* of the job is retried (interruptions are not failures), and after how long.

    ``launches``: failed launches in a row until the job is paused: machines that did not come up, or whose agent did
    not start. Unavailable capacity, and the first launch in a pool without a machine, do not count: they cost nothing.
    """

    failures: WholeNumber = Field(default=0, ge=0, le=1000)
    backoff: Duration = timedelta(0)
    launches: WholeNumber = Field(default=10, ge=1, le=1000)


class Data(Record):
    """The location of the job's data (``provider/region``), its size in bytes, and whether it is sensitive. ``mounts``:
    the locations of buckets and addresses under ``file_mounts``, by target."""

    location: Location | None = None
    mounts: dict[str, Location] = Field(default_factory=dict)
    size: Size | None = None
    sensitive: bool = False


class Constraints(Record):
    """The job's own restrictions; names may be shell-style patterns (``us-*``)."""

    providers: OneOrMore[ProviderPattern] = ()
    regions: OneOrMore[Pattern] = ()
    capacity_types: OneOrMore[CapacityType] = ()
    interconnect: Interconnect | None = None


class Model(Record):
    """A model to be sized instead of resources; `broker.economics` computes its needs."""

    parameters: float
    method: str = "adamw"
    sequence_length: int | None = None
    batch_size: int | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


SESSION_HOLD = timedelta(hours=1)
"""For how much of a session's time money is held in advance; more is held while it runs."""


class SessionPlan(Record):
    """The properties of a session in which people work. ``idle``: it ends after this time without a sign of use;
    ``at_most``: how long unreadable activity counts as use (None: forever); ``jupyter``: it runs
    Jupyter."""

    idle: PositiveDuration = timedelta(minutes=30)
    at_most: PositiveDuration | None = None
    jupyter: bool = False


class SecretsSeal(Record):
    """The location of the job's sealed secrets: ``pool``: a folder next to the run folders; ``id``: the seal's name in
    it."""

    pool: str
    id: str


class ResumePoint(Record):
    """A checkpoint of another job from which a job starts: the newest of ``job`` (in a job file: its name or id), or
    that of ``step``. ``checkpoint``: its id, set at submission if there is a step."""

    job: str
    step: int | None = None
    checkpoint: str | None = None

    def __str__(self) -> str:
        return self.job if self.step is None else f"{self.job}@{self.step}"


class JobFields(Record):
    """What a job and its file say in the same way. A new field stands here, with its form of `broker.core.job.fields`;
    what a file says otherwise is in `broker.core.job.file.schema`."""

    team: Name | None = None
    project: Name | None = None
    environment: Name | None = None
    workload: Workload = Workload.TRAINING
    num_nodes: WholeNumber = Field(default=1, ge=1, le=10_000)
    file_mounts: dict[str, Any] = Field(default_factory=dict)
    outputs: Outputs = ()
    envs: Envs = Field(default_factory=dict)
    setup: Setup | None = None
    run: Command = Field(
        description="the command that does the work, such as `run: python train.py`; for a machine to work on by hand"
        " there is `gpubroker dev`"
    )
    work: Work | None = None
    deadline: Deadline | None = None
    max_duration: PositiveDuration | None = None
    max_cost: Amount | None = None
    value_of_time: Amount | None = None
    max_unattended: PositiveDuration | None = None
    checkpoint: CheckpointPlan = CheckpointPlan.model_construct()
    retry: Retry = Retry.model_construct()
    session: SessionPlan | None = None
    serving_ports: Ports = ()
    array: JobArray | None = None
    after: tuple[Predecessor, ...] = ()
    resume_from: ResumePoint | None = None
    data: Data = Data.model_construct()
    constraints: Constraints = Constraints.model_construct()
    priority: Priority = Priority.NORMAL


class Job(JobFields):
    """Desired work, with exactly one of ``resources`` (acceptable machines, best first) and ``model``.

    ``deadline``: a duration from submission, or a time (UTC). ``max_duration``: machine time of all attempts; None for
    the policy's default. ``value_of_time``: USD per hour of an earlier finish, for a job without a deadline; None for
    the policy's. ``max_unattended``: rented machines stop, checkpoint first, after this time without a broker; the
    shorter of this and the policy's applies. ``envs`` values reach the command verbatim; ``secrets`` names variables
    that are read from the submitting environment and kept sealed (``seal``) until the job is closed; those in
    ``optional_secrets`` may be missing there. ``skypilot_config``: SkyPilot's settings of the task, for that engine
    only. ``snapshot``: the content of ``workdir`` and local ``file_mounts`` at submission, from which every attempt
    starts; not part of a job file. ``from_network``: it came over the network, and its command may not run on the
    machine of the broker; not part of a job file. ``outputs``: results to keep: paths and patterns relative to the
    working folder. ``session``: people work in it; it succeeds when it is idle or its time is up, and money is held
    for an hour at a time. ``serving_ports``: where inference servers of the first machine count tokens. ``after``: the
    jobs that it comes after. ``array``: many tasks; ``max_cost`` and ``deadline`` apply to all together, everything
    else to each. ``task``: one of them.
    """

    name: str
    resources: tuple[MachineRequest, ...] = ()
    ordered: bool = False
    model: Model | None = None
    workdir: str | None = None
    secrets: tuple[str, ...] = ()
    optional_secrets: tuple[str, ...] = ()
    snapshot: FileSnapshot | None = None
    from_network: bool = False
    seal: SecretsSeal | None = None
    skypilot_config: dict[str, Any] = Field(default_factory=dict)
    task: TaskOf | None = None

    def deadline_at(self, submitted_at: datetime) -> datetime | None:
        """The deadline as a time (UTC), for a job submitted then."""
        return submitted_at + self.deadline if isinstance(self.deadline, timedelta) else self.deadline

    def held_for(self, longest: timedelta) -> timedelta:
        """For how much time money is held in advance, of a job that may run as long as ``longest``."""
        return min(longest, SESSION_HOLD) if self.session is not None else longest

    def of_task(self, array: str, index: int, *, deadline: datetime | None, max_cost: Money | None) -> Job:
        """The job of one task of this array, whose id is ``array``. ``deadline``: of the array (UTC); ``max_cost``:
        the task's share of it."""
        assert self.array is not None, "only an array has tasks"
        task = TaskOf(array=array, index=index, count=self.array.size)
        start = self.array.resume_task(index)
        variables = {ARRAY_VARIABLE: array, INDEX_VARIABLE: str(index), COUNT_VARIABLE: str(task.count)}
        return self.model_copy(
            update={
                "name": f"{self.name[: 62 - len(str(index))]}-{index}",
                "envs": {**self.envs, **self.array.parameters(index), **variables},
                "array": None,
                "task": task,
                "deadline": deadline,
                "max_cost": max_cost,
                "resume_from": ResumePoint(job=start) if start else self.resume_from,
            }
        )

    @property
    def data_locations(self) -> Iterator[tuple[str, str | None]]:
        """The location of all data, None if unknown: of what the job brings or names (""), and of each mount of a
        bucket or an address, by its target."""
        mounts = [target for target, source in self.file_mounts.items() if not is_local(source)]
        if self.data.location is not None or not mounts:
            yield "", self.data.location
        yield from ((target, self.data.mounts.get(target)) for target in mounts)

    @property
    def can_use_spot(self) -> bool:
        """Whether it saves checkpoints and its file excludes no spot machine."""
        restrictions = [self.constraints.capacity_types]
        if self.resources:
            restrictions.append(
                tuple(kind for request in self.resources for kind in request.capacity_types or CapacityType)
            )
        return self.checkpoint.every is not None and all(not r or CapacityType.SPOT in r for r in restrictions)

    @property
    def needs(self) -> frozenset[str]:
        """Engine features the job needs besides running a command; engines declare theirs."""
        features = {
            "several_nodes": self.num_nodes > 1,
            "workdir": self.workdir is not None,
            "setup": self.setup is not None,
            "file_mounts": any(
                not (is_local(source) and in_workdir(target)) for target, source in self.file_mounts.items()
            ),
            "secrets": bool(self.secrets),
            "image": any(request.image for request in self.resources),
            "disk_tier": any(request.disk_tier not in (None, DiskTier.BEST) for request in self.resources),
            "network_tier": any(request.network_tier is NetworkTier.BEST for request in self.resources),
            "skypilot_config": bool(self.skypilot_config),
            "another_machine": self.from_network,
        }
        return frozenset(need for need, required in features.items() if required)
