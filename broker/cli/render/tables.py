"""Tables that fit: on a narrow terminal the least important columns are hidden, and the footer names them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from broker.agent import names

T = TypeVar("T", contravariant=True)
_GAP = 2  # between columns
_MIN_FOLDED_WIDTH = 24  # the minimum width of a column that folds
_MAX_WORD_WIDTH = 48  # longer words are broken
_MIN_CUT_WIDTH = 8  # the minimum width of cut text
_HANGING = re.compile(r" *(?:\S+(?: \S+)*?  +)?")  # blanks, or a first column such as "  4m 32s  "
_MAX_HANGING = 12  # columns


@dataclass(frozen=True, slots=True)
class Column:
    """``rank``: columns with the highest rank are hidden first; a column with rank 0 is always shown. ``folds``: cells
    may wrap onto several lines."""

    title: str
    rank: int = 0
    align: Literal["left", "right"] = "left"
    folds: bool = False


@dataclass(frozen=True)  # not with slots: Python 3.11 cannot make a `ValueColumn[X]` of them
class ValueColumn(Generic[T]):
    """A column with its ``value`` of a row; the rest as in `Column`."""

    title: str
    value: Callable[[T], str | Text]
    rank: int = 0
    align: Literal["left", "right"] = "left"
    folds: bool = False


def table_parts(
    console: Console, columns: Sequence[ValueColumn[T]], rows: Iterable[T], *footer: str
) -> list[RenderableType]:
    """One line per row, the same as `build_table`, in a list, to be combined with other output."""
    return [build_table(console, columns, rows, *footer)]


def build_table(console: Console, columns: Sequence[ValueColumn[T]], rows: Iterable[T], *footer: str) -> FittedTable:
    """One line per row, as `build_cell_table` makes it."""
    titles = [Column(column.title, column.rank, column.align, column.folds) for column in columns]
    return build_cell_table(console, titles, [[column.value(row) for column in columns] for row in rows], *footer)


@dataclass(frozen=True, slots=True)
class FittedTable:
    """A table, and below it one dimmed line: ``footer``, and the titles of the ``hidden`` columns."""

    table: Table
    hidden: Sequence[str]
    footer: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield self.table
        hidden = [f"hidden columns: {', '.join(self.hidden)}"] if self.hidden else []
        if line := "; ".join(filter(None, [*self.footer, *hidden])):
            yield Text(line, style="dim")


def build_cell_table(
    console: Console, columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], *footer: str
) -> FittedTable:
    """The table with as many columns as fit; its last line names the hidden ones. Columns (rank above 0) that are empty
    in every row are omitted and not named."""
    cells = [[names.escape_unprintable(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    widths = [_width(column, [row[i] for row in cells]) for i, column in enumerate(columns)]
    used_indexes = [i for i, column in enumerate(columns) if not column.rank or any(str(row[i]) for row in cells)]
    shown_indexes = [i for i in used_indexes if not columns[i].rank]
    for i in sorted(used_indexes, key=lambda i: (columns[i].rank, i)):
        candidate = shown_indexes if i in shown_indexes else sorted([*shown_indexes, i])
        if sum(widths[j] for j in candidate) + _GAP * (len(candidate) - 1) <= console.width:
            shown_indexes = candidate
    kept_columns = [columns[i] for i in shown_indexes]
    max_widths = _cut_widths(kept_columns, [widths[i] for i in shown_indexes], console.width)
    table = _rich_table(kept_columns, max_widths, [[row[i] for i in shown_indexes] for row in cells])
    return FittedTable(table, [columns[i].title for i in used_indexes if i not in shown_indexes], footer)


def cell_table_parts(
    console: Console, columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], *footer: str
) -> list[RenderableType]:
    """The table of `build_cell_table` as a list, for a screen of several parts."""
    return [build_cell_table(console, columns, rows, *footer)]


def _width(column: Column, cells: Sequence[str | Text]) -> int:
    """The width that the column needs: its widest cell; if it folds, a few words or its longest one, such as an id."""
    texts = [str(cell) for cell in (column.title, *cells)]
    widest = max(map(cell_len, texts))
    if not column.folds:
        return widest
    longest_word = max((cell_len(word) for text in texts for word in text.split()), default=0)
    return min(widest, max(_MIN_FOLDED_WIDTH, min(longest_word, _MAX_WORD_WIDTH)))


def _cut_widths(columns: Sequence[Column], widths: Sequence[int], available_width: int) -> list[int | None]:
    """The widths to which columns are cut if even those with rank 0 do not fit; None: not cut. The widest texts are
    cut, never figures, which would change their value."""
    cut_widths = list(widths)
    for _ in range(sum(widths) + _GAP * (len(widths) - 1) - available_width):
        cuttable = [i for i, column in enumerate(columns) if column.align == "left" and cut_widths[i] > _MIN_CUT_WIDTH]
        if cuttable:
            cut_widths[max(cuttable, key=cut_widths.__getitem__)] -= 1
    return [current if current < original else None for current, original in zip(cut_widths, widths, strict=True)]


def _rich_table(
    columns: Sequence[Column], max_widths: Sequence[int | None], rows: Sequence[Sequence[str | Text]]
) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", collapse_padding=True)
    for column, width in zip(columns, max_widths, strict=True):
        overflow: Literal["fold", "ellipsis"] = "fold" if column.folds else "ellipsis"
        table.add_column(
            column.title, justify=column.align, no_wrap=not column.folds, overflow=overflow, max_width=width
        )
    for row in rows:
        table.add_row(*row)
    return table


def hanging(text: str | Text, console: Console) -> Text:
    """The text in lines that fit. Further lines of a paragraph begin below its first words, not its number or time."""
    lines = []
    for paragraph in (Text(text) if isinstance(text, str) else text).split("\n", allow_blank=True):
        match = _HANGING.match(paragraph.plain)
        indent = match.end() if match and match.end() <= _MAX_HANGING else 0
        indent = indent or len(paragraph.plain) - len(paragraph.plain.lstrip(" "))
        wrapped = paragraph[indent:].wrap(console, max(console.width - indent, _MIN_FOLDED_WIDTH))
        for line in wrapped:
            line.rstrip()
        lines.append(paragraph[:indent].append_text(Text("\n" + " " * indent).join(wrapped)))
    return Text("\n").join(lines)


def indent_text(text: Text, indent: int) -> Padding:
    """A paragraph with every line indented by ``indent`` columns."""
    return Padding(text, (0, 0, 0, indent), expand=False)


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The part without trailing blanks. In a file such blanks make every line as long as the longest; on a terminal
    they wrap when the window becomes narrower."""

    part: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for line in console.render_lines(self.part, options, pad=False):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                *first, last = line
                yield from (*first, Segment(last.text.rstrip(), last.style))
            yield Segment.line()
