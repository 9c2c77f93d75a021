"""`gpubroker prices book`: the price book, and what moved since its pages were read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.text import Text

    from broker.app.market.book import BookRow

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
    from rich.text import Text

    from broker.app.market.book import check_book
    from broker.app.market.polling import poll_now, providers_to_poll
    from broker.cli.prices.poll import outcome, progress
    from broker.cli.render import formats

    terminal = Terminal.of(context)
    broker = terminal.broker()
    if poll:
        names = tuple(name for name in providers_to_poll(broker) if name not in broker.registries.local_providers)
        with progress(terminal, broker, names) as watch:
            results = list(poll_now(broker, names, watch=watch))
        for result in results:
            terminal.say(*outcome(result))
    check = check_book(broker)
    if as_json:
        from broker.app.results.book import BookReport

        terminal.answer(BookReport.of(check))
        return
    shown = [row for row in check.rows if every or row.moved]
    if shown:
        from broker.cli.render.tables import Column, fitting

        columns = (
            Column("provider"), Column("region", 4), Column("machine type", 5), Column("GPU"), Column("purchase type"),
            Column("book", align="right"), Column("read", 2), Column("live", align="right"), Column("age", 3),
            Column("change", 1, align="right"), Column("page", 9),
        )  # fmt: skip
        terminal.show(fitting(terminal.out, columns, [_cells(row, check.now) for row in shown]))
    compared = sum(row.change is not None for row in check.rows)
    moved = sum(row.moved for row in check.rows)
    counted = formats.plural(len(check.rows), "row")
    words = f"{counted} in the book, {compared} with a live price, {moved} moved by 2 % or more"
    more = [] if compared else ["no live prices to compare with: add --poll"]
    terminal.show(*(Text(line, style="dim") for line in [words, *more]))


def _cells(row: BookRow, now: object) -> list[str | Text]:
    from datetime import datetime

    from rich.text import Text

    from broker.cli.render import formats

    assert isinstance(now, datetime)
    offer, live = row.offer, row.live
    return [
        offer.provider,
        offer.region,
        offer.instance_type,
        offer.machine,
        formats.purchase_type(offer.capacity_type, offer.term_months),
        formats.rate(offer.price),
        row.page.day.isoformat(),
        formats.rate(live.price) if live else "unknown",
        formats.age(now - live.as_of) if live else "",
        "" if row.change is None else Text(f"{row.change:+.1%}", style="red" if row.moved else ""),
        row.page.url,
    ]
