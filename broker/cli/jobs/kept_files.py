"""`gpubroker jobs files` and `get`: results, checkpoints, and submitted files; `jobs diff`: how two jobs differ."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.cli.gathered import gathered
from broker.cli.options import AsJson, JobReference, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput, Malformed

if TYPE_CHECKING:
    from broker.app.results.kept_files import FetchedFilesResult

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
    from broker.cli.jobs import kept_files_view

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
    terminal.result(found, lambda: kept_files_view.outputs(terminal.out, found))


@gathered
def get(context: typer.Context, job: JobReference, wanted: WantedFiles, as_json: AsJson = False) -> None:
    """Fetch a job's results, also while it runs. Repeat the command to continue an interrupted download.

    Of an array, the results of each task are put into a folder named by its number. Every file is verified. Files in
    the target folder that differ are overwritten.
    """
    from broker.cli.jobs import kept_files_view

    terminal = Terminal.of(context)
    if wanted.checkpoint is not None and (wanted.path is not None or wanted.attempt is not None):
        raise InvalidInput("--checkpoint fetches a whole checkpoint", hint="remove PATH and --attempt")
    found = (_fetched_from_server if terminal.through_server else _fetched)(terminal, job, wanted)
    terminal.result(found, lambda: [kept_files_view.fetched(found)])


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
    from broker.remote import fetching

    api, id = terminal.api, _id(terminal, job)
    if wanted.checkpoint is not None:
        files = fetching.of_checkpoint(api, id, wanted.checkpoint)
    else:
        files = fetching.results(api, id, wanted.path, wanted.attempt)
    # The server must not choose where this machine writes, so its work folder does not count either.
    if wanted.to is None and (id == ".." or Path(id).name != id):
        raise Malformed(f"the server calls the job {id!r}, which names no folder here", where=api.url, hint="use --to")
    with bytes_bar(terminal, "fetching") as progress:
        return FetchedFilesResult.of(id, fetch_files(files, wanted.into(id), progress))


def _submitted(terminal: Terminal, job: str) -> None:
    from broker.app.jobs import job_sources, jobs
    from broker.cli.jobs import kept_files_view

    broker = terminal.broker()
    found = job_sources.sources(broker, jobs.find(broker, job))
    terminal.result(found, lambda: kept_files_view.sources(terminal.out, found))


def _checkpoints(terminal: Terminal, job: str) -> None:
    from broker.app.results.kept_files import JobCheckpoints
    from broker.cli.jobs import kept_files_view

    if terminal.through_server:
        found = terminal.api.fetch(JobCheckpoints, f"/jobs/{_id(terminal, job)}/checkpoints")
    else:
        from broker.app.jobs import job_sources, jobs

        broker = terminal.broker()
        found = job_sources.checkpoints(broker, jobs.find_single(broker, job))
    terminal.result(found, lambda: kept_files_view.checkpoints(terminal.out, found))


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
    from broker.cli.jobs import kept_files_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    found = job_sources.difference(broker, jobs.find(broker, before), jobs.find(broker, after))
    terminal.result(found, lambda: kept_files_view.difference(found))
