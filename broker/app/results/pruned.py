"""Files of ended jobs that were deleted, as results."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Self

from broker.app.jobs.pruning import Prunable
from broker.app.jobs.retention import OverdueFiles
from broker.app.jobs.snapshot_retention import UnneededSnapshots
from broker.app.results.values import Moment, Result
from broker.runfolder.retention import AttemptFiles, StoredCheckpoint


class KeptCheckpoint(Result):
    """A checkpoint in a run folder."""

    checkpoint: str
    bytes: int


class PrunedJob(Result):
    """A job, with its deleted and its kept checkpoints."""

    id: str
    gone: list[KeptCheckpoint]
    stays: list[KeptCheckpoint]


class PrunedByPolicy(Result):
    """What of a job the active policy no longer keeps: numbers of files, and of checkpoints besides those in ``jobs``,
    and bytes of all."""

    id: str
    results: int
    logs: int
    checkpoints: int
    bytes: int

    @classmethod
    def of(cls, one: OverdueFiles) -> Self:
        counts = {kind: len(one.files.get(kind, ())) for kind in AttemptFiles}
        return cls(
            id=one.view.id,
            results=counts[AttemptFiles.RESULTS],
            logs=counts[AttemptFiles.LOGS],
            checkpoints=len(one.checkpoints),
            bytes=one.size,
        )


class PrunedSnapshots(Result):
    """Files that one person's jobs were submitted with, and that no job needs any more: numbers of folders and of
    contents, and bytes of all."""

    user: str
    folders: int
    files: int
    bytes: int

    @classmethod
    def of(cls, one: UnneededSnapshots) -> Self:
        return cls(user=one.user, folders=len(one.found.trees), files=len(one.found.contents), bytes=one.found.size)


class PrunedCheckpoints(Result):
    """Checkpoints of jobs that ended before a time, what the active policy no longer keeps, and snapshots that no job
    needs. ``deleted``: false where they were only listed. ``trouble``: why folders of jobs or snapshots were left as
    they are, by name."""

    before: Moment
    deleted: bool
    jobs: list[PrunedJob]
    by_policy: list[PrunedByPolicy]
    snapshots: list[PrunedSnapshots]
    bytes: int
    trouble: dict[str, str]

    @classmethod
    def of(cls, found: Prunable, before: datetime, *, deleted: bool) -> Self:
        def kept(checkpoints: Iterable[StoredCheckpoint]) -> list[KeptCheckpoint]:
            return [KeptCheckpoint(checkpoint=one.id, bytes=one.size) for one in checkpoints]

        return cls.from_parts(
            found,
            before=before,
            deleted=deleted,
            jobs=[PrunedJob(id=one.view.id, gone=kept(one.gone), stays=kept(one.stays)) for one in found.checkpoints],
            bytes=found.size,
            trouble=dict(found.trouble),
        )
