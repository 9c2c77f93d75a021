"""`gpubroker ssh-config`: a running job as a host for OpenSSH, editors, rsync and scp."""

from __future__ import annotations

import typer

from broker.cli.jobs.entering import Node
from broker.cli.jobs.ssh import Identity
from broker.cli.options import JobReference, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples("gpubroker ssh-config my-session", "gpubroker ssh-config my-session --identity ~/.ssh/id_ed25519")


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
