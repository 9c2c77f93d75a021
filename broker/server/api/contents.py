"""The files of jobs: uploads before submission, by their SHA-256; results and checkpoints, and their bytes."""

import hashlib
import tempfile
from collections.abc import Collection, Iterator
from enum import StrEnum
from itertools import chain
from typing import IO, Annotated

from fastapi import Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response, StreamingResponse

from broker.agent.source_tree import TreeUnusable, content_path, entries_in, tree_path
from broker.agent.store import ObjectFolder
from broker.app.access.callers import Caller
from broker.app.jobs import job_files
from broker.app.jobs.network_jobs import open_upload_pool
from broker.core.access.people import Permission
from broker.core.errors import InvalidInput, StoreProblem, UnknownName
from broker.engines.snapshots.upload import store_errors
from broker.server.api.callers import By, caller_of
from broker.server.api.limits import UploadQuota

MAX_TREE = 64 << 20
"""The most bytes of a folder's list, enough for some 400,000 files."""
_PIECE, _IN_MEMORY = 1 << 20, 8 << 20
_MAX_SINGLE_LOOKUPS = 100  # up to this number of contents, each is looked up singly; for more, the pool is listed
_ROOM = 64 << 20  # bytes of one upload to the run store in memory


class ContentKind(StrEnum):
    """The list of a folder's entries, or the content of a file."""

    TREES = "trees"
    FILES = "files"


Sha256 = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the bytes.")]


class ContentTooLarge(InvalidInput):
    """An upload with more bytes than a job's files may have."""


def has_content(request: Request, kind: ContentKind, sha256: Sha256) -> Response:
    """Whether the caller uploaded these bytes before: 200 or 404, without a body."""
    caller = caller_of(request)
    with store_errors():
        exists = open_upload_pool(caller.broker, caller.actor).exists(_path(kind, sha256))
    return Response(status_code=200 if exists else 404)


async def keep_content(request: Request, kind: ContentKind, sha256: Sha256) -> Response:
    """Keep these bytes. Idempotent. A list is uploaded after every content that it names."""
    caller = caller_of(request)
    limit = MAX_TREE if kind is ContentKind.TREES else caller.broker.settings.max_snapshot
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
        digest, size = hashlib.sha256(), 0
        async for piece in request.stream():
            digest.update(piece)
            size += len(piece)
            if size > limit:
                raise ContentTooLarge(f"more than {limit:,} bytes", where=sha256, hint="see the setting max_snapshot")
            await run_in_threadpool(_write, file, piece)
        if digest.hexdigest() != sha256:
            raise InvalidInput(
                "other bytes arrived than the address says (SHA-256 differs)", where=sha256, hint="upload it again"
            )
        file.seek(0)
        await run_in_threadpool(_store, caller, request.app.state.uploads, kind, sha256, file, size)
    return Response(status_code=204)


def _write(file: IO[bytes], piece: bytes) -> None:
    try:
        file.write(piece)
    except OSError as error:  # usually a full disk
        raise StoreProblem(f"the upload cannot be kept: {error.strerror}", hint="ask who runs the server") from error


def _store(caller: Caller, quota: UploadQuota, kind: ContentKind, sha256: str, file: IO[bytes], size: int) -> None:
    with store_errors():
        pool, path = open_upload_pool(caller.broker, caller.actor), _path(kind, sha256)
        new_bytes = 0 if pool.exists(path) else size
        with quota.taken(caller.actor.identity, pool, new_bytes):
            if kind is ContentKind.FILES:
                pool.upload(path, _pieces(file), size, _ROOM)
                return
            data = file.read()
            try:
                entries = entries_in(data)
            except TreeUnusable as error:
                raise InvalidInput(str(error), where=sha256) from error
            with caller.broker.store.using_snapshots():  # contents may have been deleted since they were uploaded
                if missing := _count_missing(pool, {entry.sha256 for entry in entries if entry.sha256}):
                    raise InvalidInput(f"{missing} of its files were not uploaded", where=sha256, hint="submit again")
                pool.write(path, data)


def _count_missing(pool: ObjectFolder, contents: Collection[str]) -> int:
    """How many of these contents the pool does not hold."""
    if len(contents) <= _MAX_SINGLE_LOOKUPS:
        return sum(not pool.exists(content_path(content)) for content in contents)
    stored = pool.sizes("files")
    return sum(content_path(content) not in stored for content in contents)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _path(kind: ContentKind, sha256: str) -> str:
    return tree_path(sha256) if kind is ContentKind.TREES else content_path(sha256)


Attempt = Annotated[int | None, Query(ge=1, description="Only files that this attempt wrote.")]
Start = Annotated[int, Query(ge=0, description="The first byte; for a download that was interrupted.")]


def file_content(by: By, id: str, sha256: str, attempt: Attempt = None, start: Start = 0) -> Response:
    """The bytes of a result, by its SHA-256."""
    view = by.job(id, Permission.SEE_OUTPUT)
    files = job_files.output_files(by.broker, view, job_files.outputs(by.broker, view, attempt))
    return content(files, sha256, start)


def checkpoint_content(by: By, id: str, checkpoint: str, sha256: str, start: Start = 0) -> Response:
    """The bytes of a file of a checkpoint, by its SHA-256."""
    view = by.job(id, Permission.SEE_OUTPUT)
    record = job_files.checkpoint(by.broker, view, checkpoint)
    return content(job_files.checkpoint_files(by.broker, view, record), sha256, start)


def content(files: list[job_files.RemoteFile], sha256: str, start: int) -> Response:
    """The bytes of one of the files from a position on, as a download. Raises `UnknownName`, `InvalidInput`."""
    file = next((candidate for candidate in files if candidate.sha256 == sha256), None)
    if file is None:
        raise UnknownName("file", sha256, ())
    if start > file.size:
        raise InvalidInput(f"the file has only {file.size:,} bytes", where="start")
    headers = {"Content-Length": str(file.size - start), "Content-Disposition": "attachment"}
    return StreamingResponse(_read_first(file.content(start)), 200, headers, "application/octet-stream")


def _read_first(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same pieces. The first one is read at once, so that a missing file gives an error, not a truncated answer."""
    first = next(pieces, b"")
    return chain([first], pieces)
