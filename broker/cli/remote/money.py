"""`gpubroker budget` through a team server."""

from __future__ import annotations

import typer

from broker.cli.options import AsJson, examples
from broker.cli.remote import group_of, through

app = typer.Typer(
    cls=group_of("broker.cli.billing.budget:app"),
    no_args_is_help=True,
    help="Show budgets of your teams: limit, spent, held, left and forecast.",
)


@app.command("list", epilog=examples("gpubroker budget list", "gpubroker budget list --json"))
def list_budgets(context: typer.Context, as_json: AsJson = False) -> None:
    """List the budgets that count your teams, in their current periods."""
    from broker.cli.remote import view

    terminal, api = through(context)
    found = api.get("/budgets")
    if as_json:
        terminal.answer(found)
    else:
        terminal.show(*view.budgets(terminal.out, found))
