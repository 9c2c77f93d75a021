"""Recovers the other rows of an answer if gpuhunt's module cannot parse one of them.

A module parses an answer as a whole, so one invalid value loses all rows. So the cloud's answers are kept, and if the
module fails, it parses each row alone from the kept answers, without new requests. Unreadable rows are left out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_MOST_ROWS = 5_000
_DEEPEST = 6


@dataclass(slots=True)
class KeptAnswers:
    """JSON that was answered, by call; ``replaying``: calls are answered from it, and nobody is asked."""

    bodies: dict[str, Any] = field(default_factory=dict)
    replaying: bool = False


@dataclass(frozen=True, slots=True)
class Replayed:
    """An answer out of what is kept, as far as gpuhunt's modules look at one."""

    body: Any
    ok: bool = True
    status_code: int = 200

    def json(self) -> Any:
        return copy.deepcopy(self.body)  # modules write into what they read

    def raise_for_status(self) -> None:
        """It was a success."""


def row_by_row(kept: KeptAnswers, get: Callable[[], list[Any]]) -> tuple[list[Any], list[str]]:
    """What ``get`` gives for each row alone, and a line for each row that it fails for; nothing where no list of rows
    can be told or none of its rows is readable. An item may come more than once."""
    kept.replaying = True
    try:
        for rows in sorted(_lists(list(kept.bodies.values())), key=len, reverse=True):
            if len(rows) > _MOST_ROWS:
                continue
            items, lost = _each(rows, get)
            if items:
                return items, lost
    finally:
        kept.replaying = False
    return [], []


def _each(rows: list[Any], get: Callable[[], list[Any]]) -> tuple[list[Any], list[str]]:
    every, items, lost = list(rows), [], []
    try:
        for number, row in enumerate(every, start=1):
            rows[:] = [row]
            try:
                items += get()
            except Exception as error:  # noqa: BLE001  # gpuhunt raises whatever it runs into
                lost.append(f"row {number}: {type(error).__name__}: {error}")
    finally:
        rows[:] = every
    return items, lost


def _lists(value: Any, depth: int = 0) -> Iterator[list[Any]]:
    """The lists of two objects or more, wherever they are."""
    if depth > _DEEPEST:
        return
    if isinstance(value, list) and depth and sum(isinstance(row, dict) for row in value) > 1:
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inner:
        yield from _lists(part, depth + 1)
