"""All that `gpubroker jobs prune` deletes: checkpoints, what the active policy no longer keeps, and snapshots."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from broker.app.documents import Moment, Result
from broker.app.jobs.retention import OverdueFiles, PrunedRunFolders, delete_overdue, overdue, prune
from broker.app.jobs.snapshot_retention import (
    UnneededSnapshots,
    delete_snapshots,
    snapshot_expiry_test,
    unneeded_snapshots,
)
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.events.views import JobView
from broker.engines.runfolder.retention import AttemptFiles, StoredCheckpoint


@dataclass(frozen=True, slots=True)
class Prunable:
    """Files that can be deleted, or were. ``trouble``: why folders of jobs and pools of snapshots were left as they
    are, by name."""

    checkpoints: Sequence[PrunedRunFolders]
    by_policy: Sequence[OverdueFiles]
    snapshots: Sequence[UnneededSnapshots]
    trouble: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes."""
        return (
            sum(files.size for files in self.checkpoints)
            + sum(files.size for files in self.by_policy)
            + sum(files.found.size for files in self.snapshots)
        )

    def __bool__(self) -> bool:
        return bool(self.checkpoints or self.by_policy or self.snapshots)


def find_prunable(broker: Broker, before: datetime, *, by: Actor, newest_too: bool = False) -> Prunable:
    """The files that `delete_prunable` would delete now. ``before``: UTC. A snapshot counts only once nothing else of
    its jobs is left, so those of jobs whose results or checkpoints would be deleted first are not in it. Raises
    `InvalidInput` for a policy that cannot be read."""
    trouble = dict[str, str]()
    checkpoints = prune(broker, before, trouble, by=by, newest_too=newest_too, dry_run=True)
    overdue_files = overdue(broker, trouble, by=by, besides=checkpoints)
    return Prunable(
        checkpoints, overdue_files, unneeded_snapshots(broker, _is_over_test(broker, before), trouble, by=by), trouble
    )


def delete_prunable(broker: Broker, before: datetime, *, by: Actor, newest_too: bool = False) -> Prunable:
    """Delete checkpoints of the jobs of ``by`` (an administrator: of all) that ended before that time (UTC), what the
    active policy no longer keeps, and the snapshots that no job needs then, of jobs that ended before that time or
    whose time by the policy is over; returns what was deleted. A folder that cannot be read or emptied does not stop
    the others. Idempotent. Raises `InvalidInput` for a policy that cannot be read."""
    trouble = dict[str, str]()
    checkpoints = prune(broker, before, trouble, by=by, newest_too=newest_too)
    overdue_files = delete_overdue(broker, overdue(broker, trouble, by=by), trouble)
    is_over = _is_over_test(broker, before)
    snapshots = delete_snapshots(broker, unneeded_snapshots(broker, is_over, trouble, by=by), trouble)
    return Prunable(checkpoints, overdue_files, snapshots, trouble)


def _is_over_test(broker: Broker, before: datetime) -> Callable[[JobView], bool]:
    by_policy = snapshot_expiry_test(broker)

    def is_over(view: JobView) -> bool:
        ended_before = view.ended_at is not None and view.ended_at < before
        return ended_before or (by_policy is not None and by_policy(view))

    return is_over


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
    def of(cls, overdue_files: OverdueFiles) -> Self:
        counts = {kind: len(overdue_files.files.get(kind, ())) for kind in AttemptFiles}
        return cls(
            id=overdue_files.view.id,
            results=counts[AttemptFiles.RESULTS],
            logs=counts[AttemptFiles.LOGS],
            checkpoints=len(overdue_files.checkpoints),
            bytes=overdue_files.size,
        )


class PrunedSnapshots(Result):
    """Files that one person's jobs were submitted with, and that no job needs any more: numbers of folders and of
    contents, and bytes of all."""

    user: str
    folders: int
    files: int
    bytes: int

    @classmethod
    def of(cls, snapshots: UnneededSnapshots) -> Self:
        return cls(
            user=snapshots.user,
            folders=len(snapshots.found.trees),
            files=len(snapshots.found.contents),
            bytes=snapshots.found.size,
        )


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
    def of(cls, files: Prunable, before: datetime, *, deleted: bool) -> Self:
        def stored(checkpoints: Iterable[StoredCheckpoint]) -> list[KeptCheckpoint]:
            return [KeptCheckpoint(checkpoint=checkpoint.id, bytes=checkpoint.size) for checkpoint in checkpoints]

        return cls.from_parts(
            files,
            before=before,
            deleted=deleted,
            jobs=[
                PrunedJob(id=folder.view.id, gone=stored(folder.gone), stays=stored(folder.stays))
                for folder in files.checkpoints
            ],
            bytes=files.size,
            trouble=dict(files.trouble),
        )
