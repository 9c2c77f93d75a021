"""`gpubroker capacity quote | buy | withdraw | cancel | return | sell` through a team server.

The server asks providers and orders with its own logins; its policies say who may buy and who approves."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from broker.cli.capacity.purchases import PayerOptions, ProductKind, QuoteOptions
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, examples
from broker.cli.remote import through
from broker.core.errors import InvalidInput

_Id = Annotated[str, typer.Argument(metavar="PURCHASE", help="ID in `gpubroker capacity purchases`.")]
_AtMost = Annotated[
    str | None,
    typer.Option("--at-most", metavar="USD", help="Accept a charge of the provider up to this. Default: none."),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what it would come to; change nothing.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `gpubroker capacity`."""
    app.command("quote", epilog=examples("gpubroker capacity quote H100:8 --for 2d --provider aws --region us-east-1"))(
        quote
    )
    app.command("buy", epilog=examples("gpubroker capacity buy 3 --team nlp --dry-run"))(buy)
    app.command("withdraw", epilog=examples("gpubroker capacity withdraw purchase-0123456789ab"))(withdraw)
    app.command("cancel", epilog=examples("gpubroker capacity cancel purchase-0123456789ab --dry-run"))(cancel)
    app.command("return", epilog=examples("gpubroker capacity return purchase-0123456789ab"))(return_)
    app.command("sell", epilog=examples("gpubroker capacity sell purchase-0123456789ab --least 1500"))(sell)


@gathered
def quote(context: typer.Context, given: QuoteOptions, as_json: AsJson = False) -> None:
    """Have the server ask providers for capacity on sale, with its price. Buys nothing.

    A quote can be bought by its number within an hour.
    """
    from broker.cli import filters
    from broker.cli.remote.tables import DocumentColumn, money, number, table, text, time

    def moment(option: str, said: str | None) -> str | None:
        return None if said is None else filters.moment_ahead(option, said, datetime.now(UTC)).isoformat()

    terminal, api = through(context)
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
    found = api.ask("/capacity/quotes", asked)
    if as_json:
        terminal.answer(found)
        return
    columns = (
        number("number", "#"), text("product", rank=5),
        DocumentColumn("machines", lambda row: f"{row['machines']} × {row['instance_type']}"),
        text("provider", rank=4), text("region"), time("starts"), time("ends", rank=3), money("total_usd", "total"),
        text("undo", rank=1),
    )  # fmt: skip
    terminal.show(*table(terminal.out, columns, found["quotes"], "nothing is on sale"))
    terminal.say(*(f"{name}: {why}" for name, why in found["problems"].items()))


