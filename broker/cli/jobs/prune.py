"""`gpubroker jobs prune`: delete files of jobs that have ended."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.app.jobs.pruning import Prunable

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
    """Delete files of your ended jobs: checkpoints except each job's newest, files that the active policy no longer
    keeps, and submitted files that are used neither by an open job nor by one with results or checkpoints left.

    A policy sets `keep_checkpoints`, `keep_results`, `keep_logs` and `keep_snapshots` under `defaults:`. For a job that
    has not ended, `checkpoint.keep` in its file sets how many are kept. Events and costs of jobs are never deleted. A
    folder that cannot be read is reported at the end (exit code 5); the others are deleted nevertheless.
    """
    from broker.app.jobs.pruning import prunable, pruned
    from broker.core.errors import InvalidInput, Unreachable

    terminal = Terminal.of(context)
    broker = terminal.broker()
    before = broker.clock.now() - filters.time_span("--keep", keep)
    found = prunable(broker, before, by=terminal.actor, newest_too=newest_too)
    doing = bool(found) and not dry_run
    if doing and not yes:
        if as_json or not terminal.out.is_terminal:
            raise InvalidInput(f"deleting {_summary(found)} needs confirmation", hint="add --yes, or --dry-run")
        doing = typer.confirm(f"Delete {_summary(found)}?", default=False, err=True)
    if doing:
        found = pruned(broker, before, by=terminal.actor, newest_too=newest_too)
    if as_json:
        from broker.app.results.pruned import PrunedCheckpoints

        terminal.answer(PrunedCheckpoints.of(found, before, deleted=doing))
    else:
        _show(terminal, found, before, deleted=doing)
    if found.trouble:
        many = formats.plural(len(found.trouble), "folder")
        terminal.say(*(f"{name}: {why}" for name, why in found.trouble.items()))
        error = Unreachable(f"{many} could not be read or emptied", hint="the others were processed; run it again")
        raise typer.Exit(error.exit_code if as_json else terminal.refuse(error))


def _show(terminal: Terminal, found: Prunable, before: datetime, *, deleted: bool) -> None:
    from broker.placement.formats import gigabytes

    if not found:
        terminal.show(f"No job that ended before {formats.moment(before)} has files to delete.")
        return
    for one in found.checkpoints:
        stays = "the newest is kept" if one.stays else "none is kept"
        terminal.show(f"{one.view.id}: {formats.plural(len(one.gone), 'checkpoint')}, {gigabytes(one.size)}; {stays}")
    for late in found.by_policy:
        kinds = [f"{len(paths)} files of {kind}" for kind, paths in late.files.items()]
        kinds += [formats.plural(len(late.checkpoints), "checkpoint")] if late.checkpoints else []
        terminal.show(f"{late.view.id}: {', '.join(kinds)}, {gigabytes(late.size)}; the policy no longer keeps them")
    for pool in found.snapshots:
        many = formats.plural(len(pool.found.contents), "file")
        terminal.show(f"submitted by {pool.user}: {many}, {gigabytes(pool.found.size)}; no job needs them any more")
    terminal.show(f"Deleted {_summary(found)}." if deleted else f"Would delete {_summary(found)}.")


def _summary(found: Prunable) -> str:
    """``2 checkpoints of 1 job, 1.2 GB; by the policy 3 files, 4 MB; 12 files of snapshots, 1 GB``."""
    from broker.placement.formats import gigabytes

    parts = []
    if found.checkpoints:
        count = formats.plural(sum(len(one.gone) for one in found.checkpoints), "checkpoint")
        size = gigabytes(sum(one.size for one in found.checkpoints))
        parts.append(f"{count} of {formats.plural(len(found.checkpoints), 'job')}, {size}")
    if found.by_policy:
        files = formats.plural(sum(one.count for one in found.by_policy), "file")
        parts.append(f"by the policy {files}, {gigabytes(sum(one.size for one in found.by_policy))}")
    if found.snapshots:
        files = formats.plural(sum(len(one.found.contents) for one in found.snapshots), "file")
        parts.append(f"{files} of snapshots, {gigabytes(sum(one.found.size for one in found.snapshots))}")
    return "; ".join(parts) or "nothing"
