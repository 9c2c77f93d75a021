"""Listing and downloading the results and checkpoints of a job.

An interrupted download resumes where it stopped; each file is verified before it gets its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath

from broker.agent.checkpoints import Manifest
from broker.agent.entries import FILE, apply_metadata, check_entry, leaves_through_link
from broker.agent.names import draft, escape_unprintable, to_text
from broker.agent.outputs import key_of, newest
from broker.app.runs_root import run_folders
from broker.app.wiring import Broker
from broker.core.errors import GiveUp, InvalidInput, Malformed, RetryLater, UnknownName
from broker.core.events.views import JobView
from broker.engines.runfolder.runfolder import KeptOutput
from broker.engines.snapshots.upload import Progress, no_progress

_CHUNK_BYTES = 1 << 20
_TO_HINT = "give another target folder: `gpubroker jobs get JOB --to FOLDER`"
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file, link or empty folder in a run folder. ``path``: relative to the target folder of a download; ``size``:
    bytes. ``content``: the bytes from a position on; raises `RetryLater`, `GiveUp`."""

    path: str
    size: int
    sha256: str
    content: Callable[[int], Iterator[bytes]]
    kind: str = FILE
    mode: int = 0o644
    target: str = ""


def run_folder_url(broker: Broker, view: JobView) -> str:
    """The URL of the job's run folder. Raises `Unreachable`."""
    return run_folders(broker).of(view.id).url


def outputs(broker: Broker, view: JobView, attempt: int | None = None) -> Sequence[KeptOutput]:
    """The results of an attempt, by path; None: of all attempts, each file from the newest that wrote it. Raises
    `Unreachable`, and `InvalidInput` for an attempt that the job does not have."""
    if attempt is not None and attempt > view.attempt_count:
        raise InvalidInput(f"{view.id} has no attempt {attempt}; it has had {view.attempt_count}")
    folder = run_folders(broker).of(view.id)
    attempts = range(1, view.attempt_count + 1) if attempt is None else [attempt]
    candidates = (output for number in attempts for output in folder.outputs(number))
    return list(newest((key_of(output.file, node_folder(output)), output) for output in candidates).values())


def output_path(output: KeptOutput) -> str:
    """The path of a result within its job: results of nodes other than the first are in a folder for each rank."""
    return node_folder(output) + output.file.path


def node_folder(output: KeptOutput) -> str:
    """The folder of its node, with a slash; empty for the first one."""
    return f"rank-{output.rank}/" if output.rank else ""


def parts(broker: Broker, view: JobView) -> Sequence[tuple[str, JobView]]:
    """The jobs whose results are those of ``view``, each with the folder of its results: the job itself, without one;
    of an array, the tasks that have begun, in order, each with its number and a slash."""
    if view.job.array is None:
        return [("", view)]
    with broker.store.reading() as reader:
        tasks = {task.job.task.index: task for task in reader.tasks_of(view.id) if task.job.task}
    return [(f"{number}/", task) for number, task in sorted(tasks.items())]


def results(broker: Broker, view: JobView, path: str | None = None, attempt: int | None = None) -> Sequence[RemoteFile]:
    """The results at or below ``path``, or that match it as a pattern; of an array, those of all tasks, matched within
    each task. Raises as `outputs`, and `UnknownName` if there is no such result."""
    files: list[RemoteFile] = []
    other_paths: list[str] = []
    for folder, job in parts(broker, view):
        all_outputs = outputs(broker, job, attempt)
        selected = [output for output in all_outputs if path_matches(output_path(output), path)]
        files += output_files(broker, job, selected, folder)
        other_paths += [output_path(output) for output in all_outputs if output not in selected]
    if path is not None and not files:
        raise UnknownName("result", path, list(map(escape_unprintable, dict.fromkeys(other_paths))))
    return files


def path_matches(path: str, pattern: str | None) -> bool:
    """Whether the path of a result is ``pattern`` (also as listed), lies below it, or matches it as a pattern; None:
    all do."""
    if pattern is None:
        return True
    pattern = pattern.removeprefix("./").rstrip("/")
    exact = pattern in (path, to_text(path), escape_unprintable(to_text(path)), "", ".")
    return exact or path.startswith(f"{pattern}/") or fnmatchcase(path, pattern)


def checkpoints(broker: Broker, view: JobView) -> Sequence[Manifest]:
    """The finished checkpoints of the job, oldest first; not verified. Raises `Unreachable`."""
    return run_folders(broker).of(view.id).checkpoints()


