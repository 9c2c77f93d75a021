"""`gpubroker jobs files`, `get`, `diff` and `prune`: results, checkpoints and submitted files of jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from broker.cli import filters
from broker.cli.options import AsJson, JobReference, examples, expand_options
from broker.cli.render import formats
from broker.cli.render.tables import ValueColumn, table_parts
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput, Malformed, Unreachable
from broker.core.values.figures import gigabytes

if TYPE_CHECKING:
    from broker.app.jobs.file_documents import (
        FetchedFilesResult,
        FinishedCheckpointResult,
        JobCheckpoints,
        JobDifference,
        JobOutputs,
        JobSources,
        OutputResult,
        SourceEntry,
    )
    from broker.app.jobs.pruning import PrunedCheckpoints
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

_TO_HELP = "Target folder (default: ./JOB-ID; in the job's work folder ../JOB-ID, beside it)."
Attempt = Annotated[int | None, typer.Option("--attempt", "-a", min=1, help="Only files that this attempt wrote.")]


@dataclass(frozen=True)
class FetchOptions:
    """Which files are fetched, and to where."""

    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", help="A result, a folder of results, or a pattern; all by default."),
    ] = None
    to: Annotated[Path | None, typer.Option("--to", metavar="DIR", help=_TO_HELP)] = None
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="STEP", help="Fetch this checkpoint instead: step, ID, or latest."),
    ] = None
    attempt: Attempt = None

    def into(self, id: str, workdir: str | None = None) -> Path:
        """The target folder: beside ``workdir``, the job's work folder, if the command runs there, because the next
        job would be submitted with the results."""
        if self.to is None and workdir and Path.cwd().is_relative_to(workdir):
            parent = Path(workdir).parent
            if os.access(parent, os.W_OK):
                return Path(os.path.relpath(parent / id))
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

    If several attempts wrote a file, the newest version is listed. Of an array, the results of each task are listed
    under its number.
    """
    from broker.app.use_cases.jobs import list_files

    terminal = Terminal.of(context)
    terminal.only_here({"--submitted": submitted})
    if checkpoints + submitted + (attempt is not None) > 1:
        raise InvalidInput("give one of --attempt, --checkpoints and --submitted")
    if checkpoints or submitted:
        (_show_checkpoints if checkpoints else _show_submitted)(terminal, job)
        return
    job_outputs = terminal.ask(list_files, terminal.job_id(job, single=attempt is not None), attempt)
    terminal.result(job_outputs, lambda: output_lines(terminal.out, job_outputs))


@expand_options
def get(context: typer.Context, job: JobReference, wanted: FetchOptions, as_json: AsJson = False) -> None:
    """Fetch a job's results, also while it runs. Repeat the command to continue an interrupted download.

    Of an array, the results of each task are put into a folder named by its number. Every file is verified. Files in
    the target folder that differ are overwritten.
    """

    terminal = Terminal.of(context)
    if wanted.checkpoint is not None and (wanted.path is not None or wanted.attempt is not None):
        raise InvalidInput("--checkpoint fetches a whole checkpoint", hint="remove PATH and --attempt")
    fetched_files = (_fetch_from_server if terminal.through_server else _fetch)(terminal, job, wanted)
    terminal.result(fetched_files, lambda: [fetched_text(fetched_files)])


def _fetch(terminal: Terminal, job: str, options: FetchOptions) -> FetchedFilesResult:
    from broker.app.jobs import job_files, jobs
    from broker.app.jobs.file_documents import FetchedFilesResult
    from broker.cli.jobs.snapshot_view import bytes_bar

    broker = terminal.broker()
    takes_all = options.checkpoint is None and options.attempt is None
    view = (jobs.find if takes_all else jobs.find_single)(broker, job)
    target = options.into(view.id, view.job.workdir)
    with bytes_bar(terminal, "fetching") as progress:
        files = (
            job_files.results(broker, view, options.path, options.attempt)
            if options.checkpoint is None
            else job_files.checkpoint_files(broker, view, job_files.checkpoint(broker, view, options.checkpoint))
        )
        return FetchedFilesResult.of(view.id, target, files, job_files.fetch_files(files, target, progress))


def _fetch_from_server(terminal: Terminal, job: str, options: FetchOptions) -> FetchedFilesResult:
    from broker.app.jobs.file_documents import FetchedFilesResult
    from broker.app.jobs.job_files import fetch_files
    from broker.cli.jobs.snapshot_view import bytes_bar
    from broker.server.client import output

    api, id = terminal.api, terminal.job_id(job)
    if options.checkpoint is not None:
        files = output.checkpoint_files(api, id, options.checkpoint)
    else:
        files = output.results(api, id, options.path, options.attempt)
    # The server must not choose where this machine writes, so its work folder does not count either.
    if options.to is None and (id == ".." or Path(id).name != id):
        raise Malformed(
            f"the server calls the job {id!r}, which is not a valid folder name", where=api.url, hint="use --to"
        )
    target = options.into(id)
    with bytes_bar(terminal, "fetching") as progress:
        return FetchedFilesResult.of(id, target, files, fetch_files(files, target, progress))


