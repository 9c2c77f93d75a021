"""`gpubroker capacity cancel | return | sell`: returning or selling what was bought."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from broker.cli.capacity.purchase_options import (
    AtMost,
    DryRun,
    Least,
    PurchaseId,
    Stop,
    Yes,
    add,
    confirm_undo,
    needs_terminal,
)
from broker.cli.options import AsJson
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

if TYPE_CHECKING:
    from broker.core.purchases.purchases import Purchase


def register(app: typer.Typer) -> None:
    """Add the commands to `gpubroker capacity`."""
    add(app, cancel, return_, sell)


def cancel(
    context: typer.Context,
    id: PurchaseId,
    at_most: AtMost = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Cancel a purchase at its provider: a reservation, or a plan that has not begun.

    Shows the terms and asks for confirmation; without a terminal, add --yes. The provider may charge for it: --dry-run
    shows how much, --at-most accepts it. The buyer, an approver of it or an administrator may do so. The rest of its
    money is released.
    """
    _undo(Terminal.of(context), id, at_most, yes=yes, dry_run=dry_run)


def return_(
    context: typer.Context,
    id: PurchaseId,
    at_most: AtMost = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Return a purchase to its provider, as long as it takes it back: a savings plan.

    What was paid upfront is given back to the budget. The same as `capacity cancel`.
    """
    _undo(Terminal.of(context), id, at_most, yes=yes, dry_run=dry_run)


def sell(
    context: typer.Context,
    id: PurchaseId,
    least: Least = None,
    stop: Stop = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Sell a purchase on its provider's resale market: a block at SF Compute, a standard reserved instance at AWS.

    Jobs leave what is for sale, and none starts in it. The money returns to the budget of the month of the sale.
    Other providers have no such market; the refusal names the alternative.
    """
    from broker.app.capacity import selling
    from broker.app.results.purchases import ResaleTermsResult
    from broker.cli import filters
    from broker.cli.capacity import purchases_view

    terminal = Terminal.of(context)
    if dry_run:
        terms = selling.resale_terms(terminal.broker(), id)
        terminal.result(lambda: ResaleTermsResult.of(id, terms), lambda: purchases_view.resale(id, terms))
    elif stop:
        show_purchase(terminal, selling.end_sale(terminal.broker(), id, by=terminal.actor))
    elif least is None:
        raise InvalidInput("the price is missing", where="--least", hint=f"gpubroker capacity sell {id} --dry-run")
    else:
        price = filters.price("--least", least)
        show_purchase(terminal, selling.sell(terminal.broker(), id, least=price, by=terminal.actor))


def show_purchase(terminal: Terminal, purchase: Purchase) -> None:
    """Print a purchase as it is now."""
    from broker.app.results.purchases import PurchaseResult
    from broker.cli.capacity import purchases_view

    terminal.result(lambda: PurchaseResult.of(purchase), lambda: purchases_view.purchase(purchase))


def _undo(terminal: Terminal, id: str, at_most: str | None, *, yes: bool, dry_run: bool) -> None:
    from broker.app.capacity import undoing
    from broker.app.results.purchases import UndoTermsResult
    from broker.cli import filters
    from broker.cli.capacity import purchases_view
    from broker.core.values.money import Money

    if dry_run:
        terms = undoing.undo_terms(terminal.broker(), id)
        terminal.result(lambda: UndoTermsResult.of(id, terms), lambda: purchases_view.terms(id, terms))
        return
    most = Money.ZERO if at_most is None else filters.price("--at-most", at_most)
    if not yes:
        terms = undoing.undo_terms(terminal.broker(), id)
        needs_terminal(terminal)
        terminal.show(*purchases_view.terms(id, terms)[:1])
        if terms.charge <= most:  # otherwise `undo` refuses
            confirm_undo(terminal, id)
    show_purchase(terminal, undoing.undo(terminal.broker(), id, by=terminal.actor, at_most=most))
