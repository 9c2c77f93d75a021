"""Prints jobs as job files."""

from datetime import UTC, datetime, timedelta
from typing import Any

from broker.core.documents import print_document
from broker.core.job.arrays import JobArray
from broker.core.job.file.after import print_after
from broker.core.job.file.arrays import print_array
from broker.core.job.file.machines import print_resources
from broker.core.job.jobs import Job, JobFields, ResumePoint, Work
from broker.core.records import Record
from broker.core.values.money import Money
from broker.core.values.units import print_count, print_duration, print_money, print_size

_SIZES = frozenset({"size"})
_COUNTS = frozenset({"parameters", "tokens"})


_FIRST = ("name", "team", "project", "environment", "workload", "resources", "model", "num_nodes", "workdir")


def print_job(job: Job) -> str:
    """A job file (YAML) that `parse_job` reads back as the same job while its deadline is in the future.

    Only what differs from the defaults is written. Holds no secrets: a job knows only their names.
    """
    sections = _fields(job)
    resources = None if job.model else print_resources(job.resources, job.ordered)
    sections |= {"resources": resources} if resources else {}
    sections |= {"config": job.skypilot_config} if job.skypilot_config else {}
    if job.optional_secrets:
        sections["secrets"] = {name: "" if name in job.optional_secrets else None for name in job.secrets}
    order = (*_FIRST, *JobFields.model_fields, *sections)
    return print_document({key: sections[key] for key in order if key in sections})


def _fields(part: Record) -> dict[str, Any]:
    """The fields of a part that differ from their defaults, as the file writes them."""
    fields: dict[str, Any] = {}
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if name in ("resources", "ordered") or value == field.get_default(call_default_factory=True):
            continue
        if name == "extra":
            fields |= {key: _print_value(key, item) for key, item in value.items()}
        else:
            fields[name] = _print_value(name, value)
    return fields


def _print_value(name: str, value: Any) -> Any:
    if name == "after":
        return print_after(value)
    match value:
        case Work():
            return _work(value)
        case ResumePoint():
            return str(value)
        case JobArray():
            return print_array(value)
        case Record():
            return _fields(value)
        case timedelta():
            return print_duration(value)
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case Money():
            return print_money(value)
        case tuple():
            return [str(item) for item in value]
        case str():
            return str(value)
    if name in _SIZES:
        return print_size(value)
    return print_count(value) if name in _COUNTS else value


def _work(work: Work) -> str:
    on = f" on {work.accelerator}:{work.count}" if work.accelerator else ""
    return f"{print_duration(work.duration)}{on}"
