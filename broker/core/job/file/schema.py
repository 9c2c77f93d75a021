"""The shape of a job file. `fields` defines single values, `broker.core.job.jobs` the result."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

from broker.core.job.arrays import MOST_TASKS
from broker.core.job.file.after import AfterField
from broker.core.job.file.arrays import ArrayField
from broker.core.job.file.fields import (
    AcceleratorsField,
    Command,
    Cpus,
    Deadline,
    Envs,
    FileMounts,
    Infra,
    Location,
    Memory,
    Name,
    Outputs,
    Pattern,
    Place,
    ResumeFrom,
    Secrets,
    Setup,
    Text,
    Workdir,
    WorkField,
)
from broker.core.job.file.skypilot_fields import (
    Autostop,
    DiskTierField,
    Image,
    Inputs,
    JobRecovery,
    Labels,
    NetworkTierField,
    Ports,
    SkyPilotConfig,
    TpuArguments,
)
from broker.core.job.jobs import Priority, Workload
from broker.core.job.stop_when import MetricGoal
from broker.core.market.offers import CapacityType, Interconnect
from broker.core.values.units import Amount, Count, Duration, PositiveDuration, Size

# Strict, because otherwise `true` would be 1 and "2" would be 2.
Whole: TypeAlias = Annotated[int, Strict()]
T = TypeVar("T")


def _some(items: tuple[T, ...]) -> tuple[T, ...]:
    if not items:
        raise ValueError("is an empty list; name at least one, or delete the line")
    return items


OneOrMore: TypeAlias = Annotated[tuple[T, ...], AfterValidator(_some)]
Positive: TypeAlias = Annotated[Whole, Field(ge=1, le=10**9)]


class Section(BaseModel):
    """Unknown keys are rejected; missing ones stay None, so that defaults live in `broker.core.job.jobs`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    def given(self) -> dict[str, Any]:
        """The fields that the file sets."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class MachineSection(Section):
    """One acceptable machine, or the part of it that all alternatives share."""

    accelerators: AcceleratorsField | None = None
    gpus: AcceleratorsField | None = None
    cpus: Cpus | None = None
    memory: Memory | None = None
    infra: Infra | None = None
    cloud: Place | None = None
    region: Place | None = None
    zone: Place | None = None
    instance_type: Place | None = None
    use_spot: bool | None = None
    capacity_types: OneOrMore[CapacityType] | None = None
    disk_size: Memory | None = None
    disk_tier: DiskTierField | None = None
    network_tier: NetworkTierField | None = None
    image_id: Image | None = None
    ports: Ports | None = None
    labels: Labels | None = None
    job_recovery: JobRecovery | None = None
    autostop: Autostop | None = None
    accelerator_args: TpuArguments | None = None


class Resources(MachineSection):
    """The acceptable machines."""

    any_of: OneOrMore[MachineSection] | None = None
    ordered: OneOrMore[MachineSection] | None = None


class ModelSection(Section):
    """A model to be sized. Keys without a field in `broker.core.job.jobs.Model` go into its ``extra``."""

    parameters: Count
    method: Literal["adamw", "sgd", "lora", "qlora", "inference"] | None = None
    sequence_length: Positive | None = None
    batch_size: Positive | None = None
    precision: Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4"] | None = None
    layers: Positive | None = None
    hidden_size: Positive | None = None
    heads: Positive | None = None
    kv_heads: Positive | None = None
    head_dim: Positive | None = None
    vocabulary: Positive | None = None
    activation_checkpointing: bool | None = None
    tokens: Count | None = None


class CheckpointSection(Section):
    every: PositiveDuration | None = None
    size: Size | None = None
    restart: Duration | None = None
    keep: Annotated[Whole, Field(ge=1, le=1000)] | None = None


class RetrySection(Section):
    failures: Annotated[Whole, Field(ge=0, le=1000)] | None = None
    backoff: Duration | None = None
    launches: Annotated[Whole, Field(ge=1, le=1000)] | None = None


class StopWhenSection(Section):
    metric: Annotated[Text, Field(max_length=64)] = Field(description="a figure that the tasks report with a step")
    goal: MetricGoal = Field(description="which of its values are better")
    rule: Literal["median"] | None = None
    from_step: Annotated[Whole, Field(ge=0, le=10**12)] | None = None
    min_tasks: Annotated[Whole, Field(ge=1, le=MOST_TASKS)] | None = None


class SessionSection(Section):
    idle: PositiveDuration | None = Field(None, description="it ends after this time without a sign of use; 30m")
    at_most: PositiveDuration | None = Field(
        None, description="signs that cannot be read count as use for at most so long"
    )
    jupyter: bool | None = None


class DataSection(Section):
    location: Location | None = None
    size: Size | None = None
    sensitive: bool | None = None


class ConstraintsSection(Section):
    providers: OneOrMore[Pattern] | None = None
    regions: OneOrMore[Pattern] | None = None
    capacity_types: OneOrMore[CapacityType] | None = None
    interconnect: Interconnect | None = None


class JobFile(Section):
    name: Name | None = None
    team: Name | None = None
    project: Name | None = None
    environment: Name | None = None
    workload: Workload | None = None
    resources: Resources | None = None
    model: ModelSection | None = None
    num_nodes: Annotated[Whole, Field(ge=1, le=10_000)] | None = None
    workdir: Workdir | None = None
    file_mounts: FileMounts | None = None
    outputs: Outputs | None = None
    envs: Envs | None = None
    secrets: Secrets | None = None
    setup: Setup | None = None
    run: Command = Field(
        description="the command that does the work, such as `run: python train.py`; for a machine to work on by hand"
        " there is `gpubroker dev`"
    )
    work: WorkField | None = None
    deadline: Deadline | None = None
    max_duration: PositiveDuration | None = None
    max_cost: Amount | None = None
    value_of_time: Amount | None = None
    max_unattended: PositiveDuration | None = None
    checkpoint: CheckpointSection | None = None
    retry: RetrySection | None = None
    array: ArrayField | None = None
    stop_when: StopWhenSection | None = None
    session: SessionSection | None = None
    after: AfterField | None = None
    resume_from: ResumeFrom | None = None
    data: DataSection | None = None
    constraints: ConstraintsSection | None = None
    priority: Priority | None = None
    inputs: Inputs | None = None
    config: SkyPilotConfig | None = None


SECTIONS: dict[str, type[Section]] = {
    "resources": Resources,
    "model": ModelSection,
    "checkpoint": CheckpointSection,
    "retry": RetrySection,
    "stop_when": StopWhenSection,
    "session": SessionSection,
    "data": DataSection,
    "constraints": ConstraintsSection,
}


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of job files, for completion and checks in editors. It checks less than `parse_job`:
    neither known names nor contradictions."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **JobFile.model_json_schema(),
        "title": "Job file",
    }
