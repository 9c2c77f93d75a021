"""`gpubroker exec` and `gpubroker jobs attach`: programs and shells beside a job's command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import JobReference, examples
from broker.cli.terminal import Terminal
from broker.core.events.outcomes import AttemptState

if TYPE_CHECKING:
    from broker.core.events.views import JobView

EXAMPLES = examples("gpubroker exec bert -- nvidia-smi", "gpubroker exec bert -- python -c 'print(1)'")
ATTACH_EXAMPLES = examples("gpubroker jobs attach bert")

Node = Annotated[int | None, typer.Option("--node", min=0, help="The node of a multi-node job; 0 is the first.")]


def exec_(
    context: typer.Context,
    job: JobReference,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="The program and its arguments.")],
    node: Node = None,
) -> None:
    """Run a program beside the command of a running job: as its user, in its folder, with its variables and CPUs.

    Works on every engine: through Slurm's `srun`, through SkyPilot's SSH configuration, at once on this machine and for
    simulated machines. The program ends with the job's attempt, and the job's history names who ran it. Exits with the
    program's exit status, 127 if it cannot be started.
    """
    _enter(context, job, command, node)


def attach(context: typer.Context, job: JobReference, node: Node = None) -> None:
    """Open a shell beside the command of a running job. See `gpubroker exec`."""
    _enter(context, job, [], node)


def tell_of_simulation(terminal: Terminal, view: JobView) -> None:
    """Print a message if the job's machine is simulated: the program then runs on this machine."""
    from broker.core.market.offers import MoneyKind

    latest = view.latest
    if latest is not None and latest.state is AttemptState.RUNNING and latest.placement.money is MoneyKind.SANDBOX:
        terminal.say("the machine is simulated: the program runs on this one")


def _enter(context: typer.Context, job: str, command: list[str], node: int | None) -> None:
    from broker.app.jobs import jobs
    from broker.app.jobs.entering import enter

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view = jobs.find_single(broker, job)
    tell_of_simulation(terminal, view)
    status = enter(broker, view, command, node=node, by=terminal.actor)
    if status:
        raise typer.Exit(status)
