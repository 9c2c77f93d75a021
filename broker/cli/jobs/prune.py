"""`gpubroker jobs prune`: delete files of jobs that have ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli import filters
from broker.cli.options import AsJson, examples
from broker.cli.render import formats
from broker.cli.terminal import Terminal

if TYPE_CHECKING:
    from broker.app.results.pruned import PrunedCheckpoints

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
    from broker.app.results.pruned import PrunedCheckpoints
    from broker.core.errors import InvalidInput, Unreachable

    terminal = Terminal.of(context)
    broker = terminal.broker()
    before = broker.clock.now() - filters.time_span("--keep", keep)
    seen = prunable(broker, before, by=terminal.actor, newest_too=newest_too)
    doing, found = bool(seen) and not dry_run, PrunedCheckpoints.of(seen, before, deleted=False)
    if doing and not yes:
        if as_json or not terminal.out.is_terminal:
            raise InvalidInput(f"deleting {_summary(found)} needs confirmation", hint="add --yes, or --dry-run")
        doing = typer.confirm(f"Delete {_summary(found)}?", default=False, err=True)
    if doing:
        gone = pruned(broker, before, by=terminal.actor, newest_too=newest_too)
        found = PrunedCheckpoints.of(gone, before, deleted=True)
    terminal.result(found, lambda: _lines(found))
    if found.trouble:
        many = formats.plural(len(found.trouble), "folder")
        terminal.say(*(f"{name}: {why}" for name, why in found.trouble.items()))
        error = Unreachable(f"{many} could not be read or emptied", hint="the others were processed; run it again")
        raise typer.Exit(error.exit_code if as_json else terminal.refuse(error))


def _lines(found: PrunedCheckpoints) -> Iterator[str]:
    from broker.core.values.figures import gigabytes

    if not (found.jobs or found.by_policy or found.snapshots):
        yield f"No job that ended before {formats.moment(found.before)} has files to delete."
        return
    for job in found.jobs:
        stays = "the newest is kept" if job.stays else "none is kept"
        size = gigabytes(sum(one.bytes for one in job.gone))
        yield f"{job.id}: {formats.plural(len(job.gone), 'checkpoint')}, {size}; {stays}"
    for late in found.by_policy:
        counts = (("results", late.results), ("logs", late.logs))
        kinds = [f"{count} files of {kind}" for kind, count in counts if count]
        kinds += [formats.plural(late.checkpoints, "checkpoint")] if late.checkpoints else []
        yield f"{late.id}: {', '.join(kinds)}, {gigabytes(late.bytes)}; the policy no longer keeps them"
    for pool in found.snapshots:
        many = formats.plural(pool.files, "file")
        yield f"submitted by {pool.user}: {many}, {gigabytes(pool.bytes)}; no job needs them any more"
    yield f"Deleted {_summary(found)}." if found.deleted else f"Would delete {_summary(found)}."


def _summary(found: PrunedCheckpoints) -> str:
    """``2 checkpoints of 1 job, 1.2 GB; by the policy 3 files, 4 MB; 12 files of snapshots, 1 GB``."""
    from broker.core.values.figures import gigabytes

    parts = []
    if gone := [one for job in found.jobs for one in job.gone]:
        jobs, size = formats.plural(len(found.jobs), "job"), gigabytes(sum(one.bytes for one in gone))
        parts.append(f"{formats.plural(len(gone), 'checkpoint')} of {jobs}, {size}")
    if late := found.by_policy:
        files = formats.plural(sum(one.results + one.logs + one.checkpoints for one in late), "file")
        parts.append(f"by the policy {files}, {gigabytes(sum(one.bytes for one in late))}")
    if pools := found.snapshots:
        files = formats.plural(sum(one.files for one in pools), "file")
        parts.append(f"{files} of snapshots, {gigabytes(sum(one.bytes for one in pools))}")
    return "; ".join(parts) or "nothing"
