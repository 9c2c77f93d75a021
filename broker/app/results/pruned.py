"""Checkpoints of ended jobs that were deleted, as results."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Self

from broker.app.jobs.retention import OverdueFiles, PrunedRunFolders
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


class PrunedCheckpoints(Result):
    """Checkpoints of jobs that ended before a time, and what the active policy no longer keeps. ``deleted``: false
    where they were only listed."""

    before: Moment
    deleted: bool
    jobs: list[PrunedJob]
    by_policy: list[PrunedByPolicy]

    @classmethod
    def of(
        cls, pruned: Iterable[PrunedRunFolders], policy: Iterable[OverdueFiles], before: datetime, *, deleted: bool
    ) -> Self:
        def kept(checkpoints: Iterable[StoredCheckpoint]) -> list[KeptCheckpoint]:
            return [KeptCheckpoint(checkpoint=one.id, bytes=one.size) for one in checkpoints]

        return cls(
            before=before,
            deleted=deleted,
            jobs=[PrunedJob(id=one.view.id, gone=kept(one.gone), stays=kept(one.stays)) for one in pruned],
            by_policy=[PrunedByPolicy.of(one) for one in policy],
        )
