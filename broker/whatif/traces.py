"""Readers of public cluster traces: jobs with their team, GPUs, submission, run time, and recorded wait.

| format | file | source | |---|---|---| | ``philly`` | ``cluster_job_log``, JSON |
https://github.com/msr-fiddle/philly-traces (Microsoft, ATC '19) | | ``helios`` | ``cluster_log.csv`` |
https://github.com/S-Lab-System-Group/HeliosData (SenseTime, SC '21) | | ``alibaba`` | ``openb_pod_list_*.csv`` |
https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2023 |

Jobs without GPUs, and those that never ran, are left out and counted. Times without a zone count as UTC. Pods of
Alibaba that have a part of a GPU count as one GPU. Pure but for reading the file.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

from broker.core.errors import InvalidInput

_PHILLY_NONE = (None, "None", "")
_LARGEST_TRACE = 2_000_000_000  # bytes
_MOST_GPUS = 100_000
_LATEST = 32_503_680_000  # seconds since 1970: the year 3000


class TraceFormat(StrEnum):
    """Formats of traces."""

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
    """The jobs of a trace. Raises `InvalidInput` with file and line for what is not of that format, and for a file
    without a job."""
    rows: dict[TraceFormat, Callable[[TextIO, str], Iterator[tuple[str, Any]]]] = {
        TraceFormat.PHILLY: _philly_rows,
        TraceFormat.HELIOS: _csv_rows,
        TraceFormat.ALIBABA: _csv_rows,
    }
    read = {TraceFormat.PHILLY: _philly, TraceFormat.HELIOS: _helios, TraceFormat.ALIBABA: _alibaba}[form]
    jobs: list[TraceJob] = []
    skipped: Counter[str] = Counter()
    try:
        if path.stat().st_size > _LARGEST_TRACE:
            raise InvalidInput("is larger than 2 GB", where=str(path), hint="cut it, for example by weeks")
        with path.open(encoding="utf-8", newline="") as file:
            for where, row in rows[form](file, str(path)):
                try:
                    jobs.append(_possible(read(row)))
                except _Skipped as reason:
                    skipped[str(reason)] += 1
                except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
                    raise InvalidInput(f"is not a job of a {form} trace: {_told(error)}", where=where) from error
    except UnicodeDecodeError as error:
        raise InvalidInput("is not a text file in UTF-8", where=str(path)) from error
    except OSError as error:
        raise InvalidInput(f"cannot be read: {error.strerror}", where=str(path)) from error
    if not jobs:
        why = ", ".join(f"{number:,} {reason}" for reason, number in skipped.items()) or "it is empty"
        raise InvalidInput(f"has no job with GPUs that ran: {why}", where=str(path))
    return JobTrace(tuple(sorted(jobs, key=lambda job: job.submitted)), dict(skipped))


def _possible(job: TraceJob) -> TraceJob:
    """The job. Raises ValueError for impossible numbers."""
    if not 0 < job.gpus <= _MOST_GPUS:
        raise ValueError(f"{job.gpus} GPUs; expected 1 to {_MOST_GPUS:,}")
    if not (0 <= job.submitted <= _LATEST and job.seconds <= _LATEST):
        raise ValueError(f"{job.seconds} seconds from {job.submitted} on; expected a time between 1970 and 3000")
    return job


def _told(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)


def _philly_rows(file: TextIO, name: str) -> Iterator[tuple[str, Any]]:
    try:
        rows = json.load(file)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InvalidInput("is not JSON; expected `cluster_job_log` of Philly", where=f"{name}:{line}") from error
    if not isinstance(rows, list):
        raise InvalidInput("expected a list of jobs, as `cluster_job_log` of Philly is", where=name)
    for number, row in enumerate(rows):
        yield f"{name}, job {number + 1}", row


def _csv_rows(file: TextIO, name: str) -> Iterator[tuple[str, Any]]:
    reader = csv.DictReader(file)
    try:
        for row in reader:
            yield f"{name}:{reader.line_num}", row
    except csv.Error as error:
        raise InvalidInput(f"is not a CSV file: {error}", where=f"{name}:{reader.line_num}") from error


def _philly(row: Any) -> TraceJob:
    attempts = row["attempts"]
    if not attempts:
        raise _Skipped("never started")
    ran, first = 0, None
    for attempt in attempts:
        if attempt["start_time"] in _PHILLY_NONE:
            continue
        start = _seconds(attempt["start_time"])
        first = start if first is None else min(first, start)
        if attempt["end_time"] not in _PHILLY_NONE:
            ran += max(_seconds(attempt["end_time"]) - start, 0)
    if first is None or not ran:
        raise _Skipped("without a recorded run")
    gpus = max(sum(len(machine["gpus"]) for machine in attempt["detail"]) for attempt in attempts)
    if not gpus:
        raise _Skipped("without GPUs")
    submitted = _seconds(row["submitted_time"])
    return TraceJob(str(row["vc"]), gpus, submitted, ran, max(first - submitted, 0))


def _helios(row: Mapping[str, str]) -> TraceJob:
    gpus, ran = int(row["gpu_num"]), int(float(row["duration"]))
    if not gpus:
        raise _Skipped("without GPUs")
    if ran <= 0:
        raise _Skipped("without a recorded run")
    return TraceJob(row["vc"].strip(), gpus, _seconds(row["submit_time"]), ran, max(int(float(row["queue"])), 0))


def _alibaba(row: Mapping[str, str]) -> TraceJob:
    gpus = int(row["num_gpu"])
    if not gpus:
        raise _Skipped("without GPUs")
    if not row["scheduled_time"]:
        raise _Skipped("never started")
    submitted, started = int(float(row["creation_time"])), int(float(row["scheduled_time"]))
    ran = int(float(row["deletion_time"])) - started
    if ran <= 0:
        raise _Skipped("without a recorded run")
    return TraceJob(row["qos"].strip() or "none", gpus, submitted, ran, max(started - submitted, 0))


def _seconds(text: str) -> int:
    at = datetime.fromisoformat(text)
    return math.floor((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())
