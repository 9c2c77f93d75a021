"""Files of the archive in the run store: rows as Parquet, named by their content, verified when they are read.

Any reader of Parquet can read them, for example DuckDB: ``SELECT * FROM 'archive/prices/*.parquet'``.
"""

from __future__ import annotations

import hashlib
import os
import secrets
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
# The columns by kind: text, whole numbers, numbers, times in microseconds.
_EVENTS = {"job_id": "text", "seq": "whole", "attempt": "whole", "at": "time", "kind": "text", "body": "text"}
_SERIES = {"series": "whole", "pool": "text", "source": "text", "at": "time"}
COLUMNS = {
    "events": _EVENTS,
    "prices": {**_SERIES, "price_micros": "whole", "availability": "text", "learned": "time"},
    "signals": {**_SERIES, "score": "number", "interruption_rate": "number"},
}
_TOLD = {kind: [name for name in of if name not in ("pool", "source")] for kind, of in COLUMNS.items()}
_GROUP = 5_000  # rows read at a time for one job or series
_HINT = "see GPUBROKER_RUNS and the credentials for it"


@dataclass(frozen=True, slots=True)
class PackedRows:
    """The content of a file to be written, with its path in the run store, which is unique, and its SHA-256 (hex)."""

    path: str
    digest: str
    data: bytes


def packed(kind: str, rows: Sequence[tuple[object, ...]]) -> PackedRows:
    """Rows, sorted by their first column, as a new file. Raises `MissingExtra`."""
    arrow, parquet = load_parquet()
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
    return PackedRows(f"{FOLDER}/{kind}/{digest}-{secrets.token_hex(4)}.parquet", digest, data)


def write(runs: str, file: PackedRows) -> None:
    """Write a file to the run store at the URL ``runs``, and read it back.

    Raises `Unreachable`, and `BrokerError` if the run store did not keep it.
    """
    try:
        ObjectFolder.open(runs).write(file.path, file.data)
    except StoreTrouble as error:
        raise Unreachable(str(error), hint=_HINT) from error
    _to_disk(runs, file.path)
    _fetched([runs], file.path, file.digest)


def remove(runs: str, path: str) -> None:
    """Delete a file. Idempotent. Raises `Unreachable`."""
    try:
        ObjectFolder.open(runs).delete(path)
    except StoreTrouble as error:
        raise Unreachable(str(error), hint=_HINT) from error


def _to_disk(runs: str, path: str) -> None:
    """Wait until a file in a local folder is on the disk, so that it survives a power cut, as the deletion of its rows
    does. A bucket's answer implies this. Raises `Unreachable`.
    """
    url = urlsplit(runs)
    if url.scheme != "file":
        return
    root, file = Path(unquote(url.path)), Path(path)
    try:
        for one in (file, *file.parents):  # the directory entries, too
            opened = os.open(root / one, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)
    except OSError as error:
        raise Unreachable(f"the disk did not keep {path}: {error.strerror}", hint="see GPUBROKER_RUNS") from error


def read(places: Sequence[str], path: str, digest: str, of: str | int) -> list[tuple[Any, ...]]:
    """The rows of one job or series in a file; the file is read from the first of these run stores that has it.

    Raises `MissingExtra`, `Unreachable`, and `BrokerError` if the file is missing or differs from the one that was
    written.
    """
    _, parquet = load_parquet()
    kind = _kind(path)
    first = next(iter(COLUMNS[kind]))
    table = parquet.read_table(BytesIO(_content(tuple(places), path, digest)), filters=[(first, "==", of)])
    return _rows(table, list(COLUMNS[kind]), kind)


def newest(places: Sequence[str], path: str, digest: str, by: int, known: int | None) -> list[tuple[Any, ...]]:
    """The last change of each series in a file of prices or signals by a time, among those known by ``known`` (both:
    microseconds). Each row has the series first, then the columns after its pool and source. Raises as `read`.
    """
    arrow, _ = load_parquet()
    from pyarrow import compute

    kind = _kind(path)
    table = _series(tuple(places), path, digest)
    chosen = compute.less_equal(table["at"], by)
    if known is not None:
        heard = compute.coalesce(table["learned"], table["at"]) if "learned" in table.column_names else table["at"]
        chosen = compute.and_(chosen, compute.less_equal(heard, known))
    table = table.filter(chosen)
    table = table.append_column("row", arrow.array(range(table.num_rows), arrow.int64()))
    last = table.group_by("series").aggregate([("row", "max")])  # the changes of a series are in order of time
    return _rows(table.take(last["row_max"]), _TOLD[kind], kind)


def _kind(path: str) -> str:
    return path.split("/")[-2]


def _rows(table: Any, columns: Sequence[str], kind: str) -> list[tuple[Any, ...]]:
    whole = load_parquet()[0].int64()
    found = [
        (table.column(name).cast(whole) if COLUMNS[kind][name] == "time" else table.column(name)).to_pylist()
        for name in columns
    ]
    return list(zip(*found, strict=True))


@lru_cache(maxsize=64)  # a backtest queries many moments; some MB each
def _series(places: tuple[str, ...], path: str, digest: str) -> Any:
    arrow, parquet = load_parquet()
    kind = _kind(path)
    table = parquet.read_table(BytesIO(_fetched(places, path, digest)), columns=_TOLD[kind])
    for number, name in enumerate(_TOLD[kind]):
        if COLUMNS[kind][name] == "time":
            table = table.set_column(number, name, table[name].cast(arrow.int64()))
    return table


@lru_cache(maxsize=8)  # queries about many series, or by a page that refreshes, read one file
def _content(places: tuple[str, ...], path: str, digest: str) -> bytes:
    return _fetched(places, path, digest)


def _fetched(places: Sequence[str], path: str, digest: str) -> bytes:
    changed, trouble = False, None
    for runs in places:
        try:
            data = ObjectFolder.open(runs).read(path)
        except StoreTrouble as error:
            trouble = error
            continue
        if data is not None and hashlib.sha256(data).hexdigest() == digest:
            return data
        changed = changed or data is not None
    if trouble is not None:
        raise Unreachable(str(trouble), hint=_HINT) from trouble
    raise BrokerError(
        f"the file {path} of the archive {'was changed' if changed else 'is missing'}",
        where=" and ".join(places),
        hint="restore it from a backup of the run store",
    )


def load_parquet(what: str = "the archive") -> tuple[Any, Any]:
    """The modules ``pyarrow`` and ``pyarrow.parquet``.

    Raises `MissingExtra`, with ``what`` as the part that needs them.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("parquet", what) from error
    return pyarrow, pyarrow.parquet
