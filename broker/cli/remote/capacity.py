"""`gpubroker capacity` through a team server."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.capacity.purchase_options import Binding, PurchaseId, WithClosed, add
from broker.cli.options import AsJson, Reason, examples
from broker.cli.remote import api_of, buying, group_of, through
from broker.cli.remote.tables import DocumentColumn, facts, listed, money, number, price, table, text, time
from broker.cli.terminal import Terminal

app = typer.Typer(
    cls=group_of("broker.cli.capacity.capacity:app"),
    no_args_is_help=True,
    help="Owned machines, reservations, commitments and purchases, through the server.",
)
buying.register(app)


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


def purchases(context: typer.Context, every: WithClosed = False, as_json: AsJson = False) -> None:
    """List purchases of your teams that wait for approval, were ordered, or are in force."""
    found = api_of(context).get("/purchases", closed=True if every else None)
    columns = (
        text("id"), text("state"), text("user"), text("team", rank=2),
        DocumentColumn("provider", lambda row: str(row["quote"]["provider"])),
        money("ceiling_usd", "at most"), money("charged_usd", "charged", 1), text("approvers", rank=1, folds=True),
    )  # fmt: skip
    listed(context, found, "purchases", columns, "no purchases")


def show(context: typer.Context, id: PurchaseId, as_json: AsJson = False) -> None:
    """Show a purchase: capacity, price, approvals and events."""
    terminal, found = Terminal.of(context), api_of(context).get(f"/purchases/{id}")
    columns = (
        text("id"), text("state"), text("user"), text("team"), money("ceiling_usd", "at most"),
        money("held_usd", "held"), money("charged_usd", "charged"), text("binding"), text("approvers"),
    )  # fmt: skip
    events = table(terminal.out, (time("at"), text("kind")), found["events"], "no events")
    terminal.result(found, lambda: [*facts(columns, found["purchase"]), "", *events])


def approve(context: typer.Context, id: PurchaseId, binding: Binding = None, as_json: AsJson = False) -> None:
    """Approve a purchase of your team. The last approval has the server order it."""
    buying.show_change(context, f"/purchases/{id}/approve", {"binding": binding})


def reject(context: typer.Context, id: PurchaseId, reason: Reason = "", as_json: AsJson = False) -> None:
    """Refuse a purchase, as one of its approvers. Its money is released."""
    buying.show_change(context, f"/purchases/{id}/reject", {"reason": reason})


add(app, purchases, show, approve, reject)
