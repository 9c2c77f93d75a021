"""`gpubroker exec` and `ssh`: programs, shells and OpenSSH inside a running job, also for editors, rsync and scp."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.jobs.job_options import TakesCommand, command_after_dashes
from broker.cli.options import JobReference, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput
from broker.core.events.outcomes import AttemptState

if TYPE_CHECKING:
    from broker.core.events.views import JobView

EXEC_EXAMPLES = examples(
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
    from broker.app.jobs.sessions import run_in_job

    terminal = Terminal.of(context)
    if not (command or shell):
        raise InvalidInput("the command is missing", hint=f"gpubroker exec {job} -- COMMAND, or -it for a shell")
    broker = terminal.broker()
    view = jobs.find_single(broker, job)
    warn_if_simulated(terminal, view)
    if status := run_in_job(broker, view, command or [], node=node, by=terminal.actor):
        raise typer.Exit(status)


def warn_if_simulated(terminal: Terminal, view: JobView) -> None:
    """Print a message if the job's machine is simulated: the program then runs on this machine."""
    from broker.core.market.offers import MoneyKind

    latest = view.latest
    if latest is not None and latest.state is AttemptState.RUNNING and latest.placement.money is MoneyKind.SANDBOX:
        terminal.say("the machine is simulated; the program runs on this machine")


SSH_EXAMPLES = examples(
    "gpubroker ssh my-session",
    "gpubroker ssh my-session -- nvidia-smi",
    "gpubroker ssh my-session --forward 6006",
    "gpubroker ssh my-session --jupyter",
    "gpubroker ssh my-session --config --identity ~/.ssh/id_ed25519",
)
SSH_CLASS = TakesCommand


def ssh(
    context: typer.Context,
    job: JobReference,
    forward: Annotated[
        list[str] | None,
        typer.Option(
            "--forward", "-L", metavar="PORT[:PORT]", help="Reach a port of the job's machine here. Repeatable."
        ),
    ] = None,
    jupyter: Annotated[
        bool, typer.Option("--jupyter", help="Reach the session's Jupyter here, and print its address.")
    ] = False,
    config: Annotated[
        bool, typer.Option("--config", help="Instead, print a Host block for ~/.ssh/config: for editors, rsync, scp.")
    ] = False,
    node: Node = None,
    identity: Identity = None,
    is_proxy: Annotated[
        bool,
        typer.Option("--proxy", hidden=True, help="Carry a connection of OpenSSH's client at the standard streams."),
    ] = False,
) -> None:
    """Open an SSH connection to a running job, on any engine; with a command after `--`, run it there.

    The block that --config prints names a key file and contains no key. Its host is the job's name as given here, so it
    also serves later sessions with that name.

    The machine needs OpenSSH's sshd, but no open port and no root: it serves this one connection through the engine, as
    the job's own user, for your key alone. Exits as `ssh` does.
    """
    from broker.app.jobs import jobs
    from broker.app.jobs.sessions import jupyter_server
    from broker.app.jobs.ssh import access, proxy, tunnel_options

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view = jobs.find_single(broker, job)
    if is_proxy:  # the ProxyCommand of `--config`
        raise typer.Exit(proxy(broker, view, job, node=node, identity=identity, by=terminal.actor))
    if not config:
        warn_if_simulated(terminal, view)
    ssh_access = access(broker, view, job, node=node, identity=identity, by=terminal.actor)
    if config:
        terminal.show(ssh_access.block)
        return
    extra_options = [option for ports in forward or () for option in tunnel_options(ports)]
    if jupyter:
        server = jupyter_server(broker, view, node=node, by=terminal.actor)
        extra_options += [*tunnel_options(str(server.port)), "-N"]
        terminal.show(f"http://127.0.0.1:{server.port}/?token={server.token}")
        terminal.say("Ctrl-C closes the connection; Jupyter keeps running.")
    remote_command = command_after_dashes(context)
    client_command = [
        *ssh_access.words[:-1],
        *extra_options,
        ssh_access.words[-1],
        *(["--", *remote_command] if remote_command else []),
    ]
    terminal.close()
    sys.stdout.flush()
    os.execv(client_command[0], client_command)  # noqa: S606 (OpenSSH, and options of ours; it gets this terminal)
