"""`gpubroker capacity check`: compare what providers list with what was bought and recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.text import Text

from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.app.capacity.check import CapacityCheck
    from broker.procurement.comparing import CapacityDifference


def register(app: typer.Typer) -> None:
    """Add the command to ``app``, the group `gpubroker capacity`."""
    app.command(epilog=examples("gpubroker capacity check", "gpubroker capacity check --json"))(check)


def check(context: typer.Context, as_json: AsJson = False) -> None:
    """Compare what providers list with what was bought and recorded here. Changes nothing.

    Exits with 2 if they differ, and with 5 if a provider did not answer or none could be asked. `gpubroker serve` runs
    this check every hour.
    """
    from broker.app.capacity import check as use_case

    terminal = Terminal.of(context)
    found = use_case.check(terminal.broker())
    if as_json:
        from broker.app.results.purchases import CapacityCheckResult

        terminal.answer(CapacityCheckResult.of(found))
    else:
        for one in found.differences:
            terminal.show(_difference(one))
        terminal.show(*_summary(found))
    if found.differences or found.problems or not found.asked:
        raise typer.Exit(2 if found.differences else 5)


def _difference(one: CapacityDifference) -> Text:
    kind = one.kind.replace("_", " ")
    return Text(f"{one.provider}/{one.region}  {one.order}  {kind}", style="yellow").append(f"\n  {one.told}", style="")


def _summary(found: CapacityCheck) -> list[Text]:
    failed = [Text(f"{name} could not be queried: {problem}", style="yellow") for name, problem in found.problems]
    if not found.asked:
        told = "No provider answered: this machine has no login to a provider that lists an account's capacity."
        return [*failed, Text(f"{told} `gpubroker doctor` explains how to log in.", style="yellow")]
    differ = formats.plural(len(found.differences), "difference")
    holds = formats.plural(found.listed, "reservation or commitment", "reservations and commitments")
    return [*failed, Text(f"{differ}; {', '.join(found.asked)} list{'s' if len(found.asked) == 1 else ''} {holds}")]
