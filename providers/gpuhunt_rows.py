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
    """JSON that was answered, by call; ``asked``: calls that were made, answered or not; ``replaying``: calls are
    answered from the kept answers; only calls that the module had not made before its failure are sent."""

    bodies: dict[str, Any] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    replaying: bool = False


@dataclass(frozen=True, slots=True)
class Replayed:
    """A kept answer, with the attributes that gpuhunt's modules use."""

    body: Any
    ok: bool = True
    status_code: int = 200

    def json(self) -> Any:
        return copy.deepcopy(self.body)  # modules modify the answers that they read

    def raise_for_status(self) -> None:
        """Does nothing: the kept answer was a success."""


def row_by_row(kept: KeptAnswers, get: Callable[[], list[Any]]) -> tuple[list[Any], list[str]]:
    """The result of ``get`` for each row alone, and a line for each row on which it fails; nothing if no list of rows
    is found or none of its rows is readable. An item may come more than once."""
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


def left_out(kept: KeptAnswers, get: Callable[[], list[Any]], heard: list[str], names: tuple[str, ...]) -> list[str]:
    """A line for each row of the kept answers that ``get`` ignores without a warning or an error.

    ``names``: the keys of the lists of rows; an answer that is a list is one, too. ``heard``: where warnings arrive.
    """
    lists = list(_named(list(kept.bodies.values()), names))
    lines = [] if lists or not names else [f"no list called {' or '.join(names)} in the answer"]
    kept.replaying = True
    try:
        for rows in lists:
            every = list(rows)
            try:
                rows[:] = []
                without = _number(get)
                if without is None or len(every) > _MOST_ROWS:
                    continue
                for number, row in enumerate(every, start=1):
                    rows[:], before = [row], len(heard)
                    if _number(get) == without and len(heard) == before:
                        lines.append(f"ignored: {_label(row, number)}")
            finally:
                rows[:] = every
    finally:
        kept.replaying = False
    return lines


def _number(get: Callable[[], list[Any]]) -> int | None:
    """The number of items of ``get``; None if it fails."""
    try:
        return len(get())
    except Exception:  # noqa: BLE001  # gpuhunt may raise any exception; the row is reported elsewhere
        return None


def _label(row: object, number: int) -> str:
    keys = ("id", "name", "slug", "product_name", "gpu_type", "type")
    found = next((row[key] for key in keys if isinstance(row, dict) and isinstance(row.get(key), str)), "")
    return f"row {number}, {found}" if found else f"row {number}"


def _named(value: Any, names: tuple[str, ...], depth: int = 0) -> Iterator[list[Any]]:
    """The lists under these keys, and answers that are lists themselves."""
    if depth > _DEEPEST:
        return
    for key, part in enumerate(value) if isinstance(value, list) else value.items():
        if isinstance(part, list) and (key in names or (depth == 0 and not names)):
            yield part
        elif isinstance(part, dict | list):
            yield from _named(part, names, depth + 1)


def _lists(value: Any, depth: int = 0) -> Iterator[list[Any]]:
    """The lists of two or more objects, at any depth."""
    if depth > _DEEPEST:
        return
    if isinstance(value, list) and depth and sum(isinstance(row, dict) for row in value) > 1:
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inner:
        yield from _lists(part, depth + 1)