def checkpoint(broker: Broker, view: JobView, reference: str) -> Manifest:
    """The newest checkpoint (``latest``), the newest at a step, or the one with that id or name. Raises `UnknownName`,
    `Unreachable`."""
    manifests = checkpoints(broker, view)
    for manifest in reversed(manifests):
        if reference in (
            "latest",
            manifest.id,
            manifest.name,
            escape_unprintable(to_text(manifest.name)),
            str(manifest.step),
        ):
            return manifest
    raise UnknownName(
        "checkpoint",
        reference,
        [str(manifest.id if manifest.step is None else manifest.step) for manifest in manifests],
    )


def output_files(broker: Broker, view: JobView, selected: Sequence[KeptOutput], prefix: str = "") -> list[RemoteFile]:
    """These results with their bytes. ``prefix``: a prefix of their paths."""
    folder = run_folders(broker).of(view.id)
    return [
        RemoteFile(prefix + output_path(output), file.size, file.sha256, content, file.kind, file.mode, file.target)
        for output in selected
        for file, content in [(output.file, partial(folder.output_content, output.attempt, output.file))]
    ]


def checkpoint_files(broker: Broker, view: JobView, manifest: Manifest) -> list[RemoteFile]:
    """The files of a checkpoint with their bytes. Of several nodes with the same path, the first one counts."""
    folder = run_folders(broker).of(view.id)
    file_by_path = {
        file.path: file for file in sorted(manifest.files, key=lambda checkpoint_file: -checkpoint_file.rank)
    }
    return [
        RemoteFile(path, file.size, file.sha256, content, file.kind, file.mode, file.target)
        for path, file in sorted(file_by_path.items())
        for content in [partial(folder.checkpoint_content, manifest, file)]
    ]


def fetch_files(files: Sequence[RemoteFile], to: Path, progress: Progress = no_progress) -> int:
    """Download files into ``to``, under their own paths; returns how many were there with this content. Complete files
    are not read again, partial ones are continued. Overwrites files with other content. Raises `InvalidInput` if a file
    cannot be written, `RetryLater` (partial files stay for the next call), and `GiveUp`; `Malformed`, before anything
    is written, for a path that leads out of ``to``."""
    for file in files:
        _check_path(file)
    total, done, present_count = sum(file.size for file in files), 0, 0
    for file in files:
        done_before = done

        def report_progress(size: int, done_before: int = done_before) -> None:
            progress(done_before + size, total)

        if file.kind == FILE:
            present_count += _fetch(file, to, report_progress)
        done += file.size
        progress(done, total)
    try:
        apply_metadata(to, files)
    except OSError as error:
        raise _cannot_write(error, error.filename or to) from error
    return present_count


def _check_path(file: RemoteFile) -> None:
    """Raises `Malformed` for a path outside of the target folder: a job or a server chose the file's name, and neither
    may choose where this machine writes."""
    path = PurePosixPath(file.path)
    if not path.name or path.is_absolute() or ".." in path.parts or "\0" in file.path:
        raise Malformed(f"a file is called {file.path!r}, which is not a place in the target folder", where="path")
    try:
        check_entry({"kind": file.kind, "target": file.target}, file.path)
    except ValueError as error:
        raise Malformed(str(error), where="target") from error
    if file.kind == FILE and not _SHA256.fullmatch(file.sha256):
        raise Malformed(f"{file.path}: {file.sha256[:80]!r} is not a SHA-256", where="sha256")


def _fetch(file: RemoteFile, to: Path, progress: Callable[[int], None]) -> bool:
    """Download a file; returns whether it was there already."""
    target = to / file.path
    if leaves_through_link(to, file.path):
        raise InvalidInput("a link among its folders leads out of the target folder", where=str(target), hint=_TO_HINT)
    draft_path = draft(target, file.sha256)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if (
            target.is_file()
            and not target.is_symlink()
            and target.stat().st_size == file.size
            and _digest(target).hexdigest() == file.sha256
        ):
            return True
        start = draft_path.stat().st_size if draft_path.is_file() else 0
        start = start if start <= file.size else 0
        digest = _digest(draft_path) if start else hashlib.sha256()
        with draft_path.open("ab" if start else "wb") as output:
            for chunk in file.content(start):
                output.write(chunk)
                digest.update(chunk)
                start += len(chunk)
                progress(min(start, file.size))
        if start != file.size or digest.hexdigest() != file.sha256:
            draft_path.unlink()
            raise RetryLater(f"{file.path} changed while it was fetched", hint="run the command again")
        draft_path.replace(target)
    except OSError as error:
        raise _cannot_write(error, target) from error
    except GiveUp:
        with contextlib.suppress(OSError):
            draft_path.unlink()
        raise
    return False


def _cannot_write(error: OSError, path: str | Path) -> InvalidInput:
    return InvalidInput(f"cannot be written: {error.strerror or error}", where=str(path), hint=_TO_HINT)


def _digest(file: Path) -> hashlib._Hash:
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest
