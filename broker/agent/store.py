"""The job's folder in an object store, as agent and broker use it.

Every call may be repeated. Store failures are `StoreTrouble`; a missing object is None (or FileNotFoundError while
streaming). Credentials come from obstore's own means (environment, instance identity), never from the URL.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Callable, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore import exceptions
from obstore.store import LocalStore, from_url

from broker.agent.aws import bucket_region, tool_login

_Result = TypeVar("_Result")
# Time limits, so that a hanging request does not keep the agent from its own deadlines.
_CLIENT: Any = {"timeout": "60s", "connect_timeout": "10s"}
_RETRY: Any = {"max_retries": 3}
# Bytes of one request. The time limit includes the answer's content, so a larger object is read in several requests;
# otherwise an object that takes longer than the limit could never be read.
_PIECE = 16 << 20
_PIECE_OF_SEVERAL = 4 << 20  # bytes of each of several concurrent requests, which share a slow connection
_MAX_PARTS = 9_000
_MIN_PART = 5 << 20
_MAX_PARALLEL = 12
_LARGEST_DOCUMENT = 256 << 20  # bytes of a JSON document; a larger one was not written by gpubroker
ROOM = 64 << 20  # bytes of one upload in memory, all parts together, if it is the only upload
# If any client option is set, obstore ignores these variables.
_PLAIN_HTTP = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")


class StoreTrouble(Exception):
    """A store operation failed; it may be repeated. The message is one line for people, without keys or tokens."""


def _sentence(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else type(error).__name__
    first = re.sub(r" in [0-9.]+[mµn]?s\b", "", first)  # otherwise no two errors would be equal
    return re.sub(r"\?\S*", "?…", first)  # a signed URL contains its signature after the question mark


def parts(size: int, room: int) -> tuple[int, int]:
    """Bytes per part and number of concurrent parts of an upload of this size: as many as fit into ``room`` (bytes), at
    least two. S3 and Cloud Storage allow 10,000 parts per object, at least 5 MiB except the last; Azure allows more and
    smaller ones.
    """
    minimum = -(-size // _MAX_PARTS)
    part = max(_MIN_PART, -(-minimum // (1 << 20)) << 20)
    return part, max(2, min(_MAX_PARALLEL, room // part))


class ObjectFolder:
    """A folder of an object store. Paths are relative to it, with forward slashes."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @classmethod
    def open(cls, url: str, access: Callable[[], dict[str, Any]] | None = None) -> ObjectFolder:
        """The folder at ``file://``, ``s3://``, ``gs://`` or ``az://``.

        A local one is created, readable by its owner only. The region of an S3 bucket is queried. ``access``: returns
        credentials of the store, used instead of the machine's own (`broker.agent.access`). Raises StoreTrouble for
        other URLs and if the folder cannot be created.
        """
        parts = urlsplit(url)
        try:
            if parts.scheme == "file":
                folder = Path(unquote(parts.path))
                make_private(folder)
                return cls(LocalStore(folder))
            allows_http = any(os.environ.get(name, "").lower() in ("1", "true", "yes") for name in _PLAIN_HTTP)
            client: Any = {**_CLIENT, "allow_http": allows_http}
            region = bucket_region(url)
            options: Any = {"region": region} if region is not None else {}
            options |= tool_login(parts.scheme) if access is None else {"credential_provider": access}
            return cls(from_url(url, client_options=client, retry_config=_RETRY, **options))
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise StoreTrouble(
                f"cannot open the run folder {parts.scheme}://…{parts.path}: {_sentence(error)}"
            ) from None

    def read(self, path: str, most: int | None = None) -> bytes | None:
        """The content, or None.

        ``most``: the maximum size in bytes; of a larger object, only the first byte is read and returned.
        """
        stored = self.read_at(path, most)
        return None if stored is None else stored[0]

    def read_json(self, path: str) -> Mapping[str, Any] | None:
        """The document, or None. Raises ValueError if it is not a JSON object (torn, or written by something else)."""
        stored = self.read_dated(path)
        return None if stored is None else stored[0]

    def read_dated(self, path: str) -> tuple[Mapping[str, Any], datetime] | None:
        """As `read_json`, with the write time by the store's clock (UTC)."""
        stored = self.read_at(path, _LARGEST_DOCUMENT)
        if stored is None:
            return None
        try:
            document = json.loads(stored[0])  # JSONDecodeError and UnicodeDecodeError are ValueErrors
        except RecursionError:
            raise ValueError(f"{path} is nested too deep") from None
        if not isinstance(document, dict):
            raise ValueError(f"{path} is not a JSON object")
        return document, stored[1]

    def written_at(self, path: str) -> datetime | None:
        """The write time by the store's clock (UTC; usually truncated to seconds), or None."""

        def query() -> datetime | None:
            try:
                return obstore.head(self._inner, path)["last_modified"]
            except FileNotFoundError:
                return None

        return self._try(f"look for {path}", query)

    def exists(self, path: str) -> bool:
        return self.written_at(path) is not None

    def write(self, path: str, data: bytes) -> None:
        self._try(f"write {path}", lambda: obstore.put(self._inner, path, data, use_multipart=False))

    def write_json(self, path: str, document: Mapping[str, Any]) -> None:
        self.write(path, to_bytes(document))

    def create(self, path: str, data: bytes) -> bool:
        """Write the object if it does not exist: True if this call wrote it."""

        def make() -> bool:
            try:
                obstore.put(self._inner, path, data, mode="create", use_multipart=False)
            except exceptions.AlreadyExistsError:
                return False
            return True

        return self._try(f"create {path}", make)

    def upload(self, path: str, pieces: Iterable[bytes], size: int = 0, room: int = ROOM) -> None:
        """Write an object of about ``size`` bytes from a stream, several parts at a time, with at most ``room`` bytes
        in memory (see `parts`). An exception of ``pieces`` is passed on, and then no object appears.
        """
        part, at_once = parts(size, room)
        errors: list[BaseException] = []

        def watched() -> Iterator[bytes]:
            try:
                yield from pieces
            except BaseException as error:
                errors.append(error)
                raise

        try:
            obstore.put(self._inner, path, watched(), chunk_size=part, max_concurrency=at_once)
        except (exceptions.BaseError, OSError, ValueError) as error:
            if errors:
                raise errors[0] from None
            raise StoreTrouble(f"cannot upload {path}: {_sentence(error)}") from None

    def stream(self, path: str, start: int = 0, at_once: int = 1) -> Iterator[bytes]:
        """The content in pieces of up to 16 MiB, from byte ``start`` on, which must be less than the size.

        ``at_once``: the number of concurrent requests, whose pieces are then smaller. Raises FileNotFoundError, and
        StoreTrouble also for an object that is replaced meanwhile.
        """
        options: Any = {"range": {"offset": start}} if start else None
        try:
            result = obstore.get(self._inner, path, options=options)
            size, version = result.meta["size"], result.meta.get("e_tag")
            if size - start <= _PIECE:
                yield bytes(result.bytes())
                return
            del result  # its content is not read, as that could exceed the time limit of a request
            step = _PIECE if at_once == 1 else _PIECE_OF_SEVERAL

            def piece(at: int) -> bytes:
                part: Any = {"range": (at, min(at + step, size)), "if_match": version}
                return bytes(obstore.get(self._inner, path, options=part).bytes())

            yield from _prefetch(piece, iter(range(start, size, step)), at_once)
        except FileNotFoundError:
            raise
        except (exceptions.BaseError, OSError) as error:
            raise StoreTrouble(f"cannot read {path}: {_sentence(error)}") from None

    def sizes(self, prefix: str) -> dict[str, int]:
        """Every object below ``prefix`` (a folder) and its size in bytes, paths relative to the store."""

        def query() -> dict[str, int]:
            return {row["path"]: row["size"] for batch in obstore.list(self._inner, prefix) for row in batch}

        return self._try(f"list {prefix}", query)

    def dated_sizes(self, prefix: str) -> dict[str, tuple[int, datetime]]:
        """As `sizes`, with the write time by the store's clock (UTC) of each."""

        def query() -> dict[str, tuple[int, datetime]]:
            rows = (row for batch in obstore.list(self._inner, prefix) for row in batch)
            return {row["path"]: (row["size"], row["last_modified"]) for row in rows}

        return self._try(f"list {prefix}", query)

    def folders(self, prefix: str) -> list[str]:
        """The names of the folders directly below ``prefix``, sorted."""

        def query() -> list[str]:
            prefixes = obstore.list_with_delimiter(self._inner, prefix)["common_prefixes"]
            return sorted(path.rstrip("/").rpartition("/")[2] for path in prefixes)

        return self._try(f"list {prefix}", query)

    def files(self, prefix: str) -> list[str]:
        """The names of the objects directly below ``prefix``, sorted."""

        def query() -> list[str]:
            objects = obstore.list_with_delimiter(self._inner, prefix)["objects"]
            return sorted(row["path"].rpartition("/")[2] for row in objects)

        return self._try(f"list {prefix}", query)

    def delete(self, path: str) -> None:
        def remove() -> None:
            try:
                obstore.delete(self._inner, path)
            except FileNotFoundError:
                return

        self._try(f"delete {path}", remove)

    def drop_folder(self, path: str) -> None:
        """Remove a folder that became empty; only local disks have such folders."""
        prefix = getattr(self._inner, "prefix", None)
        if isinstance(self._inner, LocalStore) and prefix:
            for folder, _, _ in os.walk(Path(prefix) / path, topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()

    def read_at(self, path: str, max_bytes: int | None = None) -> tuple[bytes, datetime] | None:
        """As `read`, with the write time by the store's clock (UTC)."""

        def fetch() -> tuple[bytes, datetime] | None:
            try:
                answer = obstore.get(self._inner, path)
                if max_bytes is not None and answer.meta["size"] > max_bytes:
                    return bytes(obstore.get_range(self._inner, path, start=0, length=1)), answer.meta["last_modified"]
                return bytes(answer.bytes()), answer.meta["last_modified"]
            except FileNotFoundError:
                return None

        return self._try(f"read {path}", fetch)

    def _try(self, action: str, call: Callable[[], _Result]) -> _Result:
        try:
            return call()
        except (exceptions.BaseError, OSError) as error:
            raise StoreTrouble(f"cannot {action}: {_sentence(error)}") from None


def _prefetch(fetch: Callable[[int], bytes], starts: Iterator[int], at_once: int) -> Iterator[bytes]:
    """The pieces in order, with ``at_once`` of them requested at a time."""
    if at_once == 1:
        yield from map(fetch, starts)
        return
    pool = ThreadPoolExecutor(at_once, thread_name_prefix="range")
    try:
        window = deque(pool.submit(fetch, at) for at in islice(starts, at_once))
        while window:
            data = window.popleft().result()
            window.extend(pool.submit(fetch, at) for at in islice(starts, 1))
            yield data
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def to_bytes(document: Mapping[str, Any]) -> bytes:
    """A document as stored: indented JSON."""
    return json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"


def split_folder(url: str) -> tuple[str, int]:
    """``…/<job>/attempts/<n>`` as the URL of the job's folder and the attempt's number. Raises ValueError."""
    match = re.fullmatch(r"(.+)/attempts/([0-9]+)", url.rstrip("/"))
    if match is None:
        raise ValueError(f"not the folder of an attempt (…/attempts/<number>): {url}")
    return match[1], int(match[2])


def make_private(folder: Path) -> None:
    """Create the folder; new ones are private to their owner (existing permissions stay)."""
    if folder.exists():
        return
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)
