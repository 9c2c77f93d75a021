"""`gpubroker audit`: who changed what on a team server."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples("gpubroker audit", "gpubroker audit --person ann --limit 200", "gpubroker audit --json")


def audit(
    context: typer.Context,
    person: Annotated[str | None, typer.Option("--person", help="Only changes by this person.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="Only changes of this job, person or token.")] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=10_000, help="Maximum lines (a server: 1,000).")
    ] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the audit log, newest line first: who changed what, from where, before and after.

    It cannot be edited. It contains changes of people and tokens, and every change made through the API. What a job's
    owner does on this machine is recorded in the job's events.
    """
    from broker.app.access.audit import audit_log
    from broker.app.results.access import AuditLog
    from broker.cli.access import view

    terminal = Terminal.of(context)
    wanted: dict[str, Any] = {"person": person, "subject": subject, "limit": limit}
    if terminal.through_server:
        found = terminal.api.fetch(AuditLog, "/audit", **wanted)
    else:
        found = AuditLog.of(audit_log(terminal.broker(), by=terminal.actor, **wanted))
    terminal.result(found, lambda: view.audit_table(terminal.out, found))
