"""The shape of a job file. `fields` defines single values, `broker.core.job.jobs` the result."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

from broker.core.job.file import fields, skypilot_fields
from broker.core.job.file.after import AfterField
from broker.core.job.file.arrays import ArrayField
from broker.core.job.jobs import Priority, Workload
from broker.core.market.offers import CapacityType, Interconnect
from broker.core.values.units import Amount, Count, Duration, PositiveDuration, Size

# Strict, because otherwise `true` would be 1 and "2" would be 2.
WholeNumber: TypeAlias = Annotated[int, Strict()]
T = TypeVar("T")


def _require_items(items: tuple[T, ...]) -> tuple[T, ...]:
    if not items:
        raise ValueError("is an empty list; name at least one, or delete the line")
    return items


OneOrMore: TypeAlias = Annotated[tuple[T, ...], AfterValidator(_require_items)]
Positive: TypeAlias = Annotated[WholeNumber, Field(ge=1, le=10**9)]


class Section(BaseModel):
    """Unknown keys are rejected; missing ones stay None, so that defaults live in `broker.core.job.jobs`."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    def given(self) -> dict[str, Any]:
        """The fields that the file sets."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}


class MachineSection(Section):
    """One acceptable machine, or the part of it that all alternatives share."""

    accelerators: fields.AcceleratorsField | None = None
    gpus: fields.AcceleratorsField | None = None
    cpus: fields.Cpus | None = None
    memory: fields.Memory | None = None
    infra: fields.Infra | None = None
    cloud: fields.Place | None = None
    region: fields.Place | None = None
    zone: fields.Place | None = None
    instance_type: fields.Place | None = None
    use_spot: bool | None = None
    capacity_types: OneOrMore[CapacityType] | None = None
    disk_size: fields.Memory | None = None
    disk_tier: skypilot_fields.DiskTierField | None = None
    network_tier: skypilot_fields.NetworkTierField | None = None
    image_id: skypilot_fields.Image | None = None
    ports: skypilot_fields.Ports | None = None
    labels: skypilot_fields.Labels | None = None
    job_recovery: skypilot_fields.JobRecovery | None = None
    autostop: skypilot_fields.Autostop | None = None
    accelerator_args: skypilot_fields.TpuArguments | None = None


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
    keep: Annotated[WholeNumber, Field(ge=1, le=1000)] | None = None


class RetrySection(Section):
    failures: Annotated[WholeNumber, Field(ge=0, le=1000)] | None = None
    backoff: Duration | None = None
    launches: Annotated[WholeNumber, Field(ge=1, le=1000)] | None = None


class SessionSection(Section):
    idle: PositiveDuration | None = Field(None, description="it ends after this time without a sign of use; 30m")
    at_most: PositiveDuration | None = Field(None, description="how long unreadable activity counts as use")
    jupyter: bool | None = None


class DataSection(Section):
    location: fields.Location | None = None
    size: Size | None = None
    sensitive: bool | None = None


class ConstraintsSection(Section):
    providers: OneOrMore[fields.Pattern] | None = None
    regions: OneOrMore[fields.Pattern] | None = None
    capacity_types: OneOrMore[CapacityType] | None = None
    interconnect: Interconnect | None = None


class JobFile(Section):
    name: fields.Name | None = None
    team: fields.Name | None = None
    project: fields.Name | None = None
    environment: fields.Name | None = None
    workload: Workload | None = None
    resources: Resources | None = None
    model: ModelSection | None = None
    num_nodes: Annotated[WholeNumber, Field(ge=1, le=10_000)] | None = None
    workdir: fields.Workdir | None = None
    file_mounts: fields.FileMounts | None = None
    outputs: fields.Outputs | None = None
    envs: fields.Envs | None = None
    secrets: fields.Secrets | None = None
    setup: fields.Setup | None = None
    run: fields.Command = Field(
        description="the command that does the work, such as `run: python train.py`; for a machine to work on by hand"
        " there is `gpubroker dev`"
    )
    work: fields.WorkField | None = None
    deadline: fields.Deadline | None = None
    max_duration: PositiveDuration | None = None
    max_cost: Amount | None = None
    value_of_time: Amount | None = None
    max_unattended: PositiveDuration | None = None
    checkpoint: CheckpointSection | None = None
    retry: RetrySection | None = None
    array: ArrayField | None = None
    session: SessionSection | None = None
    after: AfterField | None = None
    resume_from: fields.ResumeFrom | None = None
    data: DataSection | None = None
    constraints: ConstraintsSection | None = None
    priority: Priority | None = None
    inputs: skypilot_fields.Inputs | None = None
    config: skypilot_fields.SkyPilotConfig | None = None


SECTIONS: dict[str, type[Section]] = {
    "resources": Resources,
    "model": ModelSection,
    "checkpoint": CheckpointSection,
    "retry": RetrySection,
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
