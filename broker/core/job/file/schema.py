"""The shape of a job file where it differs from that of a job."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from broker.core.job.fields import Name, OneOrMore, Positive
from broker.core.job.file import fields, skypilot_fields
from broker.core.job.file.after import AfterField
from broker.core.job.file.arrays import ArrayField
from broker.core.job.jobs import JobFields
from broker.core.market.offers import CapacityType
from broker.core.values.units import Count


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


class JobFile(JobFields):
    """A job file; its keys, and those of its sections, are given if they are in ``model_fields_set``."""

    model_config = ConfigDict(extra="forbid")

    name: Name | None = None
    resources: Resources | None = None
    model: ModelSection | None = None
    workdir: fields.Workdir | None = None
    file_mounts: fields.FileMounts = Field(default_factory=dict)
    secrets: fields.Secrets = Field(default_factory=dict)
    work: fields.WorkField | None = None
    array: ArrayField | None = None
    after: AfterField = ()
    resume_from: fields.ResumeFrom | None = None
    inputs: skypilot_fields.Inputs | None = None
    config: skypilot_fields.SkyPilotConfig | None = None


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of job files, for completion and checks in editors. It checks less than `parse_job`:
    neither known names nor contradictions."""
    schema = JobFile.model_json_schema()
    for part in (schema, *schema["$defs"].values()):
        if "properties" in part:
            part["additionalProperties"] = False
        for field in part.get("properties", {}).values():
            if isinstance(field.get("default"), dict | float):  # as a job has it, not as a file says it
                del field["default"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Job file"}
