"""A converted file is read as a job file, so that every key and value that is written is one that jobs have."""

from datetime import UTC, datetime
from typing import Any

from broker.core.documents import print_document
from broker.core.job.file import parse_job
from broker.core.job.foreign import convert, format_name


def read_back(text: str, kind: str) -> tuple[dict[str, Any], str, str]:
    """What people would look for in the job (without defaults), its command, and what was not carried over."""
    assert format_name(text) == kind
    conversion = convert(text, "given.txt")
    job = parse_job(print_document(conversion.job), file="job.yaml", now=datetime(2026, 11, 29, tzinfo=UTC))
    machine = job.resources[0] if job.resources else None
    figures: dict[str, Any] = {
        "name": job.name,
        "machine": machine.machine if machine and len({one.machine for one in job.resources}) == 1 else None,
        "cpus": machine and machine.cpus,
        "memory": machine and machine.memory_gib,
        "image": machine and machine.image,
        "nodes": job.num_nodes,
        "limit": str(job.max_duration or ""),
        "tasks": job.array.count if job.array else 0,
        "parallel": job.array.parallel if job.array else 0,
        "envs": dict(job.envs),
        "secrets": tuple(job.secrets),
        "failures": job.retry.failures,
        "mounts": dict(conversion.job.get("file_mounts", {})),
        "alternatives": len(job.resources),
    }
    return figures, job.run, "\n".join(conversion.lost)
