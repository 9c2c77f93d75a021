"""`gpubroker exec`: programs and shells inside a running job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import JobReference, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.events.outcomes import AttemptState

if TYPE_CHECKING:
    from broker.core.events.views import JobView

EXAMPLES = examples(
    "gpubroker exec -it bert", "gpubroker exec bert -- nvidia-smi", "gpubroker exec bert -- python -c 'print(1)'"
)

Node = Annotated[int | None, typer.Option("--node", min=0, help="The node of a multi-node job; 0 is the first.")]
Identity = Annotated[
    Path | None,
    typer.Option(
        "--identity",
        "-i",
        metavar="FILE",
        help="Your own private key, with FILE.pub beside it (default: one made here).",
    ),
]


def exec_(
    context: typer.Context,
    job: JobReference,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="The program and its arguments.", show_default=False),
    ] = None,
    shell: Annotated[bool, typer.Option("-i", "-t", help="Without a command, open a shell.")] = False,
    node: Node = None,
) -> None:
    """Run a command inside a running job: as its user, in its folder, with its variables and CPUs.

    Works on every engine: through Slurm's `srun`, through SkyPilot's SSH configuration, at once on this machine and for
    simulated machines. The program ends with the job's attempt, and the job's history names who ran it. Exits with the
    program's exit status, 127 if it cannot be started.
    """
    from broker.app.jobs import jobs
    from broker.app.jobs.entering import enter

    terminal = Terminal.of(context)
    if not (command or shell):
        raise InvalidInput("the command is missing", hint=f"gpubroker exec {job} -- COMMAND, or -it for a shell")
    broker = terminal.broker()
    view = jobs.find_single(broker, job)
    tell_of_simulation(terminal, view)
    if status := enter(broker, view, command or [], node=node, by=terminal.actor):
        raise typer.Exit(status)


def tell_of_simulation(terminal: Terminal, view: JobView) -> None:
    """Print a message if the job's machine is simulated: the program then runs on this machine."""
    from broker.core.market.offers import MoneyKind

    latest = view.latest
    if latest is not None and latest.state is AttemptState.RUNNING and latest.placement.money is MoneyKind.SANDBOX:
        terminal.say("the machine is simulated: the program runs on this one")
