"""Buy capacity and undo purchases, on this machine or through a team server."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from broker.cli import completion, filters
from broker.cli.filters import term_option
from broker.cli.options import AsJson, NamedProviders, expand_options
from broker.cli.terminal import Terminal
from broker.core.errors import AskAPerson, InvalidInput, RetryLater

if TYPE_CHECKING:
    from broker.app.capacity.purchase_documents import PurchaseResult


PurchaseId = Annotated[str, typer.Argument(metavar="PURCHASE", help="ID in `gpubroker capacity purchases`.")]
AtMost = Annotated[
    str | None,
    typer.Option("--at-most", metavar="USD", help="Maximum charge of the provider to accept. Default: none."),
]
Ceiling = Annotated[
    str | None, typer.Option("--ceiling", metavar="USD", help="Maximum cost, which is held. Default: the quoted price.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show decision, cost and terms; change nothing.")]
NothingBought = Annotated[
    bool,
    typer.Option("--nothing-bought", help="The order had no answer, and the provider's console shows no purchase."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")]
WithClosed = Annotated[bool, typer.Option("--all", help="Also purchases that have ended or failed.")]


class ProductKind(StrEnum):
    """The kinds of product, as the command line names them."""

    CAPACITY_BLOCK = "capacity-block"
    CAPACITY_RESERVATION = "capacity-reservation"
    FUTURE_RESERVATION = "future-reservation"
    RESERVED_INSTANCES = "reserved-instances"
    SAVINGS_PLAN = "savings-plan"
    COMMITMENT = "commitment"
    ALL = "all"


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
    provider: NamedProviders = None
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


@dataclass(frozen=True)
class PayerOptions:
    """The team, project and environment that pay."""

    team: Annotated[str | None, typer.Option("--team", metavar="NAME", help="Team that pays.")] = None
    project: Annotated[str | None, typer.Option("--project", metavar="NAME", help="Project that pays.")] = None
    environment: Annotated[str | None, typer.Option("--environment", metavar="NAME", help="Environment.")] = None


@expand_options
def quote(context: typer.Context, given: QuoteOptions, as_json: AsJson = False) -> None:
    """Ask providers for capacity on sale, with its price. Buys nothing.

    A quote can be bought by its number within an hour. AWS sells capacity blocks (1 to 14 days, or 3 to 26 weeks);
    reservations from now on, and from 5 to 120 days ahead on; savings plans (1 or 3 years).
    """
    from broker.app.capacity.quote_requests import CapacityRequest
    from broker.app.use_cases.capacity import ask_quotes
    from broker.cli.capacity import capacity_view

    terminal = Terminal.of(context)
    now = terminal.now()
    term_option("--for", given.term)
    request = CapacityRequest(
        machine=given.machine,
        machines=given.machines,
        length=given.term,
        region=given.region,
        earliest=None if given.start is None else filters.moment_ahead_option("--since", given.start, now),
        latest=None if given.latest is None else filters.moment_ahead_option("--until", given.latest, now),
        products=[product_kind.value for product_kind in given.product or ()],
    )
    quote_list = terminal.ask(ask_quotes, request, given.provider or [])
    terminal.result(quote_list, lambda: capacity_view.quote_lines(terminal.out, quote_list))


@expand_options
def buy(
    context: typer.Context,
    payer: PayerOptions,
    number: Annotated[
        int | None, typer.Argument(metavar="QUOTE", min=1, help="Number in `gpubroker capacity quote`.")
    ] = None,
    from_plan: Annotated[
        Path | None,
        typer.Option(
            "--from-plan", metavar="FILE", help="Document of `capacity propose --json`; not through a server."
        ),
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
    from broker.app.use_cases.capacity import buy_quote, preview_purchase
    from broker.cli.capacity import capacity_view
    from broker.core.policy.policy import Answer

    terminal = Terminal.of(context)
    terminal.only_here({"--from-plan": from_plan, "--line": line})
    if (number is None) == (from_plan is None):
        hint = "gpubroker capacity quote --help"
        raise InvalidInput("give a quote's number or --from-plan", where="QUOTE", hint=hint)
    if from_plan is not None:
        if dry_run or ceiling is not None:
            option_name = "--dry-run" if dry_run else "--ceiling"
            raise InvalidInput("a proposal is bought at its own terms", where=option_name, hint="leave it out")
        _buy_lines(terminal, from_plan, line or [], payer)
        return
    assert number is not None
    max_cost = None if ceiling is None else filters.price_option("--ceiling", ceiling).as_json()
    if not dry_run:
        _show(terminal, terminal.ask(buy_quote, number, max_cost, **asdict(payer)))
        return
    purchase_preview = terminal.ask(preview_purchase, number, max_cost, **asdict(payer))
    terminal.result(purchase_preview, lambda: capacity_view.preview_lines(purchase_preview))
    if purchase_preview.answer is Answer.DENY:
        raise typer.Exit(3)


def _buy_lines(terminal: Terminal, file: Path, lines: list[int], payer: PayerOptions) -> None:
    from broker.app.capacity.proposal import buy_lines
    from broker.app.capacity.purchase_documents import PurchaseList
    from broker.app.capacity.purchases import Payer
    from broker.cli.capacity import capacity_view

    purchase_list = PurchaseList.from_parts(
        purchases=buy_lines(terminal.broker(), file, lines, Payer(**asdict(payer)), by=terminal.actor)
    )
    purchase_texts = (
        text for purchase in purchase_list.purchases for text in capacity_view.purchase_lines(purchase, is_local=True)
    )
    terminal.result(purchase_list, lambda: purchase_texts)


def purchases(
    context: typer.Context,
    id: Annotated[
        str | None,
        typer.Argument(metavar="PURCHASE", help="Show this purchase: capacity, price, approvals and events."),
    ] = None,
    every: WithClosed = False,
    order: Annotated[
        bool,
        typer.Option("--order", help="Advance PURCHASE now, as `gpubroker serve` does: order or confirm it."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the purchases that wait for approval, were ordered, or are in force. Through a server, only those of your
    teams.

    With PURCHASE, show that one. --order may be repeated: a purchase is ordered at most once.
    """
    from broker.app.use_cases.capacity import list_purchases, show_purchase
    from broker.cli.capacity import capacity_view

    terminal = Terminal.of(context)
    terminal.only_here({"--order": order})
    if order:
        if id is None:
            raise InvalidInput("--order takes a PURCHASE", hint="gpubroker capacity purchases PURCHASE --order")
        _show(terminal, _advance(terminal, id))
    elif id is None:
        purchase_list = terminal.ask(list_purchases, closed=every)
        terminal.result(
            purchase_list, lambda: capacity_view.purchase_list_lines(terminal.out, purchase_list, shows_all=every)
        )
    else:
        purchase_history, is_local = terminal.ask(show_purchase, id), not terminal.through_server
        terminal.result(purchase_history, lambda: capacity_view.history_lines(purchase_history, is_local=is_local))


