"""Slots of time by which the use of closed jobs is summed: days, months and years in UTC, and all time. Pure.

A slot is one integer: its level, then its start in seconds since 1970. So consecutive slots of one level are one range
of integers. A job belongs to the smallest slot that encloses all its times, and is added to the sums of that slot and
of every slot around it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from broker.ledger.sums import DAY
from broker.store.engine.times import to_micros
from broker.store.schema.jobs import STILL_THERE

_SECOND = 1_000_000
_LEVEL = 1 << 40  # more than the seconds of any date
_DAYS, _MONTHS, _YEARS, _EVER = range(4)
_FINER = {_YEARS: _MONTHS, _MONTHS: _DAYS}
EVER = _EVER * _LEVEL
"""The slot of all time."""
MONTHS_FROM, YEARS_FROM = _MONTHS * _LEVEL, _YEARS * _LEVEL
"""Slots below the first number are days; those from the first to below the second are months."""
_FIRST = to_micros(datetime(1970, 1, 1, tzinfo=UTC))
_LAST = to_micros(datetime(9999, 1, 1, tzinfo=UTC))


def slots_of(first: int, last: int) -> list[int]:
    """The slots that enclose these times (microseconds since 1970), the smallest first."""
    if not _FIRST <= first <= last < _LAST:
        return [EVER]
    enclosing = [level for level in (_DAYS, _MONTHS, _YEARS) if _floor(level, first) == _floor(level, last)]
    return [*(_code(level, _floor(level, first)) for level in enclosing), EVER]


def covered(left: int, right: int) -> list[tuple[int, int]]:
    """The fewest ranges of slots (from, before) that cover the period of whole days.

    ``left``, ``right``: microseconds since 1970, or beyond all times.
    """
    if left <= _FIRST and right >= STILL_THERE:
        return [(EVER, EVER + 1)]
    return _covered(_YEARS, max(left, _FIRST), min(right, _LAST))


def cut(left: int, right: int) -> list[int]:
    """The slots within which the period begins or ends: their jobs have to be counted one by one."""
    if left <= _FIRST and right >= STILL_THERE:
        return []
    found = {EVER}
    for edge in (left, right):
        if _FIRST < edge < _LAST:
            found |= {
                _code(level, start) for level in (_DAYS, _MONTHS, _YEARS) if (start := _floor(level, edge)) != edge
            }
    return sorted(found)


def overlapping(left: int, right: int) -> list[tuple[int, int]]:
    """Ranges of slots (from, before) that contain every slot with a part of the period."""
    first, last = max(left, _FIRST), min(right, _LAST)
    levels = (_DAYS, _MONTHS, _YEARS)
    return [*((_code(level, _floor(level, first)), _code(level, last) + 1) for level in levels), (EVER, EVER + 1)]


def starts_at(slot: int) -> int:
    """The start of the slot (microseconds since 1970)."""
    return slot % _LEVEL * _SECOND


def _covered(level: int, left: int, right: int) -> list[tuple[int, int]]:
    if left >= right:
        return []
    first, last = _ceiling(level, left), _floor(level, right)
    finer = _FINER.get(level)
    if first >= last:
        return [] if finer is None else _covered(finer, left, right)
    edges = [] if finer is None else [*_covered(finer, left, first), *_covered(finer, last, right)]
    return [(_code(level, first), _code(level, last)), *edges]


def _code(level: int, start: int) -> int:
    return level * _LEVEL + start // _SECOND


def _floor(level: int, micros: int) -> int:
    if level == _DAYS:
        return micros // DAY * DAY
    year, month = _month(micros)
    return _starts(year, month if level == _MONTHS else 1)


def _ceiling(level: int, micros: int) -> int:
    floor = _floor(level, micros)
    if floor == micros:
        return micros
    if level == _DAYS:
        return floor + DAY
    year, month = _month(floor)
    return _starts(year + 1, 1) if level == _YEARS or month == 12 else _starts(year, month + 1)


def _month(micros: int) -> tuple[int, int]:
    at = datetime.fromtimestamp(micros // _SECOND, UTC)
    return at.year, at.month


def _starts(year: int, month: int) -> int:
    return to_micros(datetime(year, month, 1, tzinfo=UTC))
