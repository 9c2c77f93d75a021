"""`gpubroker prices book`: the price book, and what moved since its pages were read."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

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
    from broker.app.results.book import BookReport
    from broker.app.results.prices import PollOutcome
    from broker.cli.prices.book_view import table
    from broker.cli.prices.poll import progress
    from broker.cli.prices.status_view import outcome

    terminal = Terminal.of(context)
    broker = terminal.broker()
    if poll:
        names = tuple(name for name in providers_to_poll(broker) if name not in broker.registries.local_providers)
        with progress(terminal, broker, names) as watch:
            results = list(poll_now(broker, names, watch=watch))
        for result in results:
            terminal.say(*outcome(PollOutcome.of(result)))
    found = BookReport.of(check_book(broker))
    terminal.result(found, lambda: table(terminal.out, found, every=every))