def _advance(terminal: Terminal, id: str) -> PurchaseResult:
    from broker.app.capacity.purchase_documents import PurchaseResult
    from broker.app.capacity.purchases import buyer

    return PurchaseResult.of(buyer(terminal.broker()).advance(id))


def grant(terminal: Terminal, id: str, binding: str | None) -> None:
    """Approve a purchase. The last approval orders it; what this machine cannot order now, the server will."""
    from broker.app.capacity.purchase_documents import PurchaseResult
    from broker.app.use_cases.capacity import grant_purchase

    purchase = terminal.ask(grant_purchase, id, binding)
    if not terminal.through_server:
        try:
            purchase = _advance(terminal, id)
        except (AskAPerson, RetryLater) as error:
            hint = f"it is ordered by `gpubroker serve`, or by `gpubroker capacity purchases {id} --order` with a login"
            terminal.say(Text(f"not ordered yet: {error}; {hint}", style="yellow"))
            purchase = PurchaseResult.of(terminal.broker().store.purchase(id))
    _show(terminal, purchase)


def refuse(terminal: Terminal, id: str, reason: str) -> None:
    """Refuse a purchase. Its money is released."""
    from broker.app.use_cases.capacity import refuse_purchase

    _show(terminal, terminal.ask(refuse_purchase, id, reason))


def undo(
    context: typer.Context,
    id: PurchaseId,
    nothing_bought: NothingBought = False,
    at_most: AtMost = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Undo a purchase: withdraw it before its order, else cancel it at its provider or return it there.

    After the order, shows the terms and asks for confirmation; without a terminal, add --yes. The provider may charge
    for it: --dry-run shows how much, --at-most accepts it. The buyer, an approver of it or an administrator may do so.
    The rest of its money is released.
    """
    from broker.app.capacity.purchase_documents import UndoTermsResult
    from broker.app.use_cases import capacity
    from broker.cli.capacity import capacity_view
    from broker.core.purchases.purchases import PurchaseState
    from broker.core.values.money import Money

    terminal = Terminal.of(context)
    max_charge = Money.ZERO if at_most is None else filters.price_option("--at-most", at_most)
    state = terminal.ask(capacity.show_purchase, id).purchase.state
    if nothing_bought or state.before_order or state is PurchaseState.UNKNOWN:
        if dry_run:
            free_terms = UndoTermsResult(
                purchase=id, way="withdraw", charge_usd=Money.ZERO, refund_usd=Money.ZERO, until=None
            )
            terminal.result(free_terms, lambda: capacity_view.undo_terms_lines(free_terms))
            return
        _show(terminal, terminal.ask(capacity.withdraw_purchase, id, nothing_bought))
        return
    if dry_run or not yes:
        terms = terminal.ask(capacity.show_undo_terms, id)
        if dry_run:
            terminal.result(terms, lambda: capacity_view.undo_terms_lines(terms))
            return
        terminal.show(next(capacity_view.undo_terms_lines(terms)))
        if terms.charge_usd <= max_charge and not terminal.confirm(f"Undo {id} on these terms?", yes=False):
            terminal.say("Nothing was undone.")
            raise typer.Exit(1)
    _show(terminal, terminal.ask(capacity.cancel_purchase, id, max_charge.as_json()))


def _show(terminal: Terminal, purchase: PurchaseResult) -> None:
    from broker.cli.capacity import capacity_view

    terminal.result(purchase, lambda: capacity_view.purchase_lines(purchase, is_local=not terminal.through_server))
