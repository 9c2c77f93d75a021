"""`gpubroker budget` through a team server."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.remote import group_of, through

app = typer.Typer(
    cls=group_of("broker.cli.billing.budget:app"),
    no_args_is_help=True,
    help="Show budgets of your teams: limit, spent, held, left and forecast.",
)


@app.command(epilog=examples("gpubroker budget show nlp-monthly --json"))
def show(
    context: typer.Context,
    budget: Annotated[str | None, typer.Argument(metavar="[BUDGET]", help="Its name. Default: all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show one budget that counts your teams: period, limit, spent, held, left, scope and alerts."""
    from broker.cli.remote import view
    from broker.core.errors import UnknownName

    terminal, api = through(context)
    found = api.get("/budgets")
    chosen = [one for one in found["budgets"] if budget in (None, one["id"])]
    if budget is not None and not chosen:
        raise UnknownName("budget", budget, [one["id"] for one in found["budgets"]])
    terminal.result(lambda: {"budgets": chosen}, lambda: view.budgets(terminal.out, {"budgets": chosen}))


@app.command("list", epilog=examples("gpubroker budget list", "gpubroker budget list --json"))
def list_budgets(context: typer.Context, as_json: AsJson = False) -> None:
    """List the budgets that count your teams, in their current periods."""
    from broker.cli.remote import view

    terminal, api = through(context)
    found = api.get("/budgets")
    terminal.result(found, lambda: view.budgets(terminal.out, found))
