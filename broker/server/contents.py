"""Uploads of a job's files before its submission: contents and lists by their SHA-256, into the caller's own pool."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import IO, Annotated

from fastapi import Path, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from broker.agent.source_tree import TreeUnusable, content_path, entries_in, tree_path
from broker.agent.store import ObjectFolder
from broker.app.jobs.received import pool_in
from broker.core.errors import InvalidInput, StoreProblem
from broker.server.callers import Caller, caller_of
from broker.server.upload_quota import UploadQuota
from broker.snapshots.upload import reaching

MOST_TREE = 64 << 20
"""The most bytes of a folder's list, enough for some 400,000 files."""
_PIECE, _IN_MEMORY = 1 << 20, 8 << 20
_FEW = 100  # up to this number of contents, each is looked up singly; for more, the pool is listed
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
    with reaching():
        found = pool_in(caller.broker, caller.actor).exists(_path(kind, sha256))
    return Response(status_code=200 if found else 404)


async def keep_content(request: Request, kind: ContentKind, sha256: Sha256) -> Response:
    """Keep these bytes. Idempotent. A list is uploaded after every content that it names."""
    caller = caller_of(request)
    most = MOST_TREE if kind is ContentKind.TREES else caller.broker.settings.max_snapshot
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
        digest, size = hashlib.sha256(), 0
        async for piece in request.stream():
            digest.update(piece)
            size += len(piece)
            if size > most:
                raise ContentTooLarge(f"more than {most:,} bytes", where=sha256, hint="see the setting max_snapshot")
            await run_in_threadpool(_write, file, piece)
        if digest.hexdigest() != sha256:
            raise InvalidInput(
                "other bytes arrived than the address says (SHA-256 differs)", where=sha256, hint="upload it again"
            )
        file.seek(0)
        await run_in_threadpool(_stored, caller, request.app.state.uploads, kind, sha256, file, size)
    return Response(status_code=204)


def _write(file: IO[bytes], piece: bytes) -> None:
    try:
        file.write(piece)
    except OSError as error:  # usually a full disk
        raise StoreProblem(f"the upload cannot be kept: {error.strerror}", hint="ask who runs the server") from error


def _stored(caller: Caller, quota: UploadQuota, kind: ContentKind, sha256: str, file: IO[bytes], size: int) -> None:
    with reaching():
        pool, path = pool_in(caller.broker, caller.actor), _path(kind, sha256)
        more = 0 if pool.exists(path) else size
        with quota.taken(caller.actor.identity, pool, more):
            if kind is ContentKind.FILES:
                pool.upload(path, _pieces(file), size, _ROOM)
                return
            data = file.read()
            try:
                entries = entries_in(data)
            except TreeUnusable as error:
                raise InvalidInput(str(error), where=sha256) from error
            with caller.broker.store.using_snapshots():  # contents may have been deleted since they were uploaded
                if lacking := _lacking(pool, {entry.sha256 for entry in entries if entry.sha256}):
                    raise InvalidInput(f"{lacking} of its files were not uploaded", where=sha256, hint="submit again")
                pool.write(path, data)


def _lacking(pool: ObjectFolder, contents: Collection[str]) -> int:
    """How many of these contents the pool does not hold."""
    if len(contents) <= _FEW:
        return sum(not pool.exists(content_path(one)) for one in contents)
    held = pool.sizes("files")
    return sum(content_path(one) not in held for one in contents)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _path(kind: ContentKind, sha256: str) -> str:
    return tree_path(sha256) if kind is ContentKind.TREES else content_path(sha256)
