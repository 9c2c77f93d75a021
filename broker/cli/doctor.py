"""`gpubroker doctor`: what works here, what is missing, how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from rich.text import Text

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
        terminal.show(*(_line(one) for one in found))
        terminal.show("" if healthy else "Something is broken: see what is marked ✗ above.")
    if not healthy:
        raise typer.Exit(2)


def _line(finding: Finding) -> Text:
    from rich.text import Text

    marks = {"ok": ("✓", "green"), "note": ("–", "yellow"), "problem": ("✗", "bold red")}
    mark, style = marks[finding.health]
    text = Text.assemble((f"{mark} ", style), (f"{finding.area:<11}", "bold"), finding.message)
    if finding.fix and finding.health != "ok":
        text.append(f"\n{'':13}mend it: ", style="cyan")
        text.append(finding.fix)
    return text