def _show_submitted(terminal: Terminal, job: str) -> None:
    from broker.app.jobs import job_sources, jobs

    broker = terminal.broker()
    submitted_files = job_sources.sources(broker, jobs.find(broker, job))
    terminal.result(submitted_files, lambda: source_lines(terminal.out, submitted_files))


def _show_checkpoints(terminal: Terminal, job: str) -> None:
    from broker.app.use_cases.jobs import list_checkpoints

    job_checkpoints = terminal.ask(list_checkpoints, terminal.job_id(job, single=True))
    terminal.result(job_checkpoints, lambda: checkpoint_lines(terminal.out, job_checkpoints))


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
    job_difference = job_sources.difference(broker, jobs.find(broker, before), jobs.find(broker, after))
    terminal.result(job_difference, lambda: difference_lines(job_difference))


_SOURCE_COLUMNS: tuple[ValueColumn[SourceEntry], ...] = (
    ValueColumn("file", lambda row: _name(row), folds=True),
    ValueColumn("size", lambda row: _size(row), align="right"),
    ValueColumn("mode", lambda row: row.mode, 2),
    ValueColumn("SHA-256", lambda row: row.sha256[:12], 1),
)
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _name(entry: SourceEntry | OutputResult) -> str:
    return f"{entry.path} → {entry.target}" if entry.kind == "link" else entry.path


def _size(entry: SourceEntry | OutputResult) -> str:
    return gigabytes(entry.bytes) if entry.kind == "file" else entry.kind


def output_lines(console: Console, job_outputs: JobOutputs) -> Iterator[RenderableType]:
    """One row per file, and their folder."""
    from broker.app.jobs.reasons import program_name

    if not job_outputs.files:
        patterns_text = f"; its `outputs:` are {', '.join(job_outputs.outputs)}" if job_outputs.outputs else ""
        yield Text(f"{job_outputs.id} has saved no results{patterns_text}")
        yield Text("Results are the files under `outputs:` of the job file and in $GPUBROKER_OUTPUT_DIR.", "dim")
        return
    columns: tuple[ValueColumn[OutputResult], ...] = (
        ValueColumn("file", _name, folds=True),
        ValueColumn("size", _size, align="right"),
        ValueColumn("attempt", lambda row: str(row.attempt), 2, "right"),
        ValueColumn("saved", lambda row: f"{formats.age(job_outputs.as_of - row.at)} ago", 1, "right"),
    )
    yield from table_parts(console, columns, job_outputs.files)
    yield Text(
        f"{formats.plural(len(job_outputs.files), 'file')}, {gigabytes(job_outputs.bytes)}, in {job_outputs.folder}",
        "dim",
    )
    yield Text(f"To fetch them: {program_name()} jobs get {job_outputs.id}", "dim")


def fetched_text(fetched_files: FetchedFilesResult) -> str:
    """``4 files, 0.3 MB, in mine-4k2m9x; 1 unchanged``"""
    if not fetched_files.files:
        return f"{fetched_files.id} has saved no results; `outputs:` in its job file sets which files are kept"
    unchanged_text = f"; {fetched_files.present:,} unchanged" if fetched_files.present else ""
    return (
        f"{formats.plural(len(fetched_files.files), 'file')}, {gigabytes(fetched_files.bytes)}, in "
        f"{fetched_files.to}{unchanged_text}"
    )


def checkpoint_lines(console: Console, job_checkpoints: JobCheckpoints) -> Iterator[RenderableType]:
    """One row per checkpoint, and how many are kept."""
    from broker.app.jobs.reasons import program_name

    if not job_checkpoints.checkpoints:
        yield Text(f"{job_checkpoints.id} has no complete checkpoint")
        return
    columns: tuple[ValueColumn[FinishedCheckpointResult], ...] = (
        ValueColumn("step", lambda row: "" if row.step is None else f"{row.step:,}", align="right"),
        ValueColumn("name", lambda row: row.name, folds=True),
        ValueColumn("size", lambda row: gigabytes(row.bytes), align="right"),
        ValueColumn("files", lambda row: str(row.files), 3, "right"),
        ValueColumn("attempt", lambda row: str(row.attempt), 2, "right"),
        ValueColumn("saved", lambda row: f"{formats.age(job_checkpoints.as_of - row.at)} ago", 1, "right"),
    )
    yield from table_parts(console, columns, job_checkpoints.checkpoints)
    retention_text = (
        f"the newest {job_checkpoints.keep} are kept while the job lasts (`checkpoint.keep`), and afterwards until"
        f" `{program_name()} jobs prune`"
    )
    yield Text(
        f"{formats.plural(len(job_checkpoints.checkpoints), 'checkpoint')} in {job_checkpoints.folder}; "
        f"{retention_text}",
        "dim",
    )


