"""`gpubroker ssh-proxy`: the ProxyCommand of `gpubroker ssh`."""

from __future__ import annotations

import typer

from broker.cli.jobs.entering import Identity, Node
from broker.cli.options import JobReference, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples("gpubroker ssh-proxy my-session")
HIDDEN = True


def ssh_proxy(context: typer.Context, job: JobReference, node: Node = None, identity: Identity = None) -> None:
    """Carry one SSH connection to a running job, with OpenSSH's client at the standard streams: what `gpubroker ssh
    --config` names as ProxyCommand."""
    from broker.app.jobs import jobs
    from broker.app.jobs.ssh import proxy

    terminal = Terminal.of(context)
    broker = terminal.broker()
    status = proxy(broker, jobs.find_single(broker, job), job, node=node, identity=identity, by=terminal.actor)
    if status:
        raise typer.Exit(status)
