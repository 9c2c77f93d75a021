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
from broker.agent.entries import FILE, check_entry, goes_through_a_link, settle
from broker.agent.names import draft, shown, to_text
from broker.agent.outputs import key_of, newest
from broker.app.jobs.runs_root import run_folders
from broker.app.wiring import Broker
from broker.core.errors import GiveUp, InvalidInput, Malformed, RetryLater, UnknownName
from broker.core.events.views import JobView
from broker.runfolder.runfolder import KeptOutput
from broker.snapshots.upload import Progress, no_progress

_PIECE = 1 << 20
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


@dataclass(frozen=True, slots=True)
class FetchedOutputs:
    """The files that are now in ``to``. ``present``: how many were there before with this content."""

    to: Path
    files: Sequence[RemoteFile]
    present: int

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def folder_of(broker: Broker, view: JobView) -> str:
    """The URL of the job's run folder. Raises `Unreachable`."""
    return run_folders(broker).of(view.id).url


def outputs(broker: Broker, view: JobView, attempt: int | None = None) -> Sequence[KeptOutput]:
    """The results of an attempt, by path; None: of all attempts, each file from the newest that wrote it. Raises
    `Unreachable`, and `InvalidInput` for an attempt that the job does not have."""
    if attempt is not None and attempt > view.attempt_count:
        raise InvalidInput(f"{view.id} has no attempt {attempt}; it has had {view.attempt_count}")
    folder = run_folders(broker).of(view.id)
    attempts = range(1, view.attempt_count + 1) if attempt is None else [attempt]
    found = (one for number in attempts for one in folder.outputs(number))
    return list(newest((key_of(one.file, within(one)), one) for one in found).values())


def path_of(one: KeptOutput) -> str:
    """The path of a result within its job: results of nodes other than the first are in a folder for each rank."""
    return within(one) + one.file.path


def within(one: KeptOutput) -> str:
    """The folder of its node, with a slash; empty for the first one."""
    return f"rank-{one.rank}/" if one.rank else ""


def matching(found: Sequence[KeptOutput], path: str | None) -> Sequence[KeptOutput]:
    """The results at or below ``path``, or that match it as a pattern. Raises `UnknownName` if there are none."""
    chosen = [one for one in found if matches(path_of(one), path)]
    if path is not None and not chosen:
        raise UnknownName("result", path, [shown(path_of(one)) for one in found])
    return chosen


def matches(path: str, wanted: str | None) -> bool:
    """Whether the path of a result is ``wanted`` (also as listed), lies below it, or matches it as a pattern; None: all
    do."""
    if wanted is None:
        return True
    wanted = wanted.removeprefix("./").rstrip("/")
    exact = wanted in (path, to_text(path), shown(to_text(path)), "", ".")
    return exact or path.startswith(f"{wanted}/") or fnmatchcase(path, wanted)


def checkpoints(broker: Broker, view: JobView) -> Sequence[Manifest]:
    """The finished checkpoints of the job, oldest first; not verified. Raises `Unreachable`."""
    return run_folders(broker).of(view.id).checkpoints()


def checkpoint(broker: Broker, view: JobView, wanted: str) -> Manifest:
    """The newest checkpoint (``latest``), the newest at a step, or the one with that id or name. Raises `UnknownName`,
    `Unreachable`."""
    found = checkpoints(broker, view)
    for one in reversed(found):
        if wanted in ("latest", one.id, one.name, shown(to_text(one.name)), str(one.step)):
            return one
    raise UnknownName("checkpoint", wanted, [str(one.id if one.step is None else one.step) for one in found])


def fetch_outputs(
    broker: Broker, view: JobView, wanted: Sequence[KeptOutput], to: Path, progress: Progress = no_progress
) -> FetchedOutputs:
    """Download results into a folder, under their own paths. Idempotent: complete files are not read again, and partial
    ones are continued. Overwrites files with other content. Raises as `fetch_files`."""
    return fetch_files(output_files(broker, view, wanted), to, progress)