def source_lines(console: Console, submitted_files: JobSources) -> Iterator[RenderableType]:
    """The files that the job was submitted with."""
    if not submitted_files.trees:
        yield Text(f"{submitted_files.id} was submitted without files")
        return
    if submitted_files.git is not None:
        yield Text(f"Git {git_text(submitted_files.git)}")
    for tree in submitted_files.trees:
        yield Text(f"{tree.source} → {tree.to or 'the working folder'}", style="bold")
        yield from table_parts(console, _SOURCE_COLUMNS, tree.entries)


def difference_lines(job_difference: JobDifference) -> Iterator[RenderableType]:
    """Unified differences, colored."""
    if job_difference.git_before != job_difference.git_after:
        yield Text(f"Git: {git_text(job_difference.git_before)} → {git_text(job_difference.git_after)}")
    yield from (_diff_line(diff_line) for diff_line in job_difference.job)
    for file in job_difference.files:
        sizes = " → ".join(gigabytes(size) for size in (file.bytes_before, file.bytes_after) if size is not None)
        yield Text(f"{file.change} {file.path} ({sizes})", style="bold")
        yield from (_diff_line(diff_line) for diff_line in file.diff)
    if not job_difference.job and not job_difference.files:
        yield Text(f"{job_difference.before} and {job_difference.after} run the same job with the same files")


def git_text(git: GitState | None) -> str:
    """``1a2b3c4d5e on main, with changes``"""
    if git is None:
        return "none"
    branch = f" on {git.branch}" if git.branch else ""
    return f"{(git.commit or 'no commit yet')[:12]}{branch}{', with changes' if git.dirty else ''}"


def _diff_line(line: str) -> Text:
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
    from broker.app.jobs.pruning import PrunedCheckpoints, delete_prunable, find_prunable

    terminal = Terminal.of(context)
    broker = terminal.broker()
    before = broker.clock.now() - filters.time_span_option("--keep", keep)
    to_delete = find_prunable(broker, before, by=terminal.actor, newest_too=newest_too)
    deletes, result = bool(to_delete) and not dry_run, PrunedCheckpoints.of(to_delete, before, deleted=False)
    if deletes and terminal.confirm(f"Delete {_summary(result)}?", yes=yes, hint="add --yes, or --dry-run"):
        deleted = delete_prunable(broker, before, by=terminal.actor, newest_too=newest_too)
        result = PrunedCheckpoints.of(deleted, before, deleted=True)
    terminal.result(result, lambda: _prune_lines(result))
    if result.trouble:
        folders_text = formats.plural(len(result.trouble), "folder")
        terminal.say(*(f"{name}: {reason}" for name, reason in result.trouble.items()))
        error = Unreachable(
            f"{folders_text} could not be read or emptied", hint="the others were processed; run it again"
        )
        raise typer.Exit(error.exit_code if as_json else terminal.refuse(error))


def _prune_lines(result: PrunedCheckpoints) -> Iterator[str]:
    if not (result.jobs or result.by_policy or result.snapshots):
        yield f"No job that ended before {formats.moment(result.before)} has files to delete."
        return
    for job in result.jobs:
        kept_text = "the newest is kept" if job.stays else "none is kept"
        size = gigabytes(sum(checkpoint.bytes for checkpoint in job.gone))
        yield f"{job.id}: {formats.plural(len(job.gone), 'checkpoint')}, {size}; {kept_text}"
    for overdue_files in result.by_policy:
        counts = {
            "result file": overdue_files.results,
            "log file": overdue_files.logs,
            "checkpoint": overdue_files.checkpoints,
        }
        kinds_text = ", ".join(formats.plural(count, kind) for kind, count in counts.items() if count)
        yield f"{overdue_files.id}: {kinds_text}, {gigabytes(overdue_files.bytes)}, past the policy's retention"
    for pool in result.snapshots:
        files_text = formats.plural(pool.files, "file")
        yield f"submitted by {pool.user}: {files_text}, {gigabytes(pool.bytes)}, needed by no job"
    yield f"Deleted {_summary(result)}." if result.deleted else f"Would delete {_summary(result)}."


def _summary(result: PrunedCheckpoints) -> str:
    """``2 checkpoints of 1 job, 1.2 GB; 3 files past the policy's retention, 4 MB; 12 snapshot files, 1 GB``."""
    parts = []
    if checkpoints := [item for job in result.jobs for item in job.gone]:
        jobs, size = formats.plural(len(result.jobs), "job"), gigabytes(sum(item.bytes for item in checkpoints))
        parts.append(f"{formats.plural(len(checkpoints), 'checkpoint')} of {jobs}, {size}")
    if overdue_files := result.by_policy:
        files = formats.plural(sum(item.results + item.logs + item.checkpoints for item in overdue_files), "file")
        parts.append(f"{files} past the policy's retention, {gigabytes(sum(item.bytes for item in overdue_files))}")
    if pools := result.snapshots:
        files = formats.plural(sum(item.files for item in pools), "snapshot file")
        parts.append(f"{files}, {gigabytes(sum(item.bytes for item in pools))}")
    return "; ".join(parts) or "nothing"
