"""Buy capacity and undo purchases, on this machine or through a team server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.cli import completion
from broker.cli.option_groups import expand_options
from broker.cli.options import AsJson, Reason
from broker.cli.terminal import Terminal
from broker.core.errors import AskAPerson, InvalidInput, RetryLater

if TYPE_CHECKING:
    from broker.app.capacity.purchases import Payer
    from broker.app.capacity.quote_requests import CapacityRequest
    from broker.app.results.purchases import PurchaseHistory, PurchaseResult, QuoteList, UndoTermsResult
    from broker.app.wiring import Broker
    from broker.core.purchases.purchases import Purchase
    from broker.core.purchases.quotes import CapacityQuote


PurchaseId = Annotated[str, typer.Argument(metavar="PURCHASE", help="ID in `gpubroker capacity purchases`.")]
AtMost = Annotated[
    str | None,
    typer.Option("--at-most", metavar="USD", help="Maximum charge of the provider to accept. Default: none."),
]
Binding = Annotated[
    str | None, typer.Option("--binding", metavar="HASH", help="Approve only if the purchase has this hash.")
]
Ceiling = Annotated[
    str | None, typer.Option("--ceiling", metavar="USD", help="Maximum cost, which is held. Default: the quoted price.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show verdict, cost and terms; change nothing.")]
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
    from broker.cli import filters
    from broker.cli.capacity import capacity_view
    from broker.cli.filters import term_option

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
    quote_list = _load_quotes(terminal, request, given.provider or [])
    terminal.result(quote_list, lambda: capacity_view.quote_lines(terminal.out, quote_list))


def _load_quotes(terminal: Terminal, request: CapacityRequest, providers: list[str]) -> QuoteList:
    from broker.app.results.purchases import QuoteList
    from broker.app.results.values import plain

    if terminal.through_server:
        return terminal.api.query(QuoteList, "/capacity/quotes", {**plain(request), "providers": providers})
    from broker.app.capacity.purchases import quotes

    return QuoteList.of(quotes(terminal.broker(), request.request(), providers))


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
    from broker.app.capacity import purchases as use_case
    from broker.app.results.purchases import PurchasePreviewResult
    from broker.cli import filters
    from broker.cli.capacity import capacity_view
    from broker.core.policy.policy import Answer

    terminal = Terminal.of(context)
    terminal.only_here({"--from-plan": from_plan, "--line": line})
    payer_fields = asdict(payer)
    if (number is None) == (from_plan is None):
        hint = "gpubroker capacity quote --help"
        raise InvalidInput("give a quote's number or --from-plan", where="QUOTE", hint=hint)
    if from_plan is not None:
        if dry_run or ceiling is not None:
            option_name = "--dry-run" if dry_run else "--ceiling"
            raise InvalidInput("a proposal is bought at its own terms", where=option_name, hint="leave it out")
        _buy_lines(terminal, from_plan, line or [], use_case.Payer(**payer_fields))
        return
    max_cost = None if ceiling is None else filters.price_option("--ceiling", ceiling)
    body = {"quote": number, "ceiling": None if max_cost is None else max_cost.as_json(), **payer_fields}

    def purchase_arguments() -> tuple[Broker, CapacityQuote, use_case.Payer]:
        assert number is not None
        broker = terminal.broker()
        return broker, broker.store.quote(number), use_case.Payer(**payer_fields)

    if not dry_run:
        _change(
            terminal,
            "/purchases",
            body,
            lambda: use_case.buy(*purchase_arguments(), by=terminal.actor, ceiling=max_cost),
        )
        return
    if terminal.through_server:
        purchase_preview = terminal.api.query(PurchasePreviewResult, "/purchases/preview", body)
    else:
        purchase_preview = use_case.preview(*purchase_arguments(), by=terminal.actor, ceiling=max_cost)
    terminal.result(purchase_preview, lambda: capacity_view.preview_lines(purchase_preview))
    if purchase_preview.answer is Answer.DENY:
        raise typer.Exit(3)


def _buy_lines(terminal: Terminal, file: Path, lines: list[int], payer: Payer) -> None:
    from broker.app.capacity.proposal import buy_lines
    from broker.app.results.purchases import PurchaseList
    from broker.cli.capacity import capacity_view

    purchase_list = PurchaseList.of(buy_lines(terminal.broker(), file, lines, payer, by=terminal.actor))
    purchase_texts = (
        text for purchase in purchase_list.purchases for text in capacity_view.purchase_lines(purchase, is_local=True)
    )
    terminal.result(purchase_list, lambda: purchase_texts)


def purchases(context: typer.Context, every: WithClosed = False, as_json: AsJson = False) -> None:
    """List purchases that wait for approval, were ordered, or are in force; through a server, those of your teams."""
    from broker.app.results.purchases import PurchaseList
    from broker.cli.capacity import capacity_view

    terminal = Terminal.of(context)
    if terminal.through_server:
        purchase_list = terminal.api.fetch(PurchaseList, "/purchases", closed=every or None)
    else:
        purchase_list = PurchaseList.of(terminal.broker().store.purchases(closed=every))
    terminal.result(
        purchase_list, lambda: capacity_view.purchase_list_lines(terminal.out, purchase_list, shows_all=every)
    )


def show(context: typer.Context, id: PurchaseId, as_json: AsJson = False) -> None:
    """Show a purchase: capacity, price, approvals and events."""
    from broker.cli.capacity import capacity_view

    terminal = Terminal.of(context)
    purchase_history = _history(terminal, id)
    terminal.result(
        purchase_history, lambda: capacity_view.history_lines(purchase_history, is_local=not terminal.through_server)
    )


def _history(terminal: Terminal, id: str) -> PurchaseHistory:
    from broker.app.results.purchases import PurchaseHistory

    if terminal.through_server:
        return terminal.api.fetch(PurchaseHistory, f"/purchases/{id}")
    store = terminal.broker().store
    return PurchaseHistory.of(store.purchase(id), store.purchase_events(id))


def grant(context: typer.Context, id: PurchaseId, binding: Binding = None, as_json: AsJson = False) -> None:
    """Approve a purchase. The last approval orders it if this machine has a login to the provider; a server orders it
    itself."""
    terminal = Terminal.of(context)
    _change(
        terminal, f"/purchases/{id}/approve", {"binding": binding}, lambda: _approve_and_order(terminal, id, binding)
    )


def _approve_and_order(terminal: Terminal, id: str, binding: str | None) -> Purchase:
    """Approve the purchase, and order it after its last approval. If that is not possible now, print what will order
    it."""
    from rich.text import Text

    from broker.app.capacity import purchases as use_case

    broker = terminal.broker()
    approved = use_case.approve(broker, id, by=terminal.actor, binding=binding)
    try:
        return use_case.buyer(broker).advance(approved.id)
    except (AskAPerson, RetryLater) as error:
        hint = f"it is ordered by `gpubroker serve`, or by `gpubroker capacity order {approved.id}` with a login"
        terminal.say(Text(f"not ordered yet: {error}; {hint}", style="yellow"))
        return broker.store.purchase(approved.id)


def refuse(context: typer.Context, id: PurchaseId, reason: Reason = "", as_json: AsJson = False) -> None:
    """Refuse a purchase, as one of its approvers. Its money is released."""

    def reject_locally() -> Purchase:
        from broker.app.capacity import purchases as use_case

        return use_case.reject_purchase(terminal.broker(), id, by=terminal.actor, because=reason)

    terminal = Terminal.of(context)
    _change(terminal, f"/purchases/{id}/reject", {"reason": reason}, reject_locally)


def order(context: typer.Context, id: PurchaseId, as_json: AsJson = False) -> None:
    """Advance a purchase now: order it, confirm it, or search for its order. `gpubroker serve` does this automatically.

    The command can be repeated: a purchase is ordered at most once.
    """
    from broker.app.capacity.purchases import buyer
    from broker.app.results.purchases import PurchaseResult

    terminal = Terminal.of(context)
    _show(terminal, PurchaseResult.of(buyer(terminal.broker()).advance(id)))


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
    from broker.app.results.purchases import UndoTermsResult
    from broker.cli import filters
    from broker.cli.capacity import capacity_view
    from broker.core.purchases.purchases import PurchaseState
    from broker.core.values.money import Money

    def withdraw_locally() -> Purchase:
        from broker.app.capacity import purchases as use_case

        return use_case.withdraw_purchase(terminal.broker(), id, by=terminal.actor, nothing_bought=nothing_bought)

    def undo_locally() -> Purchase:
        from broker.app.capacity.purchases import undo

        return undo(terminal.broker(), id, by=terminal.actor, max_charge=max_charge)

    terminal = Terminal.of(context)
    max_charge = Money.ZERO if at_most is None else filters.price_option("--at-most", at_most)
    state = _history(terminal, id).purchase.state
    if nothing_bought or state.before_order or state is PurchaseState.UNKNOWN:
        if dry_run:
            free_terms = UndoTermsResult(
                purchase=id, way="withdraw", charge_usd=Money.ZERO, refund_usd=Money.ZERO, until=None
            )
            terminal.result(free_terms, lambda: capacity_view.undo_terms_lines(free_terms))
            return
        _change(terminal, f"/purchases/{id}/withdraw", {"nothing_bought": nothing_bought}, withdraw_locally)
        return
    if dry_run or not yes:
        terms = _undo_terms(terminal, id)
        if dry_run:
            terminal.result(terms, lambda: capacity_view.undo_terms_lines(terms))
            return
        if not terminal.asks:
            raise InvalidInput("no terminal for the confirmation; nothing was undone", hint="add --yes")
        terminal.show(next(capacity_view.undo_terms_lines(terms)))
        if terms.charge_usd <= max_charge and not typer.confirm(f"Undo {id} on these terms?", default=False, err=True):
            terminal.say("Nothing was undone.")
            raise typer.Exit(1)
    _change(terminal, f"/purchases/{id}/cancel", {"at_most": max_charge.as_json()}, undo_locally)


def _undo_terms(terminal: Terminal, id: str) -> UndoTermsResult:
    from broker.app.results.purchases import UndoTermsResult

    if terminal.through_server:
        return terminal.api.fetch(UndoTermsResult, f"/purchases/{id}/undo")
    from broker.app.capacity.purchases import undo_terms

    return UndoTermsResult.of(id, undo_terms(terminal.broker(), id))


def _change(
    terminal: Terminal, path: str, body: Mapping[str, Any] | None, change_locally: Callable[[], Purchase]
) -> None:
    """Change a purchase once, by a request to the server or ``change_locally``; print its new state."""
    from broker.app.results.purchases import PurchaseResult

    if terminal.through_server:
        _show(terminal, terminal.api.request(PurchaseResult, path, body))
    else:
        _show(terminal, PurchaseResult.of(change_locally()))


def _show(terminal: Terminal, purchase: PurchaseResult) -> None:
    from broker.cli.capacity import capacity_view

    terminal.result(purchase, lambda: capacity_view.purchase_lines(purchase, is_local=not terminal.through_server))
