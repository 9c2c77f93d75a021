"""`gpubroker jobs files`, `get`, `diff` and `prune`: results, checkpoints and submitted files of jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from broker.cli import filters
from broker.cli.gathered import gathered
from broker.cli.options import AsJson, JobReference, examples
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, listed
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput, Malformed
from broker.core.values.figures import gigabytes

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from broker.app.jobs.pruning import PrunedCheckpoints
    from broker.app.results.kept_files import (
        FetchedFilesResult,
        FinishedCheckpointResult,
        JobCheckpoints,
        JobDifference,
        JobOutputs,
        JobSources,
        OutputResult,
        SourceEntry,
    )
    from broker.core.job.snapshots import GitState

FILES_EXAMPLES = examples(
    "gpubroker jobs files bert",
    "gpubroker jobs files bert --attempt 1 --json",
    "gpubroker jobs files bert --checkpoints",
    "gpubroker jobs files bert --submitted",
)
GET_EXAMPLES = examples(
    "gpubroker jobs get bert",
    "gpubroker jobs get bert results/ --to here",
    "gpubroker jobs get bert '*.json'",
    "gpubroker jobs get bert --checkpoint latest",
    "gpubroker jobs get sweep 'metrics.json' --to all",
)
DIFF_EXAMPLES = examples("gpubroker jobs diff bert bert-2", "gpubroker jobs diff bert bert-2 --json")

_TO = "Target folder (default: ./JOB-ID; in the job's work folder ../JOB-ID, beside it)."
Attempt = Annotated[int | None, typer.Option("--attempt", "-a", min=1, help="Only files that this attempt wrote.")]


@dataclass(frozen=True)
class WantedFiles:
    """Which files are fetched, and to where."""

    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", help="A result, a folder of results, or a pattern; all by default."),
    ] = None
    to: Annotated[Path | None, typer.Option("--to", metavar="DIR", help=_TO)] = None
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="STEP", help="Fetch this checkpoint instead: step, ID, or latest."),
    ] = None
    attempt: Attempt = None

    def into(self, id: str, workdir: str | None = None) -> Path:
        """The target folder: beside ``workdir``, the job's work folder, if the command runs there, because the next
        job would be submitted with the results."""
        if self.to is None and workdir and Path.cwd().is_relative_to(workdir):
            beside = Path(workdir).parent
            if os.access(beside, os.W_OK):
                return Path(os.path.relpath(beside / id))
        return self.to if self.to is not None else Path(id)


def files(
    context: typer.Context,
    job: JobReference,
    attempt: Attempt = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Instead, its checkpoints: step, time, size, how many are kept.")
    ] = False,
    submitted: Annotated[
        bool,
        typer.Option("--submitted", help="Instead, the files that it was submitted with; not through a server."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List a job's results: files under `outputs:` of its job file, and everything in $GPUBROKER_OUTPUT_DIR.

    If several attempts wrote a file, the newest version is listed.
    """
    from broker.app.results.kept_files import JobOutputs

    terminal = Terminal.of(context)
    terminal.only_here({"--submitted": submitted})
    if checkpoints + submitted + (attempt is not None) > 1:
        raise InvalidInput("give one of --attempt, --checkpoints and --submitted")
    if checkpoints or submitted:
        (_checkpoints if checkpoints else _submitted)(terminal, job)
        return
    if terminal.through_server:
        found = terminal.api.fetch(JobOutputs, f"/jobs/{_id(terminal, job)}/files", attempt=attempt)
    else:
        from broker.app.jobs import job_sources, jobs

        broker = terminal.broker()
        found = job_sources.outputs(broker, jobs.find_single(broker, job), attempt)
    terminal.result(found, lambda: outputs(terminal.out, found))


@gathered
def get(context: typer.Context, job: JobReference, wanted: WantedFiles, as_json: AsJson = False) -> None:
    """Fetch a job's results, also while it runs. Repeat the command to continue an interrupted download.

    Of an array, the results of each task are put into a folder named by its number. Every file is verified. Files in
    the target folder that differ are overwritten.
    """

    terminal = Terminal.of(context)
    if wanted.checkpoint is not None and (wanted.path is not None or wanted.attempt is not None):
        raise InvalidInput("--checkpoint fetches a whole checkpoint", hint="remove PATH and --attempt")
    found = (_fetched_from_server if terminal.through_server else _fetched)(terminal, job, wanted)
    terminal.result(found, lambda: [fetched(found)])


