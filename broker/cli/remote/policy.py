"""`gpubroker policy` through a team server."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.remote import group_of, through

app = typer.Typer(
    cls=group_of("broker.cli.policy.policy:app"),
    no_args_is_help=True,
    help="Policies of the server: those in force, and their versions.",
)


@app.callback()
def policy() -> None:
    """Policies of the server: those in force, and their versions."""


@app.command(epilog=examples("gpubroker policy show", "gpubroker policy show --files", "gpubroker policy show --json"))
def show(
    context: typer.Context,
    files: Annotated[bool, typer.Option("--files", help="Print the active files, if you may see all teams.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the active policy: its rules with file and line, approvers, and who activated it. In a team: the rules that
    name no other team."""
    from broker.cli.remote.tables import table, text
    from broker.cli.remote.view import when
    from broker.cli.render import formats

    terminal, api = through(context)
    found = api.get("/policies", files=True if files else None)
    active = found["active"]
    if as_json:
        terminal.answer(found)
    elif active is None:
        terminal.show("No policy is active: nothing that costs real money is launched.")
    elif active.get("files"):
        for name, said in active["files"].items():
            terminal.show(f"# {name}", said)
    else:
        terminal.show(f"Version {active['number']} by {active['by']}, {formats.moment(when(active['activated_at']))}")
        columns = (
            text("name", "rule"), text("kind"), text("scope", "for", folds=True), text("when", rank=3, folds=True),
            text("approvers", rank=1, folds=True), text("source", "written at", 2),
        )  # fmt: skip
        terminal.show(*table(terminal.out, columns, active["rules"], "no rule concerns your teams"))


@app.command(epilog=examples("gpubroker policy versions", "gpubroker policy versions --json"))
def versions(context: typer.Context, as_json: AsJson = False) -> None:
    """List every version of the policy: when it was applied, by whom, and why. The newest is active."""
    from broker.cli.remote.tables import number, table, text, time

    terminal, api = through(context)
    found = api.get("/policies/versions")
    if as_json:
        terminal.answer(found)
        return
    columns = (
        number("number"), time("activated_at", "activated"), text("by"), text("file_names", "files", 1, folds=True),
        text("note", rank=2, folds=True),
    )  # fmt: skip
    terminal.show(*table(terminal.out, columns, found["versions"], "No policy was ever applied."))
