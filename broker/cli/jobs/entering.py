"""`gpubroker exec` and `gpubroker jobs attach`: programs and shells beside a job's command; `gpubroker ssh-config`: the
job as a host for OpenSSH, editors, rsync and scp."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.options import JobReference, examples
from broker.cli.terminal import Terminal
from broker.core.events.outcomes import AttemptState

if TYPE_CHECKING:
    from broker.core.events.views import JobView

EXAMPLES = examples("gpubroker exec bert -- nvidia-smi", "gpubroker exec bert -- python -c 'print(1)'")
ATTACH_EXAMPLES = examples("gpubroker jobs attach bert")

SSH_CONFIG_EXAMPLES = examples(
    "gpubroker ssh-config my-session", "gpubroker ssh-config my-session --identity ~/.ssh/id_ed25519"
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


def ssh_config(context: typer.Context, job: JobReference, node: Node = None, identity: Identity = None) -> None:
    """Print a Host block for `~/.ssh/config`: for VS Code (Remote-SSH), rsync, scp and other programs.

    The block names a key file and contains no key. The host is the job's name as given here, so the block also serves
    later sessions with that name.
    """
    from broker.app.jobs import jobs
    from broker.app.jobs.ssh import access

    terminal = Terminal.of(context)
    broker = terminal.broker()
    found = access(broker, jobs.find_single(broker, job), job, node=node, identity=identity, by=terminal.actor)
    terminal.show(found.block)


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
