"""`gpubroker launches` through a team server."""

from __future__ import annotations

import typer

from broker.cli.options import AsJson, examples
from broker.cli.remote import group_of, through
from broker.cli.remote.tables import money, table, text, time

app = typer.Typer(
    cls=group_of("broker.cli.service.launches:app"), no_args_is_help=True, help="Launches made with SkyPilot or Slurm."
)


@app.callback()
def _launches() -> None:
    """Launches made with SkyPilot or Slurm."""


@app.command("list", epilog=examples("gpubroker launches list", "gpubroker launches list --json"))
def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List launches whose money is held, and those whose judged time is over although their end was not reported."""
    terminal, api = through(context)
    found = api.get("/launches")
    if as_json:
        terminal.answer(found)
        return
    late = (text("id"), text("user"), text("team", rank=3), text("machines", rank=1), time("until", "judged until", 2))
    if found["overdue"]:
        terminal.show("Overdue: nobody reported their end, and their machines may still run.")
        terminal.show(*table(terminal.out, (*late, money("spent_usd", "spent")), found["overdue"], ""))
    held = (text("id"), text("user"), text("team", rank=3), text("accelerator", rank=1), time("until", "held until", 2))
    terminal.show(*table(terminal.out, (*held, money("held_usd", "held")), found["launches"], "no launch holds money"))