def _fetched(terminal: Terminal, job: str, wanted: WantedFiles) -> FetchedFilesResult:
    from broker.app.jobs import jobs, kept_files
    from broker.app.results.kept_files import FetchedFilesResult
    from broker.cli.jobs.snapshot_view import bytes_bar

    broker = terminal.broker()
    whole = wanted.checkpoint is None and wanted.attempt is None
    view = (jobs.find if whole else jobs.find_single)(broker, job)
    into = wanted.into(view.id, view.job.workdir)
    with bytes_bar(terminal, "fetching") as progress:
        if wanted.checkpoint is not None:
            chosen = kept_files.checkpoint(broker, view, wanted.checkpoint)
            done = kept_files.fetch_checkpoint(broker, view, chosen, into, progress)
        elif view.job.array is not None:
            done = kept_files.fetch_array(broker, view, wanted.path, into, progress)
        else:
            found = kept_files.matching(kept_files.outputs(broker, view, wanted.attempt), wanted.path)
            done = kept_files.fetch_outputs(broker, view, found, into, progress)
    return FetchedFilesResult.of(view.id, done)


def _fetched_from_server(terminal: Terminal, job: str, wanted: WantedFiles) -> FetchedFilesResult:
    from broker.app.jobs.kept_files import fetch_files
    from broker.app.results.kept_files import FetchedFilesResult
    from broker.cli.jobs.snapshot_view import bytes_bar
    from broker.remote import output

    api, id = terminal.api, _id(terminal, job)
    if wanted.checkpoint is not None:
        files = output.of_checkpoint(api, id, wanted.checkpoint)
    else:
        files = output.results(api, id, wanted.path, wanted.attempt)
    # The server must not choose where this machine writes, so its work folder does not count either.
    if wanted.to is None and (id == ".." or Path(id).name != id):
        raise Malformed(
            f"the server calls the job {id!r}, which is not a valid folder name", where=api.url, hint="use --to"
        )
    with bytes_bar(terminal, "fetching") as progress:
        return FetchedFilesResult.of(id, fetch_files(files, wanted.into(id), progress))


def _submitted(terminal: Terminal, job: str) -> None:
    from broker.app.jobs import job_sources, jobs

    broker = terminal.broker()
    found = job_sources.sources(broker, jobs.find(broker, job))
    terminal.result(found, lambda: sources(terminal.out, found))


def _checkpoints(terminal: Terminal, job: str) -> None:
    from broker.app.results.kept_files import JobCheckpoints

    if terminal.through_server:
        found = terminal.api.fetch(JobCheckpoints, f"/jobs/{_id(terminal, job)}/checkpoints")
    else:
        from broker.app.jobs import job_sources, jobs

        broker = terminal.broker()
        found = job_sources.checkpoints(broker, jobs.find_single(broker, job))
    terminal.result(found, lambda: checkpoints(terminal.out, found))


def _id(terminal: Terminal, job: str) -> str:
    """The id of the job at the server. Raises as `broker.remote.sending.job_id`."""
    from broker.remote.sending import job_id

    return job_id(terminal.api, job)


def diff(
    context: typer.Context,
    before: JobReference,
    after: Annotated[str, typer.Argument(metavar="OTHER", help="The job to compare with.")],
    as_json: AsJson = False,
) -> None:
    """Show how two jobs differ: job file, Git commit, and submitted files."""
    from broker.app.jobs import job_sources, jobs

    terminal = Terminal.of(context)
    broker = terminal.broker()
    found = job_sources.difference(broker, jobs.find(broker, before), jobs.find(broker, after))
    terminal.result(found, lambda: difference(found))


_SOURCES: tuple[ValueColumn[SourceEntry], ...] = (
    ValueColumn("file", lambda one: _name(one), folds=True),
    ValueColumn("size", lambda one: _size(one), align="right"),
    ValueColumn("mode", lambda one: one.mode, 2),
    ValueColumn("SHA-256", lambda one: one.sha256[:12], 1),
)
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _name(one: SourceEntry | OutputResult) -> str:
    return f"{one.path} → {one.target}" if one.kind == "link" else one.path


def _size(one: SourceEntry | OutputResult) -> str:
    return gigabytes(one.bytes) if one.kind == "file" else one.kind


