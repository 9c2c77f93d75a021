"""Checkpoints of ended jobs that were deleted, as results."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Self

from broker.app.jobs.retention import PrunedRunFolders
from broker.app.results.values import Moment, Result
from broker.runfolder.retention import StoredCheckpoint


class KeptCheckpoint(Result):
    """A checkpoint in a run folder."""

    checkpoint: str
    bytes: int


class PrunedJob(Result):
    """A job, with its deleted and its kept checkpoints."""

    id: str
    gone: list[KeptCheckpoint]
    stays: list[KeptCheckpoint]


class PrunedCheckpoints(Result):
    """Checkpoints of jobs that ended before a time. ``deleted``: false where they were only listed."""

    before: Moment
    deleted: bool
    jobs: list[PrunedJob]

    @classmethod
    def of(cls, pruned: Iterable[PrunedRunFolders], before: datetime, *, deleted: bool) -> Self:
        def kept(checkpoints: Iterable[StoredCheckpoint]) -> list[KeptCheckpoint]:
            return [KeptCheckpoint(checkpoint=one.id, bytes=one.size) for one in checkpoints]

        return cls(
            before=before,
            deleted=deleted,
            jobs=[PrunedJob(id=one.view.id, gone=kept(one.gone), stays=kept(one.stays)) for one in pruned],
        )
