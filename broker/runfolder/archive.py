"""Files of the archive in the run store: rows as Parquet, named by their content, verified when they are read.

Any reader of Parquet can read them, for example DuckDB: ``SELECT * FROM 'archive/prices/*.parquet'``.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from broker.agent.store import ObjectFolder, StoreTrouble
from broker.core.errors import BrokerError, MissingExtra, Unreachable

FOLDER = "archive"
# By kind, the columns: text, whole numbers, numbers, times in microseconds.
_EVENTS = {"job_id": "text", "seq": "whole", "attempt": "whole", "at": "time", "kind": "text", "body": "text"}
_SERIES = {"series": "whole", "pool": "text", "source": "text", "at": "time"}
COLUMNS = {
    "events": _EVENTS,
    "prices": {**_SERIES, "price_micros": "whole", "availability": "text", "learned": "time"},
    "signals": {**_SERIES, "score": "number", "interruption_rate": "number"},
}
_GROUP = 5_000  # rows that are read for one job or series


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A file that was written: its path in the run store, SHA-256 (hexadecimal), and size in bytes."""

    path: str
    digest: str
    size: int


def write(runs: str, kind: str, rows: Sequence[tuple[object, ...]]) -> StoredRows:
    """Put rows, sorted by their first column, into a new file of the run store at the URL ``runs``, and read it back.
    The same rows give the same file. Raises `MissingExtra`, `Unreachable`."""
    arrow, parquet = _arrow()
    types = {"text": arrow.string(), "whole": arrow.int64(), "number": arrow.float64(), "time": arrow.int64()}
    moment = arrow.timestamp("us", tz="UTC")
    arrays = []
    for number, what in enumerate(COLUMNS[kind].values()):
        values = arrow.array([row[number] for row in rows], types[what])
        arrays.append(values.cast(moment) if what == "time" else values)
    sink = BytesIO()
    table = arrow.Table.from_arrays(arrays, names=list(COLUMNS[kind]))
    parquet.write_table(table, sink, compression="zstd", row_group_size=_GROUP)
    data = sink.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    path = f"{FOLDER}/{kind}/{digest}.parquet"
    try:
        ObjectFolder.open(runs).write(path, data)
    except StoreTrouble as error:
        raise Unreachable(str(error), hint="see GPUBROKER_RUNS and the credentials for it") from error
    _to_disk(runs, path)
    _fetched(runs, path, digest)
    return StoredRows(path, digest, len(data))


def _to_disk(runs: str, path: str) -> None:
    """Wait until a file in a local folder survives a power cut, as the deletion of its rows does. A bucket's answer
    means that it would. Raises `Unreachable`."""
    url = urlsplit(runs)
    if url.scheme != "file":
        return
    root, file = Path(unquote(url.path)), Path(path)
    try:
        for one in (file, *file.parents):  # the entries of its folders, too
            opened = os.open(root / one, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
    except OSError as error:
        raise Unreachable(f"the disk did not keep {path}: {error.strerror}", hint="see GPUBROKER_RUNS") from error


def read(runs: str, path: str, digest: str, of: str | int) -> list[tuple[Any, ...]]:
    """The rows of one job or series in a file. Raises `MissingExtra`, `Unreachable`, and `BrokerError` if the file is
    missing or is not the one that was written."""
    arrow, parquet = _arrow()
    kind = path.split("/")[-2]
    first = next(iter(COLUMNS[kind]))
    table = parquet.read_table(BytesIO(_content(runs, path, digest)), filters=[(first, "==", of)])
    times = [name for name, what in COLUMNS[kind].items() if what == "time"]
    columns = [
        (table.column(name).cast(arrow.int64()) if name in times else table.column(name)).to_pylist()
        for name in COLUMNS[kind]
    ]
    return list(zip(*columns, strict=True))


@lru_cache(maxsize=8)  # many series, or a page that is renewed, read one file
def _content(runs: str, path: str, digest: str) -> bytes:
    return _fetched(runs, path, digest)


def _fetched(runs: str, path: str, digest: str) -> bytes:
    try:
        data = ObjectFolder.open(runs).read(path)
    except StoreTrouble as error:
        raise Unreachable(str(error), hint="see GPUBROKER_RUNS and the credentials for it") from error
    if data is None or hashlib.sha256(data).hexdigest() != digest:
        what = "is missing" if data is None else "was changed"
        raise BrokerError(
            f"the file {path} of the archive {what}",
            where="GPUBROKER_RUNS",
            hint="restore it from a backup of the run store",
        )
    return data


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("parquet", "the archive") from error
    return pyarrow, pyarrow.parquet
