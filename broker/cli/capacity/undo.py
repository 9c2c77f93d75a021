"""`gpubroker capacity cancel | return`: undoing what was bought."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

_Id = Annotated[str, typer.Argument(metavar="PURCHASE", help="ID in `gpubroker capacity purchases`.")]
_AtMost = Annotated[
    str | None,
    typer.Option("--at-most", metavar="USD", help="Accept a charge of the provider up to this. Default: none."),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what it would cost; change nothing.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `gpubroker capacity`."""
    app.command(
        "cancel",
        epilog=examples(
            "gpubroker capacity cancel purchase-0123456789ab --dry-run",
            "gpubroker capacity cancel purchase-0123456789ab --at-most 960",
        ),
    )(cancel)
    app.command("return", epilog=examples("gpubroker capacity return purchase-0123456789ab"))(return_)


def cancel(
    context: typer.Context, id: _Id, at_most: _AtMost = None, dry_run: _DryRun = False, as_json: AsJson = False
) -> None:
    """Cancel a purchase at its provider: a reservation, or a plan that has not begun.

    The provider may charge for it: --dry-run shows how much, --at-most accepts it. The buyer, an approver of it or an
    administrator may do so. The rest of its money is released.
    """
    _undo(Terminal.of(context), id, at_most, dry_run=dry_run, as_json=as_json)


def return_(
    context: typer.Context, id: _Id, at_most: _AtMost = None, dry_run: _DryRun = False, as_json: AsJson = False
) -> None:
    """Return a purchase to its provider, as long as it takes it back: a savings plan.

    What was paid upfront is given back to the budget. The same as `capacity cancel`.
    """
    _undo(Terminal.of(context), id, at_most, dry_run=dry_run, as_json=as_json)


def _undo(terminal: Terminal, id: str, at_most: str | None, *, dry_run: bool, as_json: bool) -> None:
    from broker.app.capacity import undoing
    from broker.app.results.purchases import PurchaseResult, UndoTermsResult
    from broker.cli import filters
    from broker.cli.capacity import purchases_view
    from broker.core.values.money import Money

    if dry_run:
        terms = undoing.undo_terms(terminal.broker(), id)
        if as_json:
            terminal.answer(UndoTermsResult.of(id, terms))
        else:
            terminal.show(*purchases_view.terms(id, terms))
        return
    most = Money.ZERO if at_most is None else filters.price("--at-most", at_most)
    undone = undoing.undo(terminal.broker(), id, by=terminal.actor, at_most=most)
    if as_json:
        terminal.answer(PurchaseResult.of(undone))
    else:
        terminal.show(*purchases_view.purchase(undone))
