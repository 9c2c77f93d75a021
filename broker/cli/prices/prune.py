"""`gpubroker prices prune`: delete old price history."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli import filters
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples("gpubroker prices prune --keep 400d --dry-run", "gpubroker prices prune --keep 400d")


def prune(
    context: typer.Context,
    keep: Annotated[str, typer.Option(metavar="TIME", help="History to keep: 1d or more.")] = "400d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete price changes and polls older than --keep.

    Prices in force at the cut-off time are kept, and so is every price that a launched attempt refers to.
    """
    from datetime import timedelta

    from broker.cli.render import formats
    from broker.core.errors import InvalidInput

    kept = filters.time_span("--keep", keep)
    if kept < timedelta(days=1):
        raise InvalidInput(f"expected 1d or more, because planning needs some history; got {keep}", where="--keep")
    terminal = Terminal.of(context)
    broker = terminal.broker()
    before = broker.clock.now() - kept
    done = broker.store.market.prune(before, dry_run=dry_run)
    if as_json:
        from broker.app.results.price_history import PrunedPriceHistory

        terminal.answer(PrunedPriceHistory.of(done, before, dry_run=dry_run))
        return
    counts = ", ".join(
        (
            formats.plural(done.prices, "price change"),
            formats.plural(done.signals, "score or rate change"),
            formats.plural(done.polls, "poll"),
        )
    )
    terminal.show(f"{'Would delete' if dry_run else 'Deleted'}, older than {formats.moment(before)}: {counts}.")
    if done.protected:
        changes = formats.plural(done.protected, "older price change")
        terminal.show(f"{changes} kept because launched attempts refer to them.")