def outputs(console: Console, found: JobOutputs) -> Iterator[RenderableType]:
    """One row per file, and their folder."""
    from broker.app.results.program_name import program

    if not found.files:
        named = f"; its `outputs:` are {', '.join(found.outputs)}" if found.outputs else ""
        yield Text(f"{found.id} has no results so far{named}")
        yield Text("Results are the files under `outputs:` of the job file and in $GPUBROKER_OUTPUT_DIR.", "dim")
        return
    columns: tuple[ValueColumn[OutputResult], ...] = (
        ValueColumn("file", _name, folds=True),
        ValueColumn("size", _size, align="right"),
        ValueColumn("attempt", lambda one: str(one.attempt), 2, "right"),
        ValueColumn("saved", lambda one: f"{formats.age(found.as_of - one.at)} ago", 1, "right"),
    )
    yield from listed(console, columns, found.files)
    yield Text(f"{formats.plural(len(found.files), 'file')}, {gigabytes(found.bytes)}, in {found.folder}", "dim")
    yield Text(f"To fetch them: {program()} jobs get {found.id}", "dim")


def fetched(found: FetchedFilesResult) -> str:
    """``4 files, 0.3 MB, in mine-4k2m9x; 1 of them were unchanged``"""
    if not found.files:
        return f"{found.id} has no results yet; `outputs:` in its job file sets which files are kept"
    present = f"; {found.present} of them were unchanged" if found.present else ""
    return f"{formats.plural(len(found.files), 'file')}, {gigabytes(found.bytes)}, in {found.to}{present}"


def checkpoints(console: Console, found: JobCheckpoints) -> Iterator[RenderableType]:
    """One row per checkpoint, and how many are kept."""
    from broker.app.results.program_name import program

    if not found.checkpoints:
        yield Text(f"{found.id} has no complete checkpoint")
        return
    columns: tuple[ValueColumn[FinishedCheckpointResult], ...] = (
        ValueColumn("step", lambda one: "" if one.step is None else f"{one.step:,}", align="right"),
        ValueColumn("name", lambda one: one.name, folds=True),
        ValueColumn("size", lambda one: gigabytes(one.bytes), align="right"),
        ValueColumn("files", lambda one: str(one.files), 3, "right"),
        ValueColumn("attempt", lambda one: str(one.attempt), 2, "right"),
        ValueColumn("saved", lambda one: f"{formats.age(found.as_of - one.at)} ago", 1, "right"),
    )
    yield from listed(console, columns, found.checkpoints)
    keeps = (
        f"the newest {found.keep} are kept while the job lasts (`checkpoint.keep`), and afterwards until"
        f" `{program()} jobs prune`"
    )
    yield Text(f"{formats.plural(len(found.checkpoints), 'checkpoint')} in {found.folder}; {keeps}", "dim")


def sources(console: Console, found: JobSources) -> Iterator[RenderableType]:
    """The files that the job was submitted with."""
    if not found.trees:
        yield Text(f"{found.id} was submitted without files")
        return
    if found.git is not None:
        yield Text(f"Git {git_words(found.git)}")
    for tree in found.trees:
        yield Text(f"{tree.source} → {tree.to or 'the working folder'}", style="bold")
        yield from listed(console, _SOURCES, tree.entries)


def difference(found: JobDifference) -> Iterator[RenderableType]:
    """Unified differences, colored."""
    if found.git_before != found.git_after:
        yield Text(f"Git: {git_words(found.git_before)} → {git_words(found.git_after)}")
    yield from (_line(line) for line in found.job)
    for file in found.files:
        sizes = " → ".join(gigabytes(size) for size in (file.bytes_before, file.bytes_after) if size is not None)
        yield Text(f"{file.change} {file.path} ({sizes})", style="bold")
        yield from (_line(line) for line in file.diff)
    if not found.job and not found.files:
        yield Text(f"{found.before} and {found.after} run the same job with the same files")


def git_words(git: GitState | None) -> str:
    """``1a2b3c4d5e on main, with changes``"""
    if git is None:
        return "none"
    branch = f" on {git.branch}" if git.branch else ""
    return f"{(git.commit or 'no commit yet')[:12]}{branch}{', with changes' if git.dirty else ''}"


def _line(line: str) -> Text:
    return Text(line, style=_COLOURS.get(line[:1], ""))


PRUNE_EXAMPLES = examples("gpubroker jobs prune --dry-run", "gpubroker jobs prune --keep 7d --newest-too --yes")


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
    from broker.app.jobs.pruning import PrunedCheckpoints, prunable, pruned
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
