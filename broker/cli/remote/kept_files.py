"""`gpubroker jobs files`, `get` and `checkpoints` through a team server."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from broker.cli.jobs.kept_files import Attempt, CheckpointStep, TargetFolder, WhichResults
from broker.cli.options import AsJson, JobReference, examples
from broker.cli.remote import api_of, through
from broker.cli.remote.tables import listed, number, text, time
from broker.core.errors import InvalidInput, Malformed, UnknownName

if TYPE_CHECKING:
    from broker.app.jobs.kept_files import RemoteFile
    from broker.remote.team_api import TeamApi

GET_EXAMPLES = examples(
    "gpubroker jobs get bert",
    "gpubroker jobs get bert '*.json' --to here",
    "gpubroker jobs get bert --checkpoint latest",
)


def files(context: typer.Context, job: JobReference, attempt: Attempt = None, as_json: AsJson = False) -> None:
    """List a job's results: files under `outputs:` of its job file, and everything in $GPUBROKER_OUTPUT_DIR."""
    from broker.remote.sending import job_id

    api = api_of(context)
    found = api.get(f"/jobs/{job_id(api, job)}/files", attempt=attempt)
    columns = (text("path"), number("bytes"), number("attempt", rank=1), time("at", "written", 2))
    listed(context, found, "files", columns, f"{found['id']} has no results yet")


def checkpoints(context: typer.Context, job: JobReference, as_json: AsJson = False) -> None:
    """List a job's checkpoints: step, time, size."""
    from broker.remote.sending import job_id

    api = api_of(context)
    found = api.get(f"/jobs/{job_id(api, job)}/checkpoints")
    columns = (text("name"), number("step"), number("attempt", rank=1), time("at"), number("bytes"), number("files"))
    none = f"{found['id']} has no finished checkpoint"
    listed(context, found, "checkpoints", columns, none)


def get(
    context: typer.Context,
    job: JobReference,
    path: WhichResults = None,
    to: TargetFolder = None,
    checkpoint: CheckpointStep = None,
    attempt: Attempt = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a job's results from the server, also while it runs.

    Repeat the command to continue an interrupted download. Every file is verified. Files in the target folder that
    differ are overwritten.
    """
    from broker.app.jobs.kept_files import fetch_files
    from broker.app.results.kept_files import FetchedFilesResult
    from broker.cli.jobs.snapshot_view import bytes_bar
    from broker.cli.render import formats
    from broker.placement.formats import gigabytes
    from broker.remote.sending import job_id

    terminal, api = through(context)
    if checkpoint is not None and (path is not None or attempt is not None):
        raise InvalidInput("--checkpoint fetches a whole checkpoint", hint="remove PATH and --attempt")
    id = job_id(api, job)
    wanted = _of_checkpoint(api, id, checkpoint) if checkpoint is not None else _results(api, id, path, attempt)
    if to is None and (id == ".." or Path(id).name != id):  # the server must not choose where this machine writes
        raise Malformed(f"the server calls the job {id!r}, which names no folder here", where=api.url, hint="use --to")
    into = to if to is not None else Path(id)
    with bytes_bar(terminal, "fetching") as progress:
        done = fetch_files(wanted, into, progress)
    names = [file.path for file in done.files]
    if as_json:
        terminal.answer(FetchedFilesResult(id=id, to=str(done.to), files=names, bytes=done.size, present=done.present))
    elif not names:
        terminal.show(f"{id} has no results yet; `outputs:` in its job file sets which files are kept")
    else:
        terminal.show(f"{formats.plural(len(names), 'file')}, {gigabytes(done.size)}, in {into}")


def _results(api: TeamApi, id: str, path: str | None, attempt: int | None) -> list[RemoteFile]:
    found = api.get(f"/jobs/{id}/files", attempt=attempt)["files"]
    chosen = [one for one in found if path is None or _matches(one["path"], path)]
    if path is not None and not chosen:
        raise UnknownName("result", path, [one["path"] for one in found])
    return [_remote(api, f"/jobs/{id}/files/{one['sha256']}", one, attempt=attempt) for one in chosen]


def _matches(path: str, wanted: str) -> bool:
    wanted = wanted.removeprefix("./").rstrip("/")
    return wanted in (path, "", ".") or path.startswith(f"{wanted}/") or fnmatchcase(path, wanted)


def _of_checkpoint(api: TeamApi, id: str, checkpoint: str) -> list[RemoteFile]:
    found = api.get(f"/jobs/{id}/checkpoints/{checkpoint}")
    place = f"/jobs/{id}/checkpoints/{found['checkpoint']}"
    return [_remote(api, f"{place}/{one['sha256']}", one) for one in found["files"]]


def _remote(api: TeamApi, address: str, one: dict[str, Any], **more: Any) -> RemoteFile:
    from broker.app.jobs.kept_files import RemoteFile

    def content(start: int) -> Iterator[bytes]:
        return api.content(address, start=start, **more)

    return RemoteFile(one["path"], one["bytes"], one["sha256"], content)
