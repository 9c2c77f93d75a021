"""Deleting files of ended jobs: checkpoints on request, and what the active policy no longer keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.app.jobs.runs_root import chosen
from broker.app.wiring import Broker
from broker.core.actors import Actor, Role
from broker.core.events.views import JobView
from broker.core.job.arrays import task_id
from broker.core.ports import PolicyDefaults
from broker.runfolder.retention import (
    AttemptFiles,
    StoredCheckpoint,
    drop,
    drop_files,
    kept,
    left_by_attempts,
    superfluous,
)

if TYPE_CHECKING:
    from broker.store.jobs.reading import StoreReading


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


@dataclass(frozen=True, slots=True)
class OverdueFiles:
    """Files of one job that the active policy no longer keeps: results and logs by path in its run folder, with sizes
    in bytes, and checkpoints."""

    view: JobView
    files: Mapping[AttemptFiles, Mapping[str, int]]
    checkpoints: tuple[StoredCheckpoint, ...] = ()

    @property
    def count(self) -> int:
        return sum(map(len, self.files.values())) + len(self.checkpoints)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(sum(sizes.values()) for sizes in self.files.values()) + sum(one.size for one in self.checkpoints)


def kept_until(view: JobView, said: PolicyDefaults) -> dict[str, datetime | None]:
    """Until when checkpoints, results and logs of an ended job stay (UTC); None: until a person deletes them. Empty for
    a job that has not ended."""
    if view.ended_at is None:
        return {}
    times = {"checkpoints": said.keep_checkpoints, "results": said.keep_results, "logs": said.keep_logs}
    return {kind: None if time is None else view.ended_at + time for kind, time in times.items()}


def overdue(
    broker: Broker, *, by: Actor | None, within: timedelta | None = None, besides: Iterable[PrunedRunFolders] = ()
) -> list[OverdueFiles]:
    """What the active policy no longer keeps, of the jobs of ``by`` (an administrator: of all; None: of all, by the
    policy alone), oldest first. ``within``: only of jobs whose last time was over so recently. ``besides``: what is
    deleted anyway, and left out. Each job's newest checkpoint stays, and everything that an open job goes on from or
    takes as inputs. Deletes nothing. Raises `Unreachable`, and `InvalidInput` for a policy that cannot be read."""
    said, now, place = broker.policy().defaults, broker.clock.now(), chosen(broker).rstrip("/")
    times = [time for time in (said.keep_checkpoints, said.keep_results, said.keep_logs) if time is not None]
    if not times:
        return []
    since = None if within is None else now - max(times) - within
    with broker.store.reading() as look:
        needed = _needed(look)
        old = (view for view in look.submitted_before(now - min(times)) if _is_over(view, now - min(times), since))
        ended = [view for view in old if view.id not in needed]
    anyway = {one.view.id: {checkpoint.id for checkpoint in one.gone} for one in besides}
    found = []
    for view in ended:
        if by is not None and Role.ADMINISTRATOR not in by.roles and view.user != by.identity:
            continue
        folder, until = f"{place}/{view.id}", kept_until(view, said)
        gone = {kind for kind, last in until.items() if last is not None and last < now}
        left = left_by_attempts(folder) if gone & set(AttemptFiles) else {}
        files = {kind: paths for kind, paths in left.items() if kind in gone and paths}
        late = superfluous(kept(folder)) if "checkpoints" in gone else ()
        checkpoints = tuple(one for one in late if one.id not in anyway.get(view.id, ()))
        if files or checkpoints:
            found.append(OverdueFiles(view, files, checkpoints))
    return found


def delete_overdue(broker: Broker, found: Iterable[OverdueFiles]) -> None:
    """Delete them, without those of jobs that an open job has come to need since. May be repeated. Raises
    `Unreachable`."""
    place = chosen(broker).rstrip("/")
    with broker.store.reading() as look:
        needed = _needed(look)
    for one in found:
        if one.view.id in needed:
            continue
        drop(f"{place}/{one.view.id}", one.checkpoints)
        drop_files(f"{place}/{one.view.id}", [path for paths in one.files.values() for path in paths])


def _needed(look: StoreReading) -> set[str]:
    """The jobs that an open one goes on from or takes results of."""
    return {job for view in look.unclosed() for job in (*_started_from(view), *_taken_from(view))}


def _taken_from(view: JobView) -> list[str]:
    """The jobs whose results this one takes as inputs."""
    before = [one for one in view.job.after if one.inputs]
    return [name for one in before for name in (one.job, *(task_id(one.job, index) for index in one.tasks))]


def _started_from(view: JobView) -> list[str]:
    """The jobs whose checkpoints this one, or a task of it that has not begun, goes on from."""
    job, array = view.job, view.job.array
    found = [job.resume_from.job] if job.resume_from else []
    if array is not None and array.again is not None:
        found += [task_id(array.again, index) for index in array.with_checkpoint]
    return found


def _is_over(view: JobView, ended_before: datetime, since: datetime | None = None) -> bool:
    ended = view.ended_at if view.closed else None
    return ended is not None and ended < ended_before and (since is None or ended >= since)
