"""`gpubroker ssh`: OpenSSH to a running job, and the job as a host for editors, rsync and scp."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from broker.cli.jobs.entering import Identity, Node, tell_of_simulation
from broker.cli.jobs.given_job import TakesCommand, command_of
from broker.cli.options import JobReference, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples(
    "gpubroker ssh my-session",
    "gpubroker ssh my-session -- nvidia-smi",
    "gpubroker ssh my-session --forward 6006",
    "gpubroker ssh my-session --jupyter",
    "gpubroker ssh my-session --config --identity ~/.ssh/id_ed25519",
)
COMMAND_CLASS = TakesCommand


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
) -> None:
    """Open an SSH connection to a running job, on any engine; with a command after `--`, run it there.

    The block that --config prints names a key file and contains no key. Its host is the job's name as given here, so it
    also serves later sessions with that name.

    The machine needs OpenSSH's sshd, but no open port and no root: it serves this one connection through the engine, as
    the job's own user, for your key alone. Exits as `ssh` does.
    """
    from broker.app.jobs import jobs
    from broker.app.jobs.sessions import jupyter_of
    from broker.app.jobs.ssh import access, tunnel

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view = jobs.find_single(broker, job)
    if not config:
        tell_of_simulation(terminal, view)
    found = access(broker, view, job, node=node, identity=identity, by=terminal.actor)
    if config:
        terminal.show(found.block)
        return
    extra = [word for one in forward or () for word in tunnel(one)]
    if jupyter:
        server = jupyter_of(broker, view, node=node, by=terminal.actor)
        extra += [*tunnel(str(server.port)), "-N"]
        terminal.show(f"http://127.0.0.1:{server.port}/?token={server.token}")
        terminal.say("Ctrl-C closes the connection; Jupyter keeps running.")
    asked = command_of(context)
    words = [*found.words[:-1], *extra, found.words[-1], *(["--", *asked] if asked else [])]
    terminal.close()
    sys.stdout.flush()
    os.execv(words[0], words)  # noqa: S606 (OpenSSH, and options of ours; it gets this terminal)
