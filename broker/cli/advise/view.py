"""Advice as text: figures, tables, assumptions, and quoted rules of thumb compared with the arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.text import Text

from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, hanging, listed
from broker.economics.estimates import about

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.economics.claims import RuleCheck

NOTHING = formats.NOTHING
T = TypeVar("T")


def dollars(amount: float | None, places: int | None = None) -> str:
    """A price or a given amount in USD: ``$94,188``, ``$5.12``, ``$0.1626``. Smaller amounts have more decimals."""
    if amount is None:
        return NOTHING
    if places is None:
        size = abs(amount)
        places = 0 if size >= 1000 or amount == 0 else 2 if size >= 1 else 3 if size >= 0.1 else 4
    return f"{'-' if amount < 0 else ''}${abs(amount):,.{places}f}"


def estimate(amount: float | None) -> str:
    """An estimate in USD, with as many digits as its inputs justify: ``$94,200``, ``$5.12``, ``$0.163``."""
    return NOTHING if amount is None else about(amount)


def number(value: float | None, places: int = 1) -> str:
    return NOTHING if value is None else f"{value:,.{places}f}"


def share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1%}"


def big(value: float) -> str:
    """``7B``, ``1.5T``, ``350M``."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if value >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:g}"


def heading(text: str, more: str = "") -> Text:
    return Text.assemble((text, "bold"), more)


def figures(pairs: Iterable[tuple[str, str]]) -> Text:
    """Names and values in two columns."""
    rows = list(pairs)
    width = max((len(name) for name, _ in rows), default=0)
    text = Text()
    for index, (name, value) in enumerate(rows):
        text.append(f"{chr(10) if index else ''}  {name:<{width}}  ", style="dim")
        text.append(value)
    return text


def assumptions(notes: Iterable[str]) -> Iterator[RenderableType]:
    """The assumptions: values that were not given."""
    for index, note in enumerate(dict.fromkeys(notes)):
        if not index:
            yield heading("Assumptions")
        yield hanging(Text(f"· {note}"), 2)


def rules(checks: Iterable[RuleCheck]) -> Iterator[RenderableType]:
    """Quoted rules of thumb, each with the computed figures and whether it holds for them."""
    for index, check in enumerate(checks):
        if not index:
            yield heading("Rules of thumb")
        holds = ("holds", "green") if check.holds else ("does not hold here", "bold red")
        yield hanging(Text.assemble(f"· {check.rule}: ", holds, f"; {check.says}"), 2)


def best(
    console: Console, columns: Sequence[ValueColumn[T]], rows: Sequence[T], what: str, most: int = 12
) -> Iterator[RenderableType]:
    """The first ``most`` rows, and how many there are. ``what``: ``cheapest``."""
    yield from listed(console, columns, rows[:most])
    if len(rows) > most:
        yield heading("", f"the {what} {most} of {len(rows)} are shown; use --json for all")
