"""The price book beside live prices, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from broker.app.results.book import BookReport, BookRowResult
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def table(console: Console, found: BookReport, *, every: bool) -> Iterator[RenderableType]:
    """One row for each price that moved, or for ``every`` one, and how many there are."""

    def change(one: BookRowResult) -> Text:
        return Text("" if one.change is None else f"{one.change:+.1%}", style="red" if one.moved else "")

    columns: tuple[ValueColumn[BookRowResult], ...] = (
        ValueColumn("provider", lambda one: one.provider),
        ValueColumn("region", lambda one: one.region, 4),
        ValueColumn("machine type", lambda one: one.instance_type, 5),
        ValueColumn("GPU", lambda one: one.machine),
        ValueColumn("purchase type", lambda one: formats.purchase_type(one.capacity_type, one.term_months)),
        ValueColumn("book", lambda one: formats.rate(one.price_per_hour), align="right"),
        ValueColumn("read", lambda one: one.page_date.isoformat(), 2),
        ValueColumn(
            "live",
            lambda one: "unknown" if one.live_as_of is None else formats.rate(one.live_price_per_hour),
            align="right",
        ),
        ValueColumn("age", lambda one: formats.age(found.as_of - one.live_as_of) if one.live_as_of else "", 3),
        ValueColumn("change", change, 1, "right"),
        ValueColumn("page", lambda one: one.url, 9),
    )
    if shown := [row for row in found.rows if every or row.moved]:
        yield from listed(console, columns, shown)
    counted = formats.plural(len(found.rows), "row")
    counts = f"{counted} in the book, {found.compared} with a live price, {found.moved} moved by 2 % or more"
    yield Text(counts, style="dim")
    if not found.compared:
        yield Text("no live prices to compare with: add --poll", style="dim")
