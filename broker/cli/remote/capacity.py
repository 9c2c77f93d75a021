"""`gpubroker capacity` through a team server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from broker.cli.options import AsJson, Reason, examples
from broker.cli.remote import buying, group_of, through

app = typer.Typer(
    cls=group_of("broker.cli.capacity.capacity:app"),
    no_args_is_help=True,
    help="Owned machines, reservations, commitments and purchases, through the server.",
)
buying.register(app)
PurchaseId = Annotated[str, typer.Argument(metavar="PURCHASE", help="ID in `gpubroker capacity purchases`.")]


@app.callback()
def capacity() -> None:
    """Owned machines, reservations, commitments and purchases, through the server."""


@app.command("list", epilog=examples("gpubroker capacity list", "gpubroker capacity list --offline --json"))
def list_(
    context: typer.Context,
    offline: Annotated[bool, typer.Option("--offline", help="Do not query providers.")] = False,
    as_json: AsJson = False,
) -> None:
    """List capacity: as recorded at the server, and as reported by providers."""
    from broker.cli.remote.tables import number, price, table, text, time

    terminal, api = through(context)
    found = api.get("/capacity", ask=None if offline else True)
    if as_json:
        terminal.answer(found)
        return
    recorded = (
        number("number"), text("kind"), text("accelerator"), number("gpus"), text("provider"), text("site", rank=3),
        price("usd_per_gpu_hour", "per GPU-hour"), time("ends", rank=1), text("note", rank=4),
    )  # fmt: skip
    terminal.show(*table(terminal.out, recorded, found["recorded"], "nothing is recorded"))
    reported = (
        text("id"), text("provider"), text("region", rank=2), text("instance_type", "machine"), number("machines"),
        text("kind", rank=3), time("ends", rank=1), number("free", rank=1),
    )  # fmt: skip
    if found["reported"]:
        terminal.show("", "reported by providers:", *table(terminal.out, reported, found["reported"], ""))
    machines = (text("provider"), text("region"), text("instance_type", "machine"), text("accelerator"), number("gpus"))
    if found["machines"]:
        terminal.show("", "owned machines:", *table(terminal.out, machines, found["machines"], ""))
    terminal.say(*(f"{one['provider']}: {one['message']}" for one in found["problems"]))


@app.command(epilog=examples("gpubroker capacity purchases", "gpubroker capacity purchases --all --json"))
def purchases(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Also purchases that have ended or failed.")] = False,
    as_json: AsJson = False,
) -> None:
    """List purchases of your teams that wait for approval, were ordered, or are in force."""
    from broker.cli.remote.tables import DocumentColumn, money, table, text

    terminal, api = through(context)
    found = api.get("/purchases", closed=True if every else None)
    if as_json:
        terminal.answer(found)
        return
    columns = (
        text("id"), text("state"), text("user"), text("team", rank=2),
        DocumentColumn("provider", lambda row: str(row["quote"]["provider"])),
        money("ceiling_usd", "at most"), money("charged_usd", "charged", 1), text("approvers", rank=1, folds=True),
    )  # fmt: skip
    terminal.show(*table(terminal.out, columns, found["purchases"], "no purchases"))


@app.command(epilog=examples("gpubroker capacity show purchase-0123456789ab"))
def show(
    context: typer.Context,
    id: PurchaseId,
    as_json: AsJson = False,
) -> None:
    """Show a purchase: capacity, price, approvals and events."""
    from broker.cli.remote.tables import facts, money, table, text, time

    terminal, api = through(context)
    found = api.get(f"/purchases/{id}")
    if as_json:
        terminal.answer(found)
        return
    columns = (
        text("id"), text("state"), text("user"), text("team"), money("ceiling_usd", "at most"),
        money("held_usd", "held"), money("charged_usd", "charged"), text("binding"), text("approvers"),
    )  # fmt: skip
    terminal.show(*facts(columns, found["purchase"]), "")
    terminal.show(*table(terminal.out, (time("at"), text("kind")), found["events"], "no events"))


@app.command(epilog=examples("gpubroker capacity approve purchase-0123456789ab --binding 4f1c"))
def approve(
    context: typer.Context,
    id: PurchaseId,
    binding: Annotated[
        str | None, typer.Option("--binding", metavar="HASH", help="Approve only if the purchase has this hash.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Approve a purchase of your team. The last approval has the server order it."""
    _decided(context, id, "approve", {"binding": binding}, as_json=as_json)


@app.command(epilog=examples("gpubroker capacity reject purchase-0123456789ab --reason 'not this quarter'"))
def reject(context: typer.Context, id: PurchaseId, reason: Reason = "", as_json: AsJson = False) -> None:
    """Refuse a purchase, as one of its approvers. Its money is released."""
    _decided(context, id, "reject", {"reason": reason}, as_json=as_json)


def _decided(context: typer.Context, id: str, decision: str, body: dict[str, Any], *, as_json: bool) -> None:
    terminal, api = through(context)
    after = api.change(f"/purchases/{id}/{decision}", body)
    if as_json:
        terminal.answer(after)
        return
    more = f"; {after['approvals_missing']} more must approve" if after["approvals_missing"] else ""
    terminal.show(f"{after['id']}: {after['state'].replace('_', ' ')}{more}")
