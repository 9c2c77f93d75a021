"""Tables that stay readable: on a narrow terminal the columns that matter least are left out, and it is said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


@dataclass(frozen=True, slots=True)
class Column:
    """``rank``: the higher, the sooner it is left out where there is no room; 0 stays. ``folds``: a cell may take
    several lines."""

    title: str
    rank: int = 0
    align: Literal["left", "right"] = "left"
    folds: bool = False


def fitting(
    console: Console, columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]
) -> tuple[Table, list[str]]:
    """The table with as many columns as fit, and the titles of those left out. Columns that are empty in every row are
    left out without a word."""
    from rich.measure import Measurement

    kept = [list(row) for row in rows]
    full = [i for i, column in enumerate(columns) if not column.rank or any(str(row[i]) for row in kept)]
    hidden: list[str] = []
    while True:
        table = _table([columns[i] for i in full], [[row[i] for i in full] for row in kept])
        droppable = [i for i in full if columns[i].rank]
        needed = Measurement.get(console, console.options, table).minimum
        if not droppable or needed <= console.width:
            return table, hidden
        least = max(droppable, key=lambda i: (columns[i].rank, i))
        full.remove(least)
        hidden.append(columns[least].title)


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", collapse_padding=True)
    for column in columns:
        table.add_column(
            column.title,
            justify=column.align,
            no_wrap=not column.folds,
            overflow="fold",
            min_width=20 if column.folds else None,
        )
    for row in rows:
        table.add_row(*row)
    return table


def left_out(hidden: Sequence[str]) -> str:
    """The sentence about columns that had no room; empty when there are none."""
    return f"left out for want of width: {', '.join(hidden)}" if hidden else ""
