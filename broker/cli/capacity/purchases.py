"""`gpubroker capacity quote | buy | purchases | show | approve | reject | order | withdraw`: buying capacity."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.capacity import propose, review, undo
from broker.cli.capacity.purchase_options import (
    Binding,
    Ceiling,
    DryRun,
    NothingBought,
    PayerOptions,
    PurchaseId,
    QuoteOptions,
    WithClosed,
    add,
)
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, Reason
from broker.cli.terminal import Terminal
from broker.core.errors import AskAPerson, InvalidInput, RetryLater

if TYPE_CHECKING:
    from broker.core.purchases.purchases import Purchase


def register(app: typer.Typer) -> None:
    """Add the commands to `gpubroker capacity`."""
    from_plan = "buy --from-plan proposal.json --line 2 --team nlp"
    add(app, quote, buy, purchases, show, approve, reject, order, withdraw, more=(from_plan,))
    undo.register(app)
    propose.register(app)
    review.register(app)


@gathered
def quote(context: typer.Context, given: QuoteOptions, as_json: AsJson = False) -> None:
    """Ask providers for capacity on sale, with its price. Buys nothing.

    A quote can be bought by its number within an hour. AWS sells capacity blocks (1 to 14 days, or 3 to 26 weeks) and
    extensions of them; reservations from now on, and from 5 to 120 days ahead on; savings plans and reserved instances
    (1 or 3 years).
    """
    from broker.app.capacity import purchases as use_case
    from broker.app.capacity.wanted import wanted_machine, wanted_products
    from broker.app.results.purchases import QuoteList
    from broker.cli import filters
    from broker.cli.capacity import purchases_view
    from broker.cli.capacity.terms import length
    from broker.core.purchases.quotes import QuoteRequest

    terminal = Terminal.of(context)
    broker = terminal.broker()
    now = broker.clock.now()
    instance_type, accelerator, count = wanted_machine(given.machine)
    request = QuoteRequest(
        machines=given.machines,
        instance_type=instance_type,
        accelerator=accelerator,
        count=count,
        length=length("--for", given.term),
        region=given.region,
        earliest=None if given.start is None else filters.moment_ahead("--since", given.start, now),
        latest=None if given.latest is None else filters.moment_ahead("--until", given.latest, now),
        products=wanted_products(one.value for one in given.product or ()),
        extends=given.extends,
    )
    quoted = use_case.quotes(broker, request, given.provider or ())
    terminal.result(lambda: QuoteList.of(quoted), lambda: purchases_view.quotes(terminal.out, quoted))


@gathered
def buy(
    context: typer.Context,
    payer: PayerOptions,
    number: Annotated[
        int | None, typer.Argument(metavar="QUOTE", min=1, help="Number in `gpubroker capacity quote`.")
    ] = None,
    from_plan: Annotated[
        Path | None, typer.Option("--from-plan", metavar="FILE", help="Document of `capacity propose --json`.")
    ] = None,
    line: Annotated[
        list[int] | None, typer.Option("--line", min=1, help="With --from-plan: its lines. Default: the best one.")
    ] = None,
    ceiling: Ceiling = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Request the purchase of a quote: hold its money and ask its approvers. It is ordered after their approval.

    A guardrail of kind `purchases` must allow it, and names the approvers. A purchase that cannot be undone needs two
    of them; buyers cannot approve their own purchase. Before the order the price is checked again: above the ceiling
    nothing is bought. Exits with 3 if a policy denies it, with --dry-run too.
    """
    from broker.app.capacity import purchases as use_case
    from broker.app.results.purchases import PurchaseList, PurchasePreviewResult
    from broker.cli import filters
    from broker.cli.capacity import purchases_view
    from broker.core.policy.policy import Answer

    terminal = Terminal.of(context)
    broker = terminal.broker()
    whose = {"team": payer.team, "project": payer.project, "environment": payer.environment}
    if (number is None) == (from_plan is None):
        hint = "gpubroker capacity quote --help"
        raise InvalidInput("give a quote's number or --from-plan", where="QUOTE", hint=hint)
    if from_plan is not None:
        if dry_run or ceiling is not None:
            given = "--dry-run" if dry_run else "--ceiling"
            raise InvalidInput("a proposal is bought for what it says", where=given, hint="leave it out")
        bought = propose.buy_from(terminal, from_plan, line or [], whose)
        shown = [text for one in bought for text in purchases_view.purchase(one)]
        terminal.result(lambda: PurchaseList.of(bought), lambda: shown)
        return
    assert number is not None
    wanted = broker.store.quote(number)
    most = None if ceiling is None else filters.price("--ceiling", ceiling)
    if not dry_run:
        undo.show_purchase(terminal, use_case.buy(broker, wanted, ceiling=most, by=terminal.actor, **whose))
        return
    seen = use_case.preview(broker, wanted, ceiling=most, by=terminal.actor, **whose)
    terminal.result(lambda: PurchasePreviewResult.of(seen), lambda: purchases_view.preview(seen))
    if seen.judgement.answer is Answer.DENY:
        raise typer.Exit(3)


