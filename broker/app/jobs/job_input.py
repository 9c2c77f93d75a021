"""A job as its submitter gives it: a job file, or a command with options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from broker.app.jobs.snapshots import resolved
from broker.core.documents import MAX_BYTES, print_document
from broker.core.errors import InvalidInput, closest
from broker.core.job.file import parse_job, parse_jobs
from broker.core.job.file.reading import JobOverrides
from broker.core.job.jobs import Job


def read_job(path: Path, now: datetime, overrides: JobOverrides | None = None) -> Job:
    """The job in a file, with ``overrides`` applied. ``now`` (UTC): the time that relative dates count from. Raises
    `InvalidInput` with every finding, also for a file that cannot be read."""
    text = _text(path)
    job = parse_job(text, file=str(path), now=now, overrides=overrides or JobOverrides())
    return resolved(job, path.parent, str(path))


def read_jobs(path: Path, now: datetime, overrides: JobOverrides | None = None) -> list[Job]:
    """The jobs in a file of one or several documents, in their order; as `read_job` otherwise."""
    jobs = parse_jobs(_text(path), file=str(path), now=now, overrides=overrides)
    return [resolved(job, path.parent, str(path)) for job in jobs]


def _text(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)  # one byte more than allowed shows that the file is too large
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path), hint=_similar(path)) from error


def _similar(path: Path) -> str:
    """A hint that names a job file of that folder with a similar name; empty if there is none."""
    try:
        names = [one.name for one in path.parent.iterdir() if one.suffix in (".yaml", ".yml")]
    except OSError:
        return f"there is no folder {path.parent}" if not path.parent.exists() else ""
    meant = closest(path.name, names)
    return f"did you mean {path.with_name(meant)}?" if meant and meant != path.name else ""


def job_of_command(command: Sequence[str], folder: Path, now: datetime, overrides: JobOverrides) -> Job:
    """A job that runs ``command`` in ``folder``. A single word is a shell command line; several words are passed on
    as they are. Raises `InvalidInput`."""
    run = command[0] if len(command) == 1 else shlex.join(command)
    program = Path((command[0].split() or [""])[0]).stem
    named = overrides.name or re.sub(r"[^A-Za-z0-9._-]+", "-", program).strip("-._")[:63]
    text = print_document({"name": named or "command", "workdir": ".", "run": run})
    where = "command line"
    return resolved(parse_job(text, file=where, now=now, overrides=overrides), folder, where)
