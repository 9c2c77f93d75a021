"""`gpubroker schema`: the JSON Schema of what commands print with --json, of job files and of policy files."""

from typing import Annotated

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples(
    "gpubroker schema", "gpubroker schema plan", "gpubroker schema job-file", "gpubroker schema policy-file"
)


def schema(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Document. Default: list the names.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the JSON Schema of a command's --json output, of job files or of policy files, for editors too; without a
    name, list the names."""
    from broker.app.use_cases.catalogue import NAMES, POLICY_FILE, schema_of

    terminal = Terminal.of(context)
    if name == POLICY_FILE:
        terminal.answer(terminal.registries().policy_schema())
    elif name is not None:
        terminal.answer(schema_of(name))
    elif as_json:
        terminal.answer({"schemas": list(NAMES)})
    else:
        terminal.show(*NAMES)
