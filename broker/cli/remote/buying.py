"""`gpubroker capacity quote | buy | withdraw | cancel | return | sell` through a team server.

The server asks providers and orders with its own logins; its policies say who may buy and who approves."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import typer

from broker.cli import filters
from broker.cli.capacity.purchase_options import (
    AtMost,
    Ceiling,
    DryRun,
    Least,
    NothingBought,
    PayerOptions,
    ProductKind,
    PurchaseId,
    QuoteOptions,
    Stop,
    Yes,
    add,
    confirm_undo,
    needs_terminal,
)
from broker.cli.gathered import gathered
from broker.cli.options import AsJson
from broker.cli.remote import api_of
from broker.cli.remote.tables import DocumentColumn, facts, listed, money, number, table, text, time
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput


def register(app: typer.Typer) -> None:
    """Add the commands to `gpubroker capacity`."""
    add(app, quote, buy, withdraw, cancel, return_, sell)


@gathered
def quote(context: typer.Context, given: QuoteOptions, as_json: AsJson = False) -> None:
    """Have the server ask providers for capacity on sale, with its price. Buys nothing.

    A quote can be bought by its number within an hour.
    """

    def moment(option: str, said: str | None) -> str | None:
        return None if said is None else filters.moment_ahead(option, said, datetime.now(UTC)).isoformat()

    products = [one.value for one in given.product or ()]
    asked = {
        "machine": given.machine,
        "machines": given.machines,
        "length": given.term,
        "region": given.region,
        "earliest": moment("--since", given.start),
        "latest": moment("--until", given.latest),
        "providers": given.provider or [],
        "products": [one if one == ProductKind.ALL else one.replace("-", "_") for one in products],
        "extends": given.extends,
    }
    found = api_of(context).ask("/capacity/quotes", asked)
    columns = (
        number("number", "#"), text("product", rank=5),
        DocumentColumn("machines", lambda row: f"{row['machines']} × {row['instance_type']}"),
        text("provider", rank=4), text("region"), time("starts"), time("ends", rank=3), money("total_usd", "total"),
        text("undo", rank=1),
    )  # fmt: skip
    listed(context, found, "quotes", columns, "nothing is on sale")
    if not as_json:
        Terminal.of(context).say(*(f"{name}: {why}" for name, why in found["problems"].items()))


@gathered
def buy(
    context: typer.Context,
    payer: PayerOptions,
    number: Annotated[int, typer.Argument(metavar="QUOTE", min=1, help="Number in `gpubroker capacity quote`.")],
    ceiling: Ceiling = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Request the purchase of a quote: hold its money and ask its approvers. The server orders it after their approval.

    A purchase that cannot be undone needs two approvers; buyers cannot approve their own purchase. Exits with 3 if a
    policy denies it, with --dry-run too.
    """
    body = {
        "quote": number,
        "ceiling": _usd("--ceiling", ceiling),
        "team": payer.team,
        "project": payer.project,
        "environment": payer.environment,
    }
    if not dry_run:
        show_change(context, "/purchases", body)
        return
    terminal, seen = Terminal.of(context), api_of(context).ask("/purchases/preview", body)
    told = facts((text("answer"), money("held_usd", "would hold"), text("approvals"), text("binding")), seen)
    columns = (text("answer"), text("name"), text("message", folds=True))
    terminal.result(seen, lambda: [*told, "", *table(terminal.out, columns, seen["verdicts"], "")])
    if seen["answer"] == "deny":
        raise typer.Exit(3)


def withdraw(
    context: typer.Context, id: PurchaseId, nothing_bought: NothingBought = False, as_json: AsJson = False
) -> None:
    """Withdraw a purchase before its order, or one whose order bought nothing. Its money is released."""
    show_change(context, f"/purchases/{id}/withdraw", {"nothing_bought": nothing_bought})


def cancel(
    context: typer.Context,
    id: PurchaseId,
    at_most: AtMost = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Cancel a purchase at its provider.

    --dry-run shows what the provider charges, --at-most accepts it. Shows the terms and asks for confirmation; without
    a terminal, add --yes.
    """
    _undo(context, id, at_most, yes=yes, dry_run=dry_run)


def return_(
    context: typer.Context,
    id: PurchaseId,
    at_most: AtMost = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Return a purchase to its provider, as long as it takes it back. The same as `capacity cancel`."""
    _undo(context, id, at_most, yes=yes, dry_run=dry_run)


def sell(
    context: typer.Context,
    id: PurchaseId,
    least: Least = None,
    stop: Stop = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Sell a purchase on its provider's resale market. Jobs leave what is for sale, and none starts in it."""
    if dry_run:
        found = api_of(context).get(f"/purchases/{id}/resale")
        columns = (text("market"), text("machines"), time("starts"), time("ends"), money("estimate_usd", "estimate"))
        Terminal.of(context).result(found, lambda: facts((*columns, text("fee"), text("notes")), found))
    elif stop:
        show_change(context, f"/purchases/{id}/end-sale")
    elif least is None:
        raise InvalidInput("the price is missing", where="--least", hint=f"gpubroker capacity sell {id} --dry-run")
    else:
        show_change(context, f"/purchases/{id}/sell", {"least": _usd("--least", least)})


def _undo(context: typer.Context, id: str, at_most: str | None, *, yes: bool, dry_run: bool) -> None:
    terminal, most = Terminal.of(context), _usd("--at-most", at_most) or "0"
    if dry_run or not yes:
        found = api_of(context).get(f"/purchases/{id}/undo")
        if not dry_run:
            needs_terminal(terminal)
        columns = (text("way"), money("charge_usd", "costs"), money("refund_usd", "gives back"), time("until"))
        terminal.result(found, lambda: facts(columns, found))
        if dry_run:
            return
        if Decimal(str(found["charge_usd"])) <= Decimal(most):  # else the server refuses it
            confirm_undo(terminal, id)
    show_change(context, f"/purchases/{id}/cancel", {"at_most": most})


def _usd(option: str, text: str | None) -> str | None:
    return None if text is None else str(filters.price(option, text).dollars)


def show_change(context: typer.Context, path: str, body: dict[str, Any] | None = None) -> None:
    """Have the server change a purchase, and print its new state."""
    after = api_of(context).change(path, body)
    more = f"; {after['approvals_missing']} more must approve" if after["approvals_missing"] else ""
    who = f" ({', '.join(after['approvers'])} may)" if more and after["approvers"] else ""
    evidence = f"; {after['evidence']}" if after["evidence"] else ""
    if after["proposed_by"]:
        evidence += f"; {after['proposed_by']} would sell it, and a second person has to agree by the same command"
    said = f"{after['id']}: {after['state'].replace('_', ' ')}{more}{who}{evidence}"
    Terminal.of(context).result(after, lambda: [said])
