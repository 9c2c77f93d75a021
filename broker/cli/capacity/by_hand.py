"""`gpubroker capacity checklist | proof`: capacity that a person buys where gpubroker has no interface."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from broker.cli import completion
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput


def register(app: typer.Typer) -> None:
    """Add the commands to `gpubroker capacity`."""
    app.command("checklist", epilog=examples("gpubroker capacity checklist coreweave"))(checklist)
    app.command("proof", epilog=examples("gpubroker capacity proof 3 --to contract.pdf"))(proof)


def checklist(
    context: typer.Context,
    provider: Annotated[
        str, typer.Argument(metavar="PROVIDER", autocompletion=completion.providers, help="Provider to buy from.")
    ],
    unlike: Annotated[
        bool, typer.Option("--unlike", help="The name is not misspelt, although it is like that of a known provider.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List what a person does to buy capacity from a provider that sells none through gpubroker. Changes nothing."""
    from rich.text import Text

    from broker.app.capacity.checklist import checklist as made

    terminal = Terminal.of(context)
    found = made(terminal.broker(), provider, unlike=unlike)
    if as_json:
        from broker.app.results.capacity import PurchaseChecklistResult

        terminal.answer(PurchaseChecklistResult.of(found))
        return
    if found.sells:
        kinds = ", ".join(kind.replace("_", "-") for kind in found.sells)
        terminal.show(f"gpubroker buys at {found.provider} itself ({kinds}): gpubroker capacity quote --help", "")
    for number, (what, command) in enumerate(found.steps, 1):
        terminal.show(f"[ ] {number}. {what}")
        if command:
            terminal.show(Text(f"       {command}", style="dim"))


def proof(
    context: typer.Context,
    number: Annotated[int, typer.Argument(min=1, help="Number in `gpubroker capacity list`.")],
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="Where to write it; must not exist.")],
    as_json: AsJson = False,
) -> None:
    """Write the document that was kept with a record: the same bytes, checked by their SHA-256."""
    from hashlib import sha256

    from broker.app.capacity.capacity import proof_of
    from broker.app.results.capacity import HoldingProofResult

    terminal = Terminal.of(context)
    name, content = proof_of(terminal.broker(), number)
    try:
        with os.fdopen(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    except OSError as error:
        raise InvalidInput(
            f"cannot be written: {error.strerror}", where=str(to), hint="--to names a new file"
        ) from error
    digest = sha256(content).hexdigest()
    terminal.result(
        lambda: HoldingProofResult(number=number, file=str(to), name=name, size_bytes=len(content), sha256=digest),
        lambda: [f"{to}: {name}, {len(content):,} bytes, SHA-256 {digest}"],
    )
