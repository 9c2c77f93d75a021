"""Documents of a team server as tables: the fields to show, and their form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import typer

from broker.cli.render import formats
from broker.cli.render import tables as render
from broker.cli.render.tables import ValueColumn
from broker.cli.terminal import Terminal
from broker.core.values.money import Money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Document = Mapping[str, Any]
# Fields whose values are codes, which are shown as words. Names and ids are shown unchanged.
_CODES = {
    *("action", "answer", "capacity_type", "cause", "effect", "kind", "outcome", "product", "state", "status", "way"),
    *("after", "before", "undo"),
}


def words(code: object) -> str:
    """A code as words: ``paused_budget`` becomes ``paused budget``."""
    return str(code).replace("_", " ")


def usd(text: object) -> str:
    """An amount of a document, rounded for people; a dash for an unknown one."""
    return formats.NOTHING if text is None else formats.money(Money.usd(str(text)))


def hourly(text: object) -> str:
    """An hourly price of a document."""
    return formats.rate(None if text is None else Money.usd(str(text)))


def when(text: str | None) -> datetime | None:
    """A time of a document (UTC)."""
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


DocumentColumn = ValueColumn[Document]


def text(key: str, title: str = "", rank: int = 0, *, folds: bool = False) -> DocumentColumn:
    """The text of a field; lists are joined, null is empty."""

    def value(row: Document) -> str:
        found = row[key]
        if isinstance(found, list):
            return ", ".join(map(str, found))
        return "" if found is None else words(found) if key in _CODES and found.islower() else str(found)

    return DocumentColumn(title or words(key), value, rank, folds=folds)


def money(key: str, title: str = "", rank: int = 0) -> DocumentColumn:
    """An amount (USD); a dash where it is unknown."""
    return DocumentColumn(title or words(key), lambda row: usd(row[key]), rank, "right")


def price(key: str, title: str = "", rank: int = 0) -> DocumentColumn:
    """An hourly price (USD)."""
    return DocumentColumn(title or words(key), lambda row: hourly(row[key]), rank, "right")


def number(key: str, title: str = "", rank: int = 0, form: str = ",") -> DocumentColumn:
    """A figure; a dash where it is unknown."""

    def value(row: Document) -> str:
        return formats.NOTHING if row[key] is None else format(row[key], form)

    return DocumentColumn(title or words(key), value, rank, "right")


def share(key: str, title: str = "", rank: int = 0) -> DocumentColumn:
    """A fraction, shown in percent."""
    return number(key, title, rank, ".0%")


def time(key: str, title: str = "", rank: int = 0) -> DocumentColumn:
    """A time (UTC)."""
    return DocumentColumn(title or words(key), lambda row: formats.moment(when(row[key])), rank)


def table(
    console: Console, columns: Sequence[DocumentColumn], rows: Iterable[Document], none: str, *footer: str
) -> list[RenderableType]:
    """One line per row; ``none`` instead if there are none."""
    found = list(rows)
    return render.listed(console, columns, found, *footer) if found else [none]


def listed(
    context: typer.Context, found: Document, key: str, columns: Sequence[DocumentColumn], none: str, *footer: str
) -> None:
    """Print the document with --json, else one line per row of its list ``key``; ``none`` instead if there are none."""
    terminal = Terminal.of(context)
    terminal.result(found, lambda: table(terminal.out, columns, found[key], none, *footer))


def facts(columns: Sequence[DocumentColumn], row: Document) -> list[str]:
    """One line per field of a document."""
    width = max(len(column.title) for column in columns)
    return [f"{column.title:<{width}}  {column.value(row)}" for column in columns]
