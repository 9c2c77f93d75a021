"""`gpubroker jobs files`, `get` and `checkpoints`: results and checkpoints; `jobs diff`: how two jobs differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker.cli.options import AsJson, JobReference, examples
from broker.cli.terminal import Terminal
from broker.core.errors import InvalidInput

FILES_EXAMPLES = examples("gpubroker jobs files bert", "gpubroker jobs files bert --attempt 1 --json")
GET_EXAMPLES = examples(
    "gpubroker jobs get bert",
    "gpubroker jobs get bert results/ --to here",
    "gpubroker jobs get bert '*.json'",
    "gpubroker jobs get bert --checkpoint latest",
    "gpubroker jobs get sweep 'metrics.json' --to all",
)
CHECKPOINTS_EXAMPLES = examples("gpubroker jobs checkpoints bert", "gpubroker jobs checkpoints bert --json")
DIFF_EXAMPLES = examples("gpubroker jobs diff bert bert-2", "gpubroker jobs diff bert bert-2 --json")

Attempt = Annotated[int | None, typer.Option("--attempt", "-a", min=1, help="Only files that this attempt wrote.")]
WhichResults = Annotated[
    str | None, typer.Argument(metavar="[PATH]", help="A result, a folder of results, or a pattern; all by default.")
]
TargetFolder = Annotated[Path | None, typer.Option("--to", metavar="DIR", help="Target folder (default: ./JOB-ID).")]
CheckpointStep = Annotated[
    str | None, typer.Option("--checkpoint", metavar="STEP", help="Fetch this checkpoint instead: step, ID, or latest.")
]


def files(context: typer.Context, job: JobReference, attempt: Attempt = None, as_json: AsJson = False) -> None:
    """List a job's results: files under `outputs:` of its job file, and everything in $GPUBROKER_OUTPUT_DIR.

    If several attempts wrote a file, the newest version is listed.
    """
    from broker.app.jobs import jobs, kept_files
    from broker.app.results.kept_files import JobOutputs
    from broker.cli.jobs import kept_files_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view = jobs.find_single(broker, job)
    found = kept_files.outputs(broker, view, attempt)
    document = JobOutputs.of(view, kept_files.folder_of(broker, view), found)
    terminal.result(document, lambda: kept_files_view.outputs(terminal.out, view, document, broker.clock.now()))


def get(
    context: typer.Context,
    job: JobReference,
    path: WhichResults = None,
    to: TargetFolder = None,
    checkpoint: CheckpointStep = None,
    attempt: Attempt = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a job's results, also while it runs. Repeat the command to continue an interrupted download.

    Of an array, the results of each task are put into a folder named by its number. Every file is verified. Files in
    the target folder that differ are overwritten.
    """
    from broker.app.jobs import jobs, kept_files
    from broker.app.results.kept_files import FetchedFilesResult
    from broker.cli.jobs.snapshot_view import bytes_bar
    from broker.cli.render import formats
    from broker.placement.formats import gigabytes

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view = jobs.find(broker, job)
    if checkpoint is not None or attempt is not None:
        view = jobs.find_single(broker, job)
    into = to if to is not None else Path(view.id)
    if checkpoint is not None:
        if path is not None or attempt is not None:
            raise InvalidInput("--checkpoint fetches a whole checkpoint", hint="remove PATH and --attempt")
        chosen = kept_files.checkpoint(broker, view, checkpoint)
        with bytes_bar(terminal, f"fetching {chosen.name}") as progress:
            done = kept_files.fetch_checkpoint(broker, view, chosen, into, progress)
    elif view.job.array is not None:
        with bytes_bar(terminal, "fetching") as progress:
            done = kept_files.fetch_array(broker, view, path, into, progress)
    else:
        found = kept_files.matching(kept_files.outputs(broker, view, attempt), path)
        with bytes_bar(terminal, "fetching") as progress:
            done = kept_files.fetch_outputs(broker, view, found, into, progress)
    if as_json:
        terminal.answer(FetchedFilesResult.of(view, done))
    elif not done.files:
        terminal.show(f"{view.id} has no results yet; `outputs:` in its job file sets which files are kept")
    else:
        present = f"; {done.present} of them had not changed" if done.present else ""
        terminal.show(f"{formats.plural(len(done.files), 'file')}, {gigabytes(done.size)}, in {into}{present}")


def checkpoints(context: typer.Context, job: JobReference, as_json: AsJson = False) -> None:
    """List a job's checkpoints: step, time, size, and how many are kept."""
    from broker.app.jobs import jobs, kept_files
    from broker.app.results.kept_files import JobCheckpoints
    from broker.cli.jobs import kept_files_view

    terminal = Terminal.of(context)
    broker = terminal.broker()
    view = jobs.find_single(broker, job)
    document = JobCheckpoints.of(view, kept_files.folder_of(broker, view), kept_files.checkpoints(broker, view))
    terminal.result(document, lambda: kept_files_view.checkpoints(terminal.out, document, broker.clock.now()))


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
