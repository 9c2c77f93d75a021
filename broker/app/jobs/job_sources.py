"""The files of jobs as results: those that they were submitted with, listed and compared; results and checkpoints."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from broker.agent.entries import FILE, LINK
from broker.agent.names import to_text
from broker.agent.source_tree import TreeEntry, content_path
from broker.agent.store import ObjectFolder
from broker.app import runs_root
from broker.app.jobs import job_files
from broker.app.jobs.file_documents import (
    JobCheckpoints,
    JobDifference,
    JobOutputs,
    JobSources,
    OutputResult,
    SourceChange,
)
from broker.app.wiring import Broker
from broker.core.events.views import JobView
from broker.core.job.file import print_job
from broker.core.job.snapshots import FileSnapshot, GitState, TreeCopy
from broker.engines.snapshots.upload import entries_of, store_errors

_MAX_DIFF_BYTES = 256 * 1024  # bytes; larger files are not compared line by line
_MAX_LINES = 400  # of the diff of one file


def outputs(broker: Broker, view: JobView, attempt: int | None = None) -> JobOutputs:
    """As `kept_files.outputs`."""
    rows = [
        OutputResult.of(output, job.id, folder)
        for folder, job in job_files.parts(broker, view)
        for output in job_files.outputs(broker, job, attempt)
    ]
    return JobOutputs.of(view, job_files.run_folder_url(broker, view), rows, broker.clock.now())


def checkpoints(broker: Broker, view: JobView) -> JobCheckpoints:
    """As `kept_files.checkpoints`."""
    job_checkpoints = job_files.checkpoints(broker, view)
    return JobCheckpoints.of(view, job_files.run_folder_url(broker, view), job_checkpoints, broker.clock.now())


def sources(broker: Broker, view: JobView) -> JobSources:
    """All files that the job was submitted with. Raises `Unreachable`, `Malformed`."""
    snapshot = view.job.snapshot
    trees = _trees(broker, snapshot) if snapshot else []
    return JobSources.of(view, snapshot.git if snapshot else None, trees)


def difference(broker: Broker, before: JobView, after: JobView) -> JobDifference:
    """How the second job differs from the first: in its job file, and in the files of its snapshot. Raises
    `Unreachable`, `Malformed`."""
    old, new = _files(broker, before), _files(broker, after)
    changes = []
    for path in sorted({*old, *new}):
        a, b = old.get(path), new.get(path)
        if a is not None and b is not None and a.same(b):
            continue
        change = "added" if a is None else "removed" if b is None else "changed"
        changes.append(
            SourceChange(
                path=to_text(path),
                change=change,
                bytes_before=a and a.entry.size,
                bytes_after=b and b.entry.size,
                diff=list(_diff(path, a, b)),
            )
        )
    return JobDifference(
        before=before.id,
        after=after.id,
        git_before=_git(before),
        git_after=_git(after),
        job=list(_unified_diff("job", print_job(before.job).splitlines(), print_job(after.job).splitlines())),
        files=changes,
    )


@dataclass(frozen=True, slots=True)
class _StoredFile:
    entry: TreeEntry
    pool: ObjectFolder

    def same(self, other: _StoredFile) -> bool:
        own_entry, other_entry = self.entry, other.entry
        return (own_entry.kind, own_entry.sha256, own_entry.target, own_entry.mode) == (
            other_entry.kind,
            other_entry.sha256,
            other_entry.target,
            other_entry.mode,
        )

    def lines(self) -> list[str] | None:
        """None for a file that is not text, or too large."""
        if self.entry.kind == LINK:
            return [f"link to {to_text(self.entry.target)}"]
        if self.entry.size > _MAX_DIFF_BYTES:
            return None
        with store_errors():
            content = self.pool.read(content_path(self.entry.sha256))
        try:
            return None if content is None or b"\0" in content else content.decode().splitlines()
        except UnicodeDecodeError:
            return None


def _trees(broker: Broker, snapshot: FileSnapshot) -> list[tuple[TreeCopy, Sequence[TreeEntry]]]:
    pool = _pool(broker, snapshot)
    return [(copy, entries_of(pool, copy.tree)) for copy in snapshot.trees]


def _pool(broker: Broker, snapshot: FileSnapshot) -> ObjectFolder:
    with store_errors():
        return runs_root.open_folder(broker, snapshot.pool)


def _files(broker: Broker, view: JobView) -> dict[str, _StoredFile]:
    """Files and links by their path on the node."""
    snapshot = view.job.snapshot
    if snapshot is None:
        return {}
    pool = _pool(broker, snapshot)
    return {
        f"{copy.to}/{entry.path}" if copy.to else entry.path: _StoredFile(entry, pool)
        for copy, entries in _trees(broker, snapshot)
        for entry in entries
        if entry.kind in (FILE, LINK)
    }


def _diff(path: str, before: _StoredFile | None, after: _StoredFile | None) -> Iterator[str]:
    old, new = before.lines() if before else [], after.lines() if after else []
    if old is None or new is None:
        return
    if before and after and before.entry.mode != after.entry.mode:
        yield f"mode {before.entry.mode:03o} -> {after.entry.mode:03o}"
    lines = list(_unified_diff(path, old, new))
    yield from lines[:_MAX_LINES]
    if len(lines) > _MAX_LINES:
        yield f"[{len(lines) - _MAX_LINES:,} more lines]"


def _unified_diff(name: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    return difflib.unified_diff(old, new, f"a/{to_text(name)}", f"b/{to_text(name)}", lineterm="", n=2)


def _git(view: JobView) -> GitState | None:
    return view.job.snapshot.git if view.job.snapshot else None
