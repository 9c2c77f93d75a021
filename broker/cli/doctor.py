"""`gpubroker doctor`: what works here, what is missing, how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from broker.app.doctor import Finding
    from broker.app.wiring import Broker

EXAMPLES = examples("gpubroker doctor", "gpubroker doctor --rebuild", "gpubroker doctor --json")


def doctor(
    context: typer.Context,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Also prove that jobs and balances follow from the events, and the ledger balances."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also what each optional part adds, and how to install it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What works here, what is missing, and how to mend it. Exits with 2 when something is broken."""
    from broker.app import doctor as use_case

    terminal = Terminal.of(context)

    def open_broker() -> Broker:
        return terminal.broker(look_after=False)

    found = list(use_case.examine(open_broker))
    if rebuild and use_case.healthy([one for one in found if one.area in ("settings", "store")]):
        found += use_case.prove(open_broker())
    healthy = use_case.healthy(found)
    if as_json:
        terminal.answer({"healthy": healthy, "findings": found})
    else:
        terminal.show(_table(found))
        if verbose:
            terminal.show(*_optional_parts(found))
        terminal.show("" if healthy else "Something is broken: see what is marked ✗ above.")
    if not healthy:
        raise typer.Exit(2)


def _optional_parts(findings: Sequence[Finding]) -> list[str]:
    adds: dict[str, str] = next((f.facts["adds"] for f in findings if "adds" in f.facts), {})
    return [f"  pip install 'gpubroker[{extra}]' adds {what}" for extra, what in adds.items()]


def _table(findings: Sequence[Finding]) -> Table:
    from rich.table import Table
    from rich.text import Text

    marks = {"ok": ("✓", "green"), "note": ("–", "yellow"), "problem": ("✗", "bold red")}
    table = Table.grid(padding=(0, 1))
    for finding in findings:
        message = Text(finding.message)
        if finding.fix and finding.health != "ok":
            message.append("\nmend it: ", style="cyan")
            message.append(finding.fix)
        table.add_row(Text(*marks[finding.health]), Text(finding.area, style="bold"), message)
    return table
