"""`gpubroker jobs prune`: delete checkpoints of jobs that have ended."""

from __future__ import annotations

from typing import Annotated

import typer

from broker.cli import filters
from broker.cli.options import AsJson, examples
from broker.cli.terminal import Terminal

EXAMPLES = examples("gpubroker jobs prune --dry-run", "gpubroker jobs prune --keep 7d --newest-too --yes")


def prune(
    context: typer.Context,
    keep: Annotated[
        str, typer.Option(metavar="TIME", help="Keep checkpoints of jobs that ended within this time: 30d, 12h.")
    ] = "30d",
    newest_too: Annotated[
        bool, typer.Option("--newest-too", help="Also delete each job's newest checkpoint, which may be its result.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete checkpoints of your ended jobs, except each job's newest, and what the active policy no longer keeps.

    A policy sets `keep_checkpoints`, `keep_results` and `keep_logs` under `defaults:`. For a job that has not ended,
    `checkpoint.keep` in its file sets how many are kept. Events and costs of jobs are never deleted.
    """
    from broker.app.jobs.retention import delete_overdue, overdue
    from broker.app.jobs.retention import prune as prune_checkpoints
    from broker.cli.render import formats
    from broker.core.errors import InvalidInput
    from broker.placement.formats import gigabytes

    terminal = Terminal.of(context)
    broker = terminal.broker()
    before = broker.clock.now() - filters.time_span("--keep", keep)
    found = prune_checkpoints(broker, before, by=terminal.actor, newest_too=newest_too, dry_run=True)
    policy = overdue(broker, by=terminal.actor, besides=found)
    count = formats.plural(sum(len(one.gone) for one in found), "checkpoint")
    what = f"{count} of {formats.plural(len(found), 'job')}, {gigabytes(sum(one.size for one in found))}"
    if policy:
        files = formats.plural(sum(one.count for one in policy), "file")
        what += f"; by the policy {files}, {gigabytes(sum(one.size for one in policy))}"
    doing = bool(found or policy) and not dry_run
    if doing and not yes:
        if as_json or not terminal.out.is_terminal:
            raise InvalidInput(f"deleting {what} needs confirmation", hint="add --yes, or --dry-run")
        doing = typer.confirm(f"Delete {what}?", default=False, err=True)
    if doing:
        found = prune_checkpoints(broker, before, by=terminal.actor, newest_too=newest_too)
        policy = overdue(broker, by=terminal.actor)  # again: since the question, a job may have begun to need them
        delete_overdue(broker, policy)
    if as_json:
        from broker.app.results.pruned import PrunedCheckpoints

        terminal.answer(PrunedCheckpoints.of(found, policy, before, deleted=doing))
        return
    if not found and not policy:
        terminal.show(f"No job that ended before {formats.moment(before)} has checkpoints to delete.")
        return
    for one in found:
        stays = "the newest is kept" if one.stays else "none is kept"
        terminal.show(f"{one.view.id}: {formats.plural(len(one.gone), 'checkpoint')}, {gigabytes(one.size)}; {stays}")
    for late in policy:
        kinds = [f"{len(paths)} files of {kind}" for kind, paths in late.files.items()]
        kinds += [formats.plural(len(late.checkpoints), "checkpoint")] if late.checkpoints else []
        terminal.show(f"{late.view.id}: {', '.join(kinds)}, {gigabytes(late.size)}; the policy no longer keeps them")
    terminal.show(f"Deleted {what}." if doing else f"Would delete {what}.")
