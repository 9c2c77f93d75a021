"""Tables that stay readable: on a narrow terminal the columns that matter least are left out, and it is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.padding import Padding
    from rich.segment import Segment
    from rich.table import Table
    from rich.text import Text


_GAP = 2  # between columns
_FOLDED = 24  # the least width of a column that folds


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
    cells = [list(row) for row in rows]
    widths = [_width(column, [row[i] for row in cells]) for i, column in enumerate(columns)]
    used = [i for i, column in enumerate(columns) if not column.rank or any(str(row[i]) for row in cells)]
    shown = [i for i in used if not columns[i].rank]
    for i in sorted(used, key=lambda i: (columns[i].rank, i)):
        tried = shown if i in shown else sorted([*shown, i])
        if sum(widths[j] for j in tried) + _GAP * (len(tried) - 1) <= console.width:
            shown = tried
    table = _table([columns[i] for i in shown], [[row[i] for i in shown] for row in cells])
    return table, [columns[i].title for i in used if i not in shown]


def _width(column: Column, cells: Sequence[str | Text]) -> int:
    """What the column needs: all of every cell, or where it may fold, room for a few words."""
    from rich.cells import cell_len

    widest = max((cell_len(str(cell)) for cell in (column.title, *cells)), default=0)
    return min(widest, _FOLDED) if column.folds else widest


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
        )
    for row in rows:
        table.add_row(*row)
    return table


def hanging(text: Text, indent: int) -> Padding:
    """A paragraph that stands ``indent`` columns to the right, all lines of it."""
    from rich.padding import Padding

    return Padding(text, (0, 0, 0, indent), expand=False)


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The same without the blanks that tables and paragraphs are filled up with to their right: in a file they make
    every line as long as the longest, and on a terminal they wrap when the window gets narrower."""

    part: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for line in console.render_lines(self.part, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                *first, last = line
                yield from (*first, Segment(last.text.rstrip(), last.style))
            yield Segment.line()


def left_out(hidden: Sequence[str]) -> str:
    """The sentence about columns that had no room; empty when there are none."""
    return f"left out for want of width: {', '.join(hidden)}" if hidden else ""
