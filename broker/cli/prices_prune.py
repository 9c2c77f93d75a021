"""`gpubroker prices prune`: forgetting old history."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples("gpubroker prices prune --keep 400d --dry-run", "gpubroker prices prune --keep 400d")


def prune(
    context: typer.Context,
    keep: Annotated[str, typer.Option(metavar="TIME", help="How much history to keep: 400d, or at least 1d.")] = "400d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget price changes and polls that are older than that.

    What is in force at the cut-off stays, and so does every price that a launched attempt refers to.
    """
    from datetime import timedelta

    from broker.cli import words
    from broker.core.errors import InvalidInput
    from broker.core.units import parse_duration

    try:
        kept = parse_duration(keep)
    except ValueError as error:
        raise InvalidInput(str(error), where="--keep") from error
    if kept < timedelta(days=1):
        raise InvalidInput(f"{keep} is too little to plan with: keep 1d or more", where="--keep")
    terminal = Terminal.of(context)
    broker = terminal.broker()
    before = broker.clock.now() - kept
    done = broker.store.market.prune(before, dry_run=dry_run)
    if as_json:
        terminal.answer(
            {
                "before": before,
                "dry_run": dry_run,
                "price_changes": done.prices,
                "signal_changes": done.signals,
                "poll_runs": done.polls,
                "protected": done.protected,
            }
        )
        return
    counts = ", ".join(
        (
            words.plural(done.prices, "price change"),
            words.plural(done.signals, "change of scores and rates", "changes of scores and rates"),
            words.plural(done.polls, "poll"),
        )
    )
    terminal.show(f"{'Would forget' if dry_run else 'Forgot'} from before {words.moment(before)}: {counts}.")
    if done.protected:
        changes = words.plural(done.protected, "older price change")
        terminal.show(f"{changes} stay{'s' if done.protected == 1 else ''}: launched attempts refer to them.")
