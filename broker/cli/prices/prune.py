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

    from broker.app.results.price_history import PrunedPriceHistory
    from broker.cli.render.formats import moment, plural
    from broker.core.errors import InvalidInput

    kept = filters.time_span("--keep", keep)
    if kept < timedelta(days=1):
        raise InvalidInput(f"expected 1d or more, because planning needs some history; got {keep}", where="--keep")
    terminal = Terminal.of(context)
    broker = terminal.broker()
    before = broker.clock.now() - kept
    done = PrunedPriceHistory.of(broker.store.market.prune(before, dry_run=dry_run), before, dry_run=dry_run)
    signals, polls = plural(done.signal_changes, "score or rate change"), plural(done.poll_runs, "poll")
    counts = f"{plural(done.price_changes, 'price change')}, {signals}, {polls}"
    said = [f"{'Would delete' if dry_run else 'Deleted'}, older than {moment(before)}: {counts}."]
    if done.protected:
        said.append(f"{plural(done.protected, 'older price change')} kept because launched attempts refer to them.")
    terminal.result(done, lambda: said)
