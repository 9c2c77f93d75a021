"""`gpubroker prices book`: the price book, and what moved since its pages were read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.market.book import BookReport, BookRow


EXAMPLES = examples("gpubroker prices book", "gpubroker prices book --poll", "gpubroker prices book --all --json")


def book(
    context: typer.Context,
    poll: Annotated[
        bool, typer.Option("--poll", help="Poll the providers first (aws without a login: hundreds of MB).")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Also rows that have not moved, and rows without a live price.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the price book with live prices: which rows moved by 2 % or more, and the page where to check each.

    The price book holds list prices that were copied by hand. A live price is the cheapest one of the same machine in
    the same region. Without --poll, known live prices are used, whatever their age.
    """
    from broker.app.market.book import check_book
    from broker.app.market.polling import poll_now, providers_to_poll
    from broker.app.results.prices import PollOutcome
    from broker.cli.prices.poll import progress
    from broker.cli.prices.status import outcome

    terminal = Terminal.of(context)
    broker = terminal.broker()
    if poll:
        names = tuple(name for name in providers_to_poll(broker) if name not in broker.registries.local_providers)
        with progress(terminal, broker, names) as watch:
            results = list(poll_now(broker, names, watch=watch))
        for result in results:
            terminal.say(*outcome(PollOutcome.of(result)))
    found = check_book(broker)
    terminal.result(found, lambda: table(terminal.out, found, every=every))


def table(console: Console, found: BookReport, *, every: bool) -> Iterator[RenderableType]:
    """One row for each price that moved, or for ``every`` one, and how many there are."""

    def change(one: BookRow) -> Text:
        return Text("" if one.change is None else f"{one.change:+.1%}", style="red" if one.moved else "")

    columns: tuple[ValueColumn[BookRow], ...] = (
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
