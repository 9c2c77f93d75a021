"""The read-only routes of a job's files: results and checkpoints, and their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Annotated

from fastapi import Query
from fastapi.responses import Response, StreamingResponse

from broker.app.jobs import job_sources, kept_files
from broker.app.results.kept_files import CheckpointFiles, JobCheckpoints, JobOutputs
from broker.core.access.permissions import Permission
from broker.core.errors import InvalidInput, UnknownName
from broker.server.callers import Caller
from broker.server.looking import By, answer

Attempt = Annotated[int | None, Query(ge=1, description="Only files that this attempt wrote.")]
Start = Annotated[int, Query(ge=0, description="The first byte; for a download that was interrupted.")]


def outputs_of(by: Caller, id: str, attempt: int | None = None) -> JobOutputs:
    """The results of a job. Raises as `Caller.job`, `InvalidInput` for an attempt that it does not have."""
    return job_sources.outputs(by.broker, by.job(id, Permission.SEE_OUTPUT), attempt)


def checkpoints_of(by: Caller, id: str) -> JobCheckpoints:
    """The finished checkpoints of a job, oldest first."""
    return job_sources.checkpoints(by.broker, by.job(id, Permission.SEE_OUTPUT))


def list_files(by: By, id: str, attempt: Attempt = None) -> Response:
    """The results of a job; each file from the newest attempt that wrote it."""
    return answer(outputs_of(by, id, attempt))


def list_checkpoints(by: By, id: str) -> Response:
    """The finished checkpoints of a job, oldest first."""
    return answer(checkpoints_of(by, id))


def checkpoint_files(by: By, id: str, checkpoint: str) -> Response:
    """The files of a checkpoint: the newest (`latest`), the newest at a step, or the one with that id or name."""
    view = by.job(id, Permission.SEE_OUTPUT)
    return answer(CheckpointFiles.of(view, kept_files.checkpoint(by.broker, view, checkpoint)))


def file_content(by: By, id: str, sha256: str, attempt: Attempt = None, start: Start = 0) -> Response:
    """The bytes of a result, by its SHA-256."""
    view = by.job(id, Permission.SEE_OUTPUT)
    found = kept_files.output_files(by.broker, view, kept_files.outputs(by.broker, view, attempt))
    return content(found, sha256, start)


def checkpoint_content(by: By, id: str, checkpoint: str, sha256: str, start: Start = 0) -> Response:
    """The bytes of a file of a checkpoint, by its SHA-256."""
    view = by.job(id, Permission.SEE_OUTPUT)
    wanted = kept_files.checkpoint(by.broker, view, checkpoint)
    return content(kept_files.checkpoint_files(by.broker, view, wanted), sha256, start)


def content(files: list[kept_files.RemoteFile], sha256: str, start: int) -> Response:
    """The bytes of one of the files from a position on, as a download. Raises `UnknownName`, `InvalidInput`."""
    file = next((one for one in files if one.sha256 == sha256), None)
    if file is None:
        raise UnknownName("file", sha256, ())
    if start > file.size:
        raise InvalidInput(f"the file has only {file.size:,} bytes", where="start")
    headers = {"Content-Length": str(file.size - start), "Content-Disposition": "attachment"}
    return StreamingResponse(_begun(file.content(start)), 200, headers, "application/octet-stream")


def _begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same pieces. The first one is read at once, so that a missing file gives an error, not a truncated answer."""
    first = next(pieces, b"")
    return chain([first], pieces)
