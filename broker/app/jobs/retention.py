"""Deleting checkpoints of ended jobs on request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from broker.app.jobs import jobs
from broker.app.jobs.runs_root import chosen
from broker.app.wiring import Broker
from broker.core.actors import Actor, Role
from broker.core.events.outcomes import JobState
from broker.core.events.views import JobView
from broker.runfolder.retention import StoredCheckpoint, drop, kept, superfluous

_ENDED = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True)
class PrunedRunFolders:
    """The checkpoints of one job that were deleted, or would be (``gone``), and those that stay."""

    view: JobView
    gone: tuple[StoredCheckpoint, ...]
    stays: tuple[StoredCheckpoint, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(one.size for one in self.gone)


def prune(
    broker: Broker, ended_before: datetime, *, by: Actor, newest_too: bool = False, dry_run: bool = False
) -> list[PrunedRunFolders]:
    """Delete the checkpoints of closed jobs that ended before ``ended_before`` (UTC): of the jobs of ``by``, for an
    administrator of all. Each job keeps its newest complete checkpoint unless ``newest_too``; a job that an open job
    resumes from keeps all. Output, history and costs stay. Returns the jobs concerned, newest first. Idempotent. Raises
    `Unreachable`."""
    done, place = [], chosen(broker).rstrip("/")
    with broker.store.reading() as look:
        needed = {view.job.resume_from.job for view in look.unclosed() if view.job.resume_from}
    for view in jobs.search(broker, states=_ENDED, user=None if Role.ADMINISTRATOR in by.roles else by.identity).views:
        if not view.closed or view.ended_at is None or view.ended_at >= ended_before:
            continue
        if view.id in needed:
            continue
        folder = f"{place}/{view.id}"
        found = kept(folder)
        doomed = found if newest_too else superfluous(found)
        if not doomed:
            continue
        if not dry_run:
            drop(folder, doomed)
        done.append(PrunedRunFolders(view, doomed, tuple(one for one in found if one not in doomed)))
    return done
