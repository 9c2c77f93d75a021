"""`gpubroker schema`: the JSON Schema of what commands print with --json, and of job files."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples("gpubroker schema", "gpubroker schema plan", "gpubroker schema job-file")


def schema(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Document. Default: list the names.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the JSON Schema of a command's --json output, or of job files; without a name, list the names.

    Use `gpubroker policy schema` for policy files.
    """
    from broker.app.results.catalogue import NAMES, schema_of

    terminal = Terminal.of(context)
    if name is not None:
        terminal.answer(schema_of(name))
    elif as_json:
        terminal.answer({"schemas": list(NAMES)})
    else:
        terminal.show(*NAMES)