@gathered
def buy(
    context: typer.Context,
    payer: PayerOptions,
    number: Annotated[int, typer.Argument(metavar="QUOTE", min=1, help="Number in `gpubroker capacity quote`.")],
    ceiling: Annotated[
        str | None,
        typer.Option("--ceiling", metavar="USD", help="Maximum cost, which is held. Default: the quoted price."),
    ] = None,
    dry_run: _DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Request the purchase of a quote: hold its money and ask its approvers. The server orders it after their approval.

    A purchase that cannot be undone needs two approvers; nobody can approve their own purchase.
    """
    from broker.cli.remote.tables import facts, money, table, text

    terminal, api = through(context)
    body = {
        "quote": number,
        "ceiling": _usd("--ceiling", ceiling),
        "team": payer.team,
        "project": payer.project,
        "environment": payer.environment,
    }
    if not dry_run:
        _told(context, api.change("/purchases", body), as_json=as_json)
        return
    seen = api.ask("/purchases/preview", body)
    if as_json:
        terminal.answer(seen)
        return
    terminal.show(
        *facts((text("answer"), money("held_usd", "would hold"), text("approvals"), text("binding")), seen), ""
    )
    terminal.show(
        *table(terminal.out, (text("answer"), text("name"), text("message", folds=True)), seen["verdicts"], "")
    )


def withdraw(
    context: typer.Context,
    id: _Id,
    nothing_bought: Annotated[
        bool,
        typer.Option("--nothing-bought", help="For an unanswered order: the provider's console shows no purchase."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Withdraw a purchase before its order, or one whose order bought nothing. Its money is released."""
    _, api = through(context)
    _told(context, api.change(f"/purchases/{id}/withdraw", {"nothing_bought": nothing_bought}), as_json=as_json)


def cancel(
    context: typer.Context, id: _Id, at_most: _AtMost = None, dry_run: _DryRun = False, as_json: AsJson = False
) -> None:
    """Cancel a purchase at its provider. --dry-run shows what the provider charges, --at-most accepts it."""
    _undo(context, id, at_most, dry_run=dry_run, as_json=as_json)


def return_(
    context: typer.Context, id: _Id, at_most: _AtMost = None, dry_run: _DryRun = False, as_json: AsJson = False
) -> None:
    """Return a purchase to its provider, as long as it takes it back. The same as `capacity cancel`."""
    _undo(context, id, at_most, dry_run=dry_run, as_json=as_json)


def sell(
    context: typer.Context,
    id: _Id,
    least: Annotated[
        str | None,
        typer.Option("--least", metavar="USD", help="Price of all machines for the rest of the time, before fees."),
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Withdraw the offer.")] = False,
    dry_run: _DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Sell a purchase on its provider's resale market. Jobs leave what is for sale, and none starts in it."""
    from broker.cli.remote.tables import facts, money, text, time

    _, api = through(context)
    if dry_run:
        found = api.get(f"/purchases/{id}/resale")
        columns = (text("market"), text("machines"), time("starts"), time("ends"), money("estimate_usd", "estimate"))
        _shown(context, found, [*facts((*columns, text("fee"), text("notes")), found)], as_json=as_json)
    elif stop:
        _told(context, api.change(f"/purchases/{id}/end-sale"), as_json=as_json)
    elif least is None:
        raise InvalidInput("the price is missing", where="--least", hint=f"gpubroker capacity sell {id} --dry-run")
    else:
        _told(context, api.change(f"/purchases/{id}/sell", {"least": _usd("--least", least)}), as_json=as_json)


def _undo(context: typer.Context, id: str, at_most: str | None, *, dry_run: bool, as_json: bool) -> None:
    from broker.cli.remote.tables import facts, money, text, time

    _, api = through(context)
    if dry_run:
        found = api.get(f"/purchases/{id}/undo")
        columns = (text("way"), money("charge_usd", "costs"), money("refund_usd", "gives back"), time("until"))
        _shown(context, found, facts(columns, found), as_json=as_json)
        return
    body = {"at_most": _usd("--at-most", at_most) or "0"}
    _told(context, api.change(f"/purchases/{id}/cancel", body), as_json=as_json)


def _usd(option: str, text: str | None) -> str | None:
    from broker.cli import filters

    return None if text is None else str(filters.price(option, text).dollars)


def _told(context: typer.Context, after: dict[str, Any], *, as_json: bool) -> None:
    """What became of the purchase."""
    more = f"; {after['approvals_missing']} must approve" if after["approvals_missing"] else ""
    who = f" ({', '.join(after['approvers'])} may)" if more and after["approvers"] else ""
    evidence = f"; {after['evidence']}" if after["evidence"] else ""
    if after["proposed_by"]:
        evidence += f"; {after['proposed_by']} would sell it, and a second person has to agree by the same command"
    said = f"{after['id']}: {after['state'].replace('_', ' ')}{more}{who}{evidence}"
    _shown(context, after, [said], as_json=as_json)


def _shown(context: typer.Context, document: dict[str, Any], lines: list[str], *, as_json: bool) -> None:
    terminal, _ = through(context)
    if as_json:
        terminal.answer(document)
    else:
        terminal.show(*lines)
