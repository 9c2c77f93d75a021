"""Readers of daily spending, and of labelled episodes in it.

A CSV with a header: a column of days, then a column per series, in USD (or another unit: only ratios matter)::

    day,research,serving
    2026-03-01,812.50,96
    2026-03-02,790,97.25

Days are ISO dates or whole numbers; a missing day counts as a day without spending, with a note. A series may begin
later and end earlier than others; its cells are empty there. Labels: ``series,first_day,last_day``, both days included.
Invalid input raises `InvalidInput` with file and line.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from broker.core.errors import InvalidInput, UnknownName

MAX_BYTES = 50_000_000
MAX_HOLE = 366


@dataclass(frozen=True, slots=True)
class DailySpending:
    """One series. ``first``: the number of its first day (`date.toordinal` where days are ``dated``)."""

    name: str
    first: int
    days: tuple[float, ...]
    dated: bool

    def day_name(self, number: int) -> str:
        """The name, as in the file, of the day at that index of ``days``."""
        day = self.first + number
        return date.fromordinal(day).isoformat() if self.dated else str(day)


@dataclass(frozen=True, slots=True)
class MarkedEpisode:
    """A labelled episode of one series: the indexes of its first and last day in ``days``."""

    series: str
    first: int
    last: int


def read_series(path: Path) -> tuple[list[DailySpending], list[str]]:
    """Every series of the file, and the assumptions made. Raises `InvalidInput`."""
    (head_line, head), *rows = _rows(path, "a header and a row a day are expected")
    if len(head) < 2 or any(_number(cell) is not None for cell in head):
        raise InvalidInput("expected a header: a column of days, then a column per series", where=f"{path}:{head_line}")
    names = [cell.strip() for cell in head[1:]]
    if "" in names or len(set(names)) < len(names):
        raise InvalidInput("each series needs a name of its own", where=f"{path}:{head_line}")
    if not rows:
        raise InvalidInput("a header and no day", where=str(path))
    days: list[int] = []
    for line, cells in rows:
        if len(cells) != len(head):
            raise InvalidInput(f"expected {len(head)} fields, found {len(cells)}", where=f"{path}:{line}")
        days.append(_day(cells[0], f"{path}:{line}", dated=_is_date(rows[0][1][0])))
        if len(days) > 1 and not 0 < days[-1] - days[-2] <= MAX_HOLE:
            raise InvalidInput(f"expected a day after {rows[len(days) - 2][1][0].strip()}", where=f"{path}:{line}")
    missing = days[-1] - days[0] + 1 - len(days)
    notes = [f"{missing} days without a row: taken as days without spending"] if missing else []
    dated = _is_date(rows[0][1][0])
    return [_series(path, name, column, rows, days, dated=dated) for column, name in enumerate(names, start=1)], notes


def read_labels(path: Path, series: Sequence[DailySpending]) -> list[MarkedEpisode]:
    """Every episode of the file, cut to the days of its series. Raises `InvalidInput`, and `UnknownName` for an unknown
    series."""
    by_name: Mapping[str, DailySpending] = {one.name: one for one in series}
    rows = _rows(path, "series,first_day,last_day are expected")
    found: list[MarkedEpisode] = []
    for number, (line, cells) in enumerate(rows):
        where = f"{path}:{line}"
        name = cells[0].strip()
        if name not in by_name and not number:
            continue  # the header
        if len(cells) < 3:
            raise InvalidInput(f"expected series,first_day,last_day, found {len(cells)} field(s)", where=where)
        if name not in by_name:
            raise UnknownName("series", name, by_name)
        of = by_name[name]
        first, last = (_day(cell, where, dated=of.dated) - of.first for cell in cells[1:3])
        if last < first:
            raise InvalidInput("the last day is before the first", where=where)
        if last < 0 or first >= len(of.days):
            raise InvalidInput(f"{name} has no spending on these days", where=where)
        found.append(MarkedEpisode(name, max(0, first), min(last, len(of.days) - 1)))
    return found


def _series(
    path: Path, name: str, column: int, rows: Sequence[tuple[int, list[str]]], days: Sequence[int], *, dated: bool
) -> DailySpending:
    said = [(day, cells[column].strip(), line) for day, (line, cells) in zip(days, rows, strict=True)]
    filled = [number for number, (_, text, _) in enumerate(said) if text]
    if not filled:
        raise InvalidInput(f"the series {name} has no day", where=str(path))
    found = dict[int, float]()
    for day, text, line in said[filled[0] : filled[-1] + 1]:
        amount = _number(text)
        if amount is None:
            raise InvalidInput(
                f"expected what {name} spent that day, a number; found {text[:40]!r}",
                where=f"{path}:{line}",
                hint="write 0 where there was none",
            )
        found[day] = amount
    first, last = min(found), max(found)
    return DailySpending(name, first, tuple(found.get(day, 0.0) for day in range(first, last + 1)), dated)


def _rows(path: Path, expected: str) -> list[tuple[int, list[str]]]:
    """The non-empty lines with their numbers."""
    try:
        if path.is_dir():
            raise InvalidInput("a folder, not a file", where=str(path))
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInput(f"larger than {MAX_BYTES // 1_000_000} MB", where=str(path))
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise InvalidInput("no such file", where=str(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"cannot be read as text: {error}", where=str(path)) from error
    found = list(_numbered(text))
    if not found:
        raise InvalidInput(f"empty: {expected}", where=str(path))
    return found


def _numbered(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(text.splitlines())
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells


def _is_date(text: str) -> bool:
    return "-" in text.strip()[1:]


def _day(text: str, where: str, *, dated: bool) -> int:
    try:
        return date.fromisoformat(text.strip()[:10]).toordinal() if dated else int(text)
    except ValueError as error:
        expected = "a day such as 2026-11-30" if dated else "the number of a day"
        raise InvalidInput(f"expected {expected}, found {text.strip()[:40]!r}", where=where) from error


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
