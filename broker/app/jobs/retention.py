"""Deleting checkpoints of ended jobs on request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from broker.app.jobs.runs_root import chosen
from broker.app.wiring import Broker
from broker.core.actors import Actor, Role
from broker.core.events.views import JobView
from broker.core.job.arrays import task_id
from broker.runfolder.retention import StoredCheckpoint, drop, kept, superfluous


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
        needed = {job for view in look.unclosed() for job in _started_from(view)}
        # What ended by then was submitted before; tasks of arrays are among them.
        long_ago = [view for view in look.submitted_before(ended_before) if _is_over(view, ended_before)]
    everybodys = Role.ADMINISTRATOR in by.roles
    for view in reversed(long_ago):
        if view.id in needed or not (everybodys or view.user == by.identity):
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


def _started_from(view: JobView) -> list[str]:
    """The jobs whose checkpoints this one, or a task of it that has not begun, goes on from."""
    job, array = view.job, view.job.array
    found = [job.resume_from.job] if job.resume_from else []
    if array is not None and array.again is not None:
        found += [task_id(array.again, index) for index in array.with_checkpoint]
    return found


def _is_over(view: JobView, ended_before: datetime) -> bool:
    return view.closed and view.ended_at is not None and view.ended_at < ended_before
