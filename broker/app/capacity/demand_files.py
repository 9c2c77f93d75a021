"""Readers of hourly demand: the number of requested units (GPUs, machines), hour by hour.

One number per line, with or without a name above; or a CSV with a header, a column per series, and optionally a first
column of times::

    time,H100,L4
    2026-03-01T00:00Z,12,3
    2026-03-01T01:00Z,14,3

Rows without times are consecutive hours. In a hole of up to a day, the missing hours count as the hour before, with a
note. Larger holes and lines that cannot be parsed raise `InvalidInput` with file and line.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from broker.core.errors import InvalidInput
from broker.core.values.figures import plural

MAX_BYTES = 50_000_000
MAX_HOURS = 20 * 8760
MAX_UNITS = 10_000_000
MAX_FILLED = 24

_HOUR = timedelta(hours=1)
_NAME = re.compile(r"[A-Za-z_][\w .:/+-]*")
_HOURS = {"hour", "hours", "h", "time", "timestamp", "date", "datetime", "index", "row"}
_NO_NUMBER = {"nan", "inf", "infinity", "null", "none", "na"}

_Row = tuple[int, list[str]]
"""Line of the file, from 1, and its fields."""


@dataclass(frozen=True, slots=True)
class Demand:
    """One series. ``where``: the file. ``column``: its column's name, if any. ``starts``: its first hour (UTC), if
    given. ``notes``: assumptions.
    """

    name: str
    hours: tuple[int, ...]
    where: str
    column: str = ""
    starts: datetime | None = None
    notes: tuple[str, ...] = ()


def read_demand(paths: Sequence[Path]) -> list[Demand]:
    """Every series of every file, named by its file, or by its column in a file with several series; by the whole path
    if names would be equal. Raises `InvalidInput`."""
    all_series = [series for path in paths for series in _read_file(path)]
    if not all_series:
        raise InvalidInput("no demand files given", hint="one number a line, an hour each; see --help")
    name_counts = Counter(series.name for series in all_series)
    return [replace(s, name=f"{s.where}:{s.name}") if name_counts[s.name] > 1 else s for s in all_series]


def _read_file(path: Path) -> list[Demand]:
    rows = _read_rows(path)
    header: list[str] = []
    if all(_NAME.fullmatch(cell.strip()) and cell.strip().lower() not in _NO_NUMBER for cell in rows[0][1]):
        header, rows = [cell.strip() for cell in rows[0][1]], rows[1:]
    if not rows:
        raise InvalidInput(
            "the file has a header but no rows", where=str(path), hint="expected one row per hour below the header"
        )
    width = len(header) or len(rows[0][1])
    for line, cells in rows:
        if len(cells) != width:
            raise InvalidInput(f"expected {plural(width, 'field')}, got {len(cells)}", where=f"{path}:{line}")
    has_times = width > 1 and _time(rows[0][1][0]) is not None
    has_hours = not has_times and width > 1 and _has_hour_column(path, header, rows)
    columns = range(1 if has_times or has_hours else 0, width)
    if len(columns) > 1 and not header:
        raise InvalidInput("a file with several columns needs a header", where=f"{path}:{rows[0][0]}")
    titles = [header[column] if header else "" for column in columns]
    if len(set(titles)) < len(titles):
        raise InvalidInput(f"duplicate column name: {', '.join(titles)}", where=f"{path}:1")
    repeats, starts, notes = _row_times(path, rows) if has_times else ([1] * len(rows), None, [])
    return [
        Demand(
            name=title if len(columns) > 1 else path.stem,
            hours=hours,
            where=str(path),
            column=title,
            starts=starts,
            notes=(*notes, *hour_notes),
        )
        for column, title in zip(columns, titles, strict=True)
        for hours, hour_notes in [_column_hours(path, rows, column, repeats)]
    ]


def _has_hour_column(path: Path, header: Sequence[str], rows: Sequence[_Row]) -> bool:
    """Whether the first column numbers the rows and is not demand (``hour,H100``). Raises `InvalidInput` if its name
    says so and its values do not."""
    if not header or header[0].lower() not in _HOURS:
        return False
    hour_cells = [cells[0].strip() for _, cells in rows]
    first_number = int(hour_cells[0]) if hour_cells[0].isdigit() else 0
    for number, (text, (line, _)) in enumerate(zip(hour_cells, rows, strict=True), start=first_number):
        if text != str(number):
            raise InvalidInput(
                f"the column {header[0]!r} has {text!r} where {number} was expected: one row per hour, without gaps",
                where=f"{path}:{line}",
                hint="write times such as 2026-01-31T18:00Z, or leave the column out",
            )
    return True


def _column_hours(
    path: Path, rows: Sequence[_Row], column: int, repeats: Sequence[int]
) -> tuple[tuple[int, ...], list[str]]:
    """One column as whole units, and the assumptions made."""
    values = [_number(cells[column], f"{path}:{line}") for line, cells in rows]
    fractions = sum(value % 1 != 0 for value in values)
    notes = [f"{fractions} h with fractions of a unit: rounded to whole ones"] if fractions else []
    rounded = [math.floor(value + 0.5) for value in values]
    return tuple(value for value, times in zip(rounded, repeats, strict=True) for _ in range(times)), notes


def _read_rows(path: Path) -> list[_Row]:
    try:
        if path.is_dir():
            raise InvalidInput("a folder, not a file of demand", where=str(path), hint=f"name files: {path}/*.csv")
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInput(f"larger than {MAX_BYTES // 1_000_000} MB", where=str(path))
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InvalidInput("no such file", where=str(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot be read as text: {error}", where=str(path)) from error
    lines = text.rstrip().splitlines()
    delimiter = max(",;\t", key=lines[0].count) if lines else ","
    rows = [(line, next(csv.reader([row], delimiter=delimiter), [])) for line, row in enumerate(lines, start=1)]
    if not rows:
        raise InvalidInput("empty: expected one number a line, an hour each", where=str(path))
    if len(rows) > MAX_HOURS:
        raise InvalidInput(f"more than {MAX_HOURS:,} hours", where=str(path))
    for line, cells in rows:
        if not any(cell.strip() for cell in cells):
            raise InvalidInput(
                "a gap: expected the demand of this hour", where=f"{path}:{line}", hint="write 0 where there was none"
            )
    return rows


def _number(text: str, where: str) -> float:
    expectation = "expected the demand of the hour, a number of 0 or more"
    if not text.strip():
        raise InvalidInput(f"a gap: {expectation}", where=where, hint="write 0 where there was none")
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidInput(f"{expectation}; found {text.strip()[:40]!r}", where=where) from error
    if not math.isfinite(value) or value < 0:
        raise InvalidInput(f"{expectation}; found {text.strip()[:40]!r}", where=where)
    if value > MAX_UNITS:
        raise InvalidInput(f"more than {MAX_UNITS:,} units in an hour: {text.strip()[:40]}", where=where)
    return value


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    # A bare number is demand, although "2026" and "20260301" are dates in ISO 8601.
    return None if text.strip().isdecimal() else time


def _row_times(path: Path, rows: Sequence[_Row]) -> tuple[list[int], datetime, list[str]]:
    """The hours each row stands for, the start of the first, and the assumptions made."""
    times: list[datetime] = []
    for line, cells in rows:
        time = _time(cells[0])
        if time is None:
            raise InvalidInput(f"expected an ISO 8601 time, found {cells[0].strip()[:40]!r}", where=f"{path}:{line}")
        times.append(time)
    zone_flags = {time.tzinfo is not None for time in times}
    if len(zone_flags) > 1:
        raise InvalidInput("some times have a time zone and some have none", where=str(path))
    notes = [] if zone_flags == {True} else ["times without a zone: taken as UTC"]
    utc = [time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC) for time in times]
    repeats, filled_hours, holes = [], 0, 0
    for (line, _), previous, current in zip(rows[1:], utc, utc[1:], strict=False):
        hours, remainder = divmod(current - previous, _HOUR)
        if hours < 1 or remainder:
            raise InvalidInput(f"expected the next hour after {previous.isoformat()}", where=f"{path}:{line}")
        if hours - 1 > MAX_FILLED:
            raise InvalidInput(
                f"a hole of {hours - 1} h before this hour", where=f"{path}:{line}", hint="fill it, or cut the series"
            )
        repeats.append(hours)
        filled_hours, holes = filled_hours + hours - 1, holes + (hours > 1)
    if filled_hours:
        notes.append(f"{filled_hours} h missing in {holes} hole(s): taken as the hour before each")
    return [*repeats, 1], utc[0], notes