def fetch_array(
    broker: Broker, array: JobView, path: str | None, to: Path, progress: Progress = no_progress
) -> FetchedOutputs:
    """As `fetch_outputs`, for the results of all tasks that have begun: those of each in a folder that has its number.
    ``path``: as in `matching`, within each task. Raises also `UnknownName` if no task has such a result."""
    with broker.store.reading() as look:
        tasks = look.tasks_of(array.id)
    files: list[RemoteFile] = []
    others: list[str] = []
    for task in sorted(tasks, key=_number):
        found = outputs(broker, task)
        chosen = [one for one in found if matches(path_of(one), path)]
        files += output_files(broker, task, chosen, f"{_number(task)}/")
        others += [path_of(one) for one in found if one not in chosen]
    if path is not None and not files:
        raise UnknownName("result", path, list(map(shown, dict.fromkeys(others))))
    return fetch_files(files, to, progress)


def _number(task: JobView) -> int:
    return task.job.task.index if task.job.task else 0


def output_files(broker: Broker, view: JobView, wanted: Sequence[KeptOutput], within: str = "") -> list[RemoteFile]:
    """These results with their bytes. ``within``: a prefix of their paths."""
    folder = run_folders(broker).of(view.id)
    return [
        RemoteFile(within + path_of(one), file.size, file.sha256, content, file.kind, file.mode, file.target)
        for one in wanted
        for file, content in [(one.file, partial(folder.output_content, one.attempt, one.file))]
    ]


def fetch_checkpoint(
    broker: Broker, view: JobView, wanted: Manifest, to: Path, progress: Progress = no_progress
) -> FetchedOutputs:
    """As `fetch_outputs`, for the files of a checkpoint. If several nodes saved the same path, the first node's file is
    used. Raises as `fetch_files`."""
    return fetch_files(checkpoint_files(broker, view, wanted), to, progress)


def checkpoint_files(broker: Broker, view: JobView, wanted: Manifest) -> list[RemoteFile]:
    """The files of a checkpoint with their bytes, as `fetch_checkpoint` chooses them."""
    folder = run_folders(broker).of(view.id)
    chosen = {file.path: file for file in sorted(wanted.files, key=lambda one: -one.rank)}
    return [
        RemoteFile(path, file.size, file.sha256, content, file.kind, file.mode, file.target)
        for path, file in sorted(chosen.items())
        for content in [partial(folder.checkpoint_content, wanted, file)]
    ]


def fetch_files(files: Sequence[RemoteFile], to: Path, progress: Progress = no_progress) -> FetchedOutputs:
    """Download files as `fetch_outputs`. Raises `InvalidInput` if a file cannot be written, `RetryLater` (partial files
    stay for the next call), and `GiveUp`; `Malformed`, before anything is written, for a path that leads out of ``to``.
    """
    for file in files:
        _check_place(file)
    total, done, present = sum(file.size for file in files), 0, 0
    for file in files:
        before = done

        def more(size: int, before: int = before) -> None:
            progress(before + size, total)

        if file.kind == FILE:
            present += _fetch(file, to, more)
        done += file.size
        progress(done, total)
    try:
        settle(to, files)
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", where=str(error.filename or to)) from error
    return FetchedOutputs(to, files, present)


def _check_place(file: RemoteFile) -> None:
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
    place = to / file.path
    if goes_through_a_link(to, file.path):
        raise InvalidInput("a link among its folders leads out of the target folder", where=str(place))
    part = draft(place, file.sha256)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if (
            place.is_file()
            and not place.is_symlink()
            and place.stat().st_size == file.size
            and _digest(place).hexdigest() == file.sha256
        ):
            return True
        start = part.stat().st_size if part.is_file() else 0
        start = start if start <= file.size else 0
        digest = _digest(part) if start else hashlib.sha256()
        with part.open("ab" if start else "wb") as output:
            for piece in file.content(start):
                output.write(piece)
                digest.update(piece)
                start += len(piece)
                progress(min(start, file.size))
        if start != file.size or digest.hexdigest() != file.sha256:
            part.unlink()
            raise RetryLater(f"{file.path} changed while it was fetched", hint="run the command again")
        part.replace(place)
    except OSError as error:
        raise InvalidInput(f"cannot be written: {error.strerror or error}", where=str(place)) from error
    except GiveUp:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    return False


def _digest(file: Path) -> hashlib._Hash:
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while piece := source.read(_PIECE):
            digest.update(piece)
    return digest
