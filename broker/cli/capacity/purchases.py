"""`gpubroker capacity quote | buy | purchases | show | approve | reject | order | withdraw`: buying capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import completion
from broker.cli.capacity import propose, review, sell, undo
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, Reason, examples
from broker.cli.terminal import Terminal
from broker.core.errors import AskAPerson, InvalidInput, RetryLater

if TYPE_CHECKING:
    from broker.core.purchases.purchases import Purchase

PurchaseId = Annotated[str, typer.Argument(metavar="PURCHASE", help="ID in `gpubroker capacity purchases`.")]


class ProductKind(StrEnum):
    """The kinds of product, as the command line names them."""

    CAPACITY_BLOCK = "capacity-block"
    BLOCK_EXTENSION = "block-extension"
    CAPACITY_RESERVATION = "capacity-reservation"
    FUTURE_RESERVATION = "future-reservation"
    RESERVED_INSTANCES = "reserved-instances"
    SAVINGS_PLAN = "savings-plan"
    COMMITMENT = "commitment"
    PREPAID = "prepaid"
    ALL = "all"


def register(app: typer.Typer) -> None:
    """Add the commands to `gpubroker capacity`."""
    app.command(
        "quote",
        epilog=examples(
            "gpubroker capacity quote H100:8 --for 2d --provider aws --region us-east-1",
            "gpubroker capacity quote p5.48xlarge --machines 4 --for 7d --from 2026-12-01 --json",
            "gpubroker capacity quote H100:8 --for 1y --product savings-plan --product reserved-instances",
        ),
    )(quote)
    app.command(
        "buy",
        epilog=examples(
            "gpubroker capacity buy 3 --team nlp --dry-run",
            "gpubroker capacity buy 3 --team nlp --project llm --ceiling 4500",
            "gpubroker capacity buy --from-plan proposal.json --line 2 --team nlp",
        ),
    )(buy)
    app.command("purchases", epilog=examples("gpubroker capacity purchases", "gpubroker capacity purchases --all"))(
        purchases
    )
    app.command("show", epilog=examples("gpubroker capacity show purchase-0123456789ab"))(show)
    app.command("approve", epilog=examples("gpubroker capacity approve purchase-0123456789ab"))(approve)
    app.command("reject", epilog=examples("gpubroker capacity reject purchase-0123456789ab --reason 'spot is enough'"))(
        reject
    )
    app.command("order", epilog=examples("gpubroker capacity order purchase-0123456789ab"))(order)
    app.command("withdraw", epilog=examples("gpubroker capacity withdraw purchase-0123456789ab"))(withdraw)
    undo.register(app)
    sell.register(app)
    propose.register(app)
    review.register(app)


@dataclass(frozen=True)
class QuoteOptions:
    """The options of `quote`."""

    machine: Annotated[
        str, typer.Argument(metavar="GPU:COUNT|TYPE", help="Accelerators per machine (H100:8), or an instance type.")
    ]
    machines: Annotated[int, typer.Option("--machines", min=1, max=10_000, help="Number of machines.")] = 1
    term: Annotated[str, typer.Option("--for", metavar="TIME", help="Duration, such as 2d or 3w.")] = "1d"
    start: Annotated[
        str | None,
        typer.Option("--since", "--from", metavar="WHEN", help="Earliest start: 2026-12-01, or 3d (from now)."),
    ] = None
    latest: Annotated[
        str | None, typer.Option("--until", "--to", metavar="WHEN", help="Latest start: 2026-12-31, or 30d (from now).")
    ] = None
    provider: Annotated[
        list[str] | None,
        typer.Option("--provider", "-p", metavar="NAME", autocompletion=completion.providers, help="Repeatable."),
    ] = None
    region: Annotated[
        str | None,
        typer.Option(
            "--region", "-r", metavar="REGION", autocompletion=completion.regions, help="Default: every region."
        ),
    ] = None
    product: Annotated[
        list[ProductKind] | None,
        typer.Option("--product", help="Kind of product; repeatable. Default: capacity-block."),
    ] = None
    extends: Annotated[
        str,
        typer.Option(
            "--extends", metavar="ORDER", help="The provider's ID of the block to extend, or of the machine to prepay."
        ),
    ] = ""


@gathered
def quote(
    context: typer.Context,
    given: QuoteOptions,
    as_json: AsJson = False,
) -> None:
    """Ask providers for capacity on sale, with its price. Buys nothing.

    A quote can be bought by its number within an hour. AWS sells capacity blocks (1 to 14 days, or 3 to 26 weeks) and
    extensions of them; reservations from now on, and from 5 to 120 days ahead on; savings plans and reserved instances
    (1 or 3 years).
    """
    from broker.app.capacity import purchases as use_case
    from broker.app.capacity.wanted import wanted_machine, wanted_products
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
    if as_json:
        from broker.app.results.purchases import QuoteList

        terminal.answer(QuoteList.of(quoted))
    else:
        terminal.show(*purchases_view.quotes(terminal.out, quoted))


@dataclass(frozen=True)
class PayerOptions:
    """Who pays."""

    team: Annotated[str | None, typer.Option("--team", metavar="NAME", help="Team that pays.")] = None
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="Project that pays.")] = None
    environment: Annotated[str | None, typer.Option("--environment", metavar="NAME", help="Environment.")] = None


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
    ceiling: Annotated[
        str | None,
        typer.Option("--ceiling", metavar="USD", help="Maximum cost, which is held. Default: the quoted price."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the verdict and the money to be held; change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Request the purchase of a quote: hold its money and ask its approvers. It is ordered after their approval.

    A guardrail of kind `purchases` must allow it, and names the approvers. A purchase that cannot be undone needs two
    of them; nobody can approve their own purchase. Before the order the price is checked again: above the ceiling
    nothing is bought.
    """
    from broker.app.capacity import purchases as use_case
    from broker.cli import filters
    from broker.cli.capacity import purchases_view

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
        _answers(terminal, propose.buy_from(terminal, from_plan, line or [], whose), as_json=as_json)
        return
    assert number is not None
    wanted = broker.store.quote(number)
    most = None if ceiling is None else filters.price("--ceiling", ceiling)
    if not dry_run:
        _answer(terminal, use_case.buy(broker, wanted, ceiling=most, by=terminal.actor, **whose), as_json=as_json)
        return
    seen = use_case.preview(broker, wanted, ceiling=most, by=terminal.actor, **whose)
    if as_json:
        from broker.app.results.purchases import PurchasePreviewResult

        terminal.answer(PurchasePreviewResult.of(seen))
    else:
        terminal.show(*purchases_view.preview(seen))


