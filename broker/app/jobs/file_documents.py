"""The files of a job as results: outputs, checkpoints, and those of its submission."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from broker.agent.checkpoints import MIN_KEPT, Manifest, SavedFile
from broker.agent.names import to_text
from broker.agent.outputs import OutputFile
from broker.agent.source_tree import TreeEntry
from broker.app.documents import Moment, Result
from broker.app.jobs.job_files import RemoteFile, output_path
from broker.core.events.views import JobView
from broker.core.job.snapshots import GitState, TreeCopy
from broker.engines.runfolder.runfolder import KeptOutput


class OutputResult(Result):
    """A result: a file, a link, or an empty folder. ``path``: of an array, below the number of the task; ``mode``:
    permission bits in octal; ``target``: of a link. ``job``: the job or task, ``attempt`` and ``rank``: the node that
    wrote it; ``at``: when it was read there."""

    job: str
    path: str
    kind: str
    mode: str
    target: str
    bytes: int
    sha256: str
    attempt: int
    rank: int
    at: Moment

    @classmethod
    def of(cls, output: KeptOutput, job: str, folder: str) -> Self:
        entry = _entry(output.file, folder + output_path(output))
        return cls.from_parts(output.file, **entry, job=job, attempt=output.attempt, rank=output.rank)


def _entry(file: OutputFile | SavedFile, path: str) -> dict[str, Any]:
    mode, target = f"{file.mode:03o}", to_text(file.target)
    return {"path": to_text(path), "mode": mode, "target": target, "bytes": file.size}


class JobOutputs(Result):
    """The results of a job. ``folder``: the URL of its run folder, in which they lie; ``outputs``: the paths and
    patterns that its job file names."""

    as_of: Moment
    id: str
    folder: str
    outputs: list[str]
    files: list[OutputResult]
    bytes: int

    @classmethod
    def of(cls, view: JobView, folder: str, files: list[OutputResult], now: datetime) -> Self:
        total = sum(file.bytes for file in files)
        return cls(as_of=now, id=view.id, folder=folder, outputs=view.job.outputs, files=files, bytes=total)


class FetchedFilesResult(Result):
    """Fetched files. ``to``: the folder; ``present``: the number of ``files`` that existed already."""

    id: str
    to: str
    files: list[str]
    bytes: int
    present: int

    @classmethod
    def of(cls, id: str, to: Path, files: Sequence[RemoteFile], present: int) -> Self:
        paths, size = [to_text(file.path) for file in files], sum(file.size for file in files)
        return cls(id=id, to=str(to), files=paths, bytes=size, present=present)


class FinishedCheckpointResult(Result):
    """A finished checkpoint. ``step``: null where neither its name nor the program says."""

    checkpoint: str
    name: str
    step: int | None
    attempt: int
    at: Moment
    bytes: int
    files: int


class JobCheckpoints(Result):
    """The finished checkpoints of a job, oldest first. ``keep``: how many the agent keeps; it deletes older ones."""

    as_of: Moment
    id: str
    folder: str
    keep: int
    checkpoints: list[FinishedCheckpointResult]

    @classmethod
    def of(cls, view: JobView, folder: str, manifests: Sequence[Manifest], now: datetime) -> Self:
        checkpoints = [
            FinishedCheckpointResult.from_parts(
                manifest,
                checkpoint=manifest.id,
                name=to_text(manifest.name),
                bytes=manifest.size,
                files=len(manifest.files),
            )
            for manifest in manifests
        ]
        keep = max(MIN_KEPT, view.job.checkpoint.keep)
        return cls(as_of=now, id=view.id, folder=folder, keep=keep, checkpoints=checkpoints)


class CheckpointFile(Result):
    """A file, link or empty folder of a checkpoint. ``mode``: permission bits in octal; ``target``: of a link.
    ``rank``: of the node that saved it."""

    path: str
    kind: str
    mode: str
    target: str
    bytes: int
    sha256: str
    rank: int


class CheckpointFiles(Result):
    """A finished checkpoint of a job, and its files; of one path, that of the first node."""

    id: str
    checkpoint: str
    name: str
    step: int | None
    files: list[CheckpointFile]

    @classmethod
    def of(cls, view: JobView, manifest: Manifest) -> Self:
        file_by_path = {file.path: file for file in sorted(manifest.files, key=lambda file: -file.rank)}
        files = [CheckpointFile.from_parts(file, **_entry(file, path)) for path, file in sorted(file_by_path.items())]
        return cls.from_parts(manifest, id=view.id, checkpoint=manifest.id, name=to_text(manifest.name), files=files)


class SourceEntry(Result):
    """A file, link or folder of a snapshot. ``mode``: permission bits in octal."""

    path: str
    kind: str
    mode: str
    bytes: int
    sha256: str
    target: str

    @classmethod
    def of(cls, entry: TreeEntry) -> Self:
        path, target = to_text(entry.path), to_text(entry.target)
        return cls.from_parts(entry, path=path, target=target, mode=f"{entry.mode:03o}", bytes=entry.size)


class SourceTree(Result):
    """One folder or file. ``source``: where it lay at submission; ``to``: its place on the node, relative to the
    working folder (empty: that folder itself)."""

    source: str
    to: str
    tree: str
    entries: list[SourceEntry]


class JobSources(Result):
    """The files that a job was submitted with; none for a job without, or of an older version."""

    id: str
    git: GitState | None
    trees: list[SourceTree]

    @classmethod
    def of(cls, view: JobView, git: GitState | None, trees: Sequence[tuple[TreeCopy, Sequence[TreeEntry]]]) -> Self:
        return cls(
            id=view.id,
            git=git,
            trees=[SourceTree.from_parts(copy, entries=entries) for copy, entries in trees],
        )


class SourceChange(Result):
    """A file that differs. ``change``: added, removed or changed; ``diff``: unified, where both are short texts."""

    path: str
    change: str
    bytes_before: int | None
    bytes_after: int | None
    diff: list[str]


class JobDifference(Result):
    """How job ``after`` differs from job ``before``: the job as a file (unified diff), and the files."""

    before: str
    after: str
    git_before: GitState | None
    git_after: GitState | None
    job: list[str]
    files: list[SourceChange]