def purchases(context: typer.Context, every: WithClosed = False, as_json: AsJson = False) -> None:
    """List purchases that wait for approval, were ordered, or are in force."""
    from broker.app.results.purchases import PurchaseList
    from broker.cli.capacity import purchases_view

    terminal = Terminal.of(context)
    found = terminal.broker().store.purchases(closed=every)
    text = partial(purchases_view.purchases, terminal.out, found, every=every)
    terminal.result(lambda: PurchaseList.of(found), text)


def show(context: typer.Context, id: PurchaseId, as_json: AsJson = False) -> None:
    """Show a purchase: capacity, price, approvals and events."""
    from broker.app.results.purchases import PurchaseHistory
    from broker.cli.capacity import purchases_view

    terminal = Terminal.of(context)
    store = terminal.broker().store
    found, events = store.purchase(id), store.purchase_events(id)
    terminal.result(lambda: PurchaseHistory.of(found, events), lambda: purchases_view.history(found, events))


def approve(context: typer.Context, id: PurchaseId, binding: Binding = None, as_json: AsJson = False) -> None:
    """Approve a purchase. The last approval orders it if this machine has a login to the provider."""
    from broker.app.capacity import purchases as use_case

    terminal = Terminal.of(context)
    approved = use_case.approve(terminal.broker(), id, by=terminal.actor, binding=binding)
    undo.show_purchase(terminal, _advanced(terminal, approved))


def reject(context: typer.Context, id: PurchaseId, reason: Reason = "", as_json: AsJson = False) -> None:
    """Refuse a purchase, as one of its approvers. Its money is released."""
    from broker.app.capacity import purchases as use_case

    terminal = Terminal.of(context)
    undo.show_purchase(terminal, use_case.reject(terminal.broker(), id, by=terminal.actor, because=reason))


def order(context: typer.Context, id: PurchaseId, as_json: AsJson = False) -> None:
    """Advance a purchase now: order it, confirm it, or search for its order. `gpubroker serve` does this automatically.

    The command can be repeated: a purchase is ordered at most once.
    """
    from broker.app.capacity.purchases import buyer

    terminal = Terminal.of(context)
    undo.show_purchase(terminal, buyer(terminal.broker()).advance(id))


def withdraw(
    context: typer.Context, id: PurchaseId, nothing_bought: NothingBought = False, as_json: AsJson = False
) -> None:
    """Withdraw a purchase that was not ordered yet. Its money is released."""
    from broker.app.capacity import purchases as use_case

    terminal = Terminal.of(context)
    taken = use_case.withdraw(terminal.broker(), id, by=terminal.actor, nothing_bought=nothing_bought)
    undo.show_purchase(terminal, taken)


def _advanced(terminal: Terminal, purchase: Purchase) -> Purchase:
    """Order the purchase after its last approval. If that is not possible now, print what will order it."""
    from rich.text import Text

    from broker.app.capacity.purchases import buyer

    try:
        return buyer(terminal.broker()).advance(purchase.id)
    except (AskAPerson, RetryLater) as error:
        hint = f"it is ordered by `gpubroker serve`, or by `gpubroker capacity order {purchase.id}` with a login"
        terminal.say(Text(f"not ordered yet: {error}; {hint}", style="yellow"))
        return terminal.broker().store.purchase(purchase.id)