def purchases(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Also purchases that have ended or failed.")] = False,
    as_json: AsJson = False,
) -> None:
    """List purchases that wait for approval, were ordered, or are in force."""
    from broker.cli.capacity import purchases_view

    terminal = Terminal.of(context)
    found = terminal.broker().store.purchases(closed=every)
    if as_json:
        from broker.app.results.purchases import PurchaseList

        terminal.answer(PurchaseList.of(found))
    else:
        terminal.show(*purchases_view.purchases(terminal.out, found, every=every))


def show(context: typer.Context, id: PurchaseId, as_json: AsJson = False) -> None:
    """Show a purchase: capacity, price, approvals and events."""
    from broker.cli.capacity import purchases_view

    terminal = Terminal.of(context)
    store = terminal.broker().store
    found, events = store.purchase(id), store.purchase_events(id)
    if as_json:
        from broker.app.results.purchases import PurchaseHistory

        terminal.answer(PurchaseHistory.of(found, events))
    else:
        terminal.show(*purchases_view.history(found, events))


def approve(
    context: typer.Context,
    id: PurchaseId,
    binding: Annotated[
        str | None, typer.Option("--binding", metavar="HASH", help="Approve only if the purchase has this hash.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Approve a purchase. The last approval orders it if this machine has a login to the provider."""
    from broker.app.capacity import purchases as use_case

    terminal = Terminal.of(context)
    approved = use_case.approve(terminal.broker(), id, by=terminal.actor, binding=binding)
    _answer(terminal, _advanced(terminal, approved), as_json=as_json)


def reject(
    context: typer.Context,
    id: PurchaseId,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Refuse a purchase, as one of its approvers. Its money is released."""
    from broker.app.capacity import purchases as use_case

    terminal = Terminal.of(context)
    refused = use_case.reject(terminal.broker(), id, by=terminal.actor, because=reason)
    _answer(terminal, refused, as_json=as_json)


def order(context: typer.Context, id: PurchaseId, as_json: AsJson = False) -> None:
    """Advance a purchase now: order it, confirm it, or search for its order. `gpubroker serve` does this automatically.

    The command can be repeated: a purchase is ordered at most once.
    """
    from broker.app.capacity.purchases import buyer

    terminal = Terminal.of(context)
    _answer(terminal, buyer(terminal.broker()).advance(id), as_json=as_json)


def withdraw(
    context: typer.Context,
    id: PurchaseId,
    nothing_bought: Annotated[
        bool,
        typer.Option("--nothing-bought", help="The order had no answer, and the provider's console shows no purchase."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Withdraw a purchase that was not ordered yet. Its money is released."""
    from broker.app.capacity import purchases as use_case

    terminal = Terminal.of(context)
    taken = use_case.withdraw(terminal.broker(), id, by=terminal.actor, nothing_bought=nothing_bought)
    _answer(terminal, taken, as_json=as_json)


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


def _answers(terminal: Terminal, found: Sequence[Purchase], *, as_json: bool) -> None:
    from broker.cli.capacity import purchases_view

    if as_json:
        from broker.app.results.purchases import PurchaseList

        terminal.answer(PurchaseList.of(found))
        return
    for one in found:
        terminal.show(*purchases_view.purchase(one))


def _answer(terminal: Terminal, purchase: Purchase, *, as_json: bool) -> None:
    from broker.cli.capacity import purchases_view

    if as_json:
        from broker.app.results.purchases import PurchaseResult

        terminal.answer(PurchaseResult.of(purchase))
    else:
        terminal.show(*purchases_view.purchase(purchase))
