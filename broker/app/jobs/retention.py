"""Deletes files of ended jobs: checkpoints on request, and files past the policy's retention."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from broker.app.jobs.runs_root import chosen
from broker.app.wiring import Broker
from broker.core.actors import Actor, Role
from broker.core.errors import BrokerError
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


_AT_MOST_IN_TURN = 5  # consecutive unreadable folders from which the run store itself counts as unreachable


_Done = TypeVar("_Done")


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
    broker: Broker,
    ended_before: datetime,
    trouble: dict[str, str],
    *,
    by: Actor,
    newest_too: bool = False,
    dry_run: bool = False,
) -> list[PrunedRunFolders]:
    """Delete the checkpoints of closed jobs that ended before ``ended_before`` (UTC): of the jobs of ``by``, for an
    administrator of all. Each job keeps its newest complete checkpoint unless ``newest_too``; a job that an open job
    resumes from keeps all. Output, history and costs stay. Returns the jobs concerned, newest first. Idempotent. If a
    run folder cannot be read or changed, the reason is added to ``trouble`` by job; after `_AT_MOST_IN_TURN` such
    folders in succession, the rest is left, too."""
    place = chosen(broker).rstrip("/")
    with broker.store.reading() as look:
        needed = {job for view in look.unclosed() for job in _started_from(view)}
        long_ago = [view for view in look.ended_between(None, ended_before) if view.closed]  # tasks of arrays, too
    everybodys = Role.ADMINISTRATOR in by.roles
    mine = [one for one in long_ago if one.id not in needed and (everybodys or one.user == by.identity)]
    mine.sort(key=lambda view: view.submitted_at, reverse=True)

    def pruned(view: JobView) -> PrunedRunFolders:
        folder = f"{place}/{view.id}"
        found = kept(folder)
        doomed = found if newest_too else superfluous(found)
        if doomed and not dry_run:
            drop(folder, doomed)
        return PrunedRunFolders(view, doomed, tuple(one for one in found if one not in doomed))

    return [one for one in each_job([(view.id, partial(pruned, view)) for view in mine], trouble) if one.gone]


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


def overdue(
    broker: Broker, trouble: dict[str, str], *, by: Actor, besides: Iterable[PrunedRunFolders] = ()
) -> list[OverdueFiles]:
    """The files of jobs of ``by`` (an administrator: of all) that the active policy no longer keeps, oldest end first.
    ``besides``: what is deleted anyway, which is left out. Each job's newest checkpoint stays, and everything that an
    open job resumes from or takes as inputs. Deletes nothing. ``trouble`` as `prune`. Raises `InvalidInput` for a
    policy that cannot be read."""
    said, now, place = broker.policy().defaults, broker.clock.now(), chosen(broker).rstrip("/")
    anyway = {one.view.id: {checkpoint.id for checkpoint in one.gone} for one in besides}
    steps = [
        (view.id, partial(_overdue_of, view, f"{place}/{view.id}", said, now, anyway.get(view.id, ())))
        for view in _due(broker, said, now, None)
        if (Role.ADMINISTRATOR in by.roles or view.user == by.identity) and view.id not in trouble
    ]
    return [one for one in each_job(steps, trouble) if one.count]


def delete_overdue(broker: Broker, found: Iterable[OverdueFiles], trouble: dict[str, str]) -> list[OverdueFiles]:
    """Delete these files, except those of jobs that an open job needs by now; returns what was deleted. Idempotent.
    ``trouble`` as `prune`."""
    place = chosen(broker).rstrip("/")
    with broker.store.reading() as look:
        needed = needed_by_open(look)
    steps = [
        (one.view.id, partial(_delete, one, f"{place}/{one.view.id}")) for one in found if one.view.id not in needed
    ]
    return each_job(steps, trouble)


@dataclass(frozen=True, slots=True)
class DeletedFiles:
    """The deleted files, and by job why a run folder was left unchanged."""

    deleted: tuple[OverdueFiles, ...]
    trouble: Mapping[str, str]


def delete_due(broker: Broker, within: timedelta, last: Collection[str] = ()) -> DeletedFiles:
    """Delete what the active policy no longer keeps, of jobs whose retention time expired ``within`` the time before
    now. A folder that cannot be read or emptied does not stop the others; after `_AT_MOST_IN_TURN` such folders in
    succession, the rest is left to the next call. ``last``: jobs that failed before, which are tried after all others,
    so that they do not end every call. Idempotent. Raises `InvalidInput` for a policy that cannot be read."""
    said, now, place = broker.policy().defaults, broker.clock.now(), chosen(broker).rstrip("/")
    trouble = dict[str, str]()
    due = sorted(_due(broker, said, now, within), key=lambda view: view.id in last)
    looked = each_job([(one.id, partial(_overdue_of, one, f"{place}/{one.id}", said, now)) for one in due], trouble)
    with broker.store.reading() as look:
        needed = needed_by_open(look)  # also by jobs submitted while folders were listed
    late = [one for one in looked if one.count and one.view.id not in needed]
    done = each_job([(one.view.id, partial(_delete, one, f"{place}/{one.view.id}")) for one in late], trouble)
    return DeletedFiles(tuple(done), trouble)


def each_job(steps: Iterable[tuple[str, Callable[[], _Done]]], trouble: dict[str, str]) -> list[_Done]:
    """The result of the step for each job; reasons of failures are added to ``trouble``. Ends after `_AT_MOST_IN_TURN`
    failures in succession."""
    done, in_turn = list[_Done](), 0
    for job, step in steps:
        try:
            done.append(step())
            in_turn = 0
        except (BrokerError, OSError) as error:  # the folder was damaged, by its agent or another writer
            trouble[job] = str(error)
            in_turn += 1
            if in_turn == _AT_MOST_IN_TURN:
                break
    return done


def _due(broker: Broker, said: PolicyDefaults, now: datetime, within: timedelta | None) -> list[JobView]:
    """The closed jobs that no open job needs and that have files whose retention time expired ``within`` the time
    before now (None: at any time), oldest end first."""
    times = [time for time in (said.keep_checkpoints, said.keep_results, said.keep_logs) if time is not None]
    if within is None:
        times = [min(times)] if times else []
    ended: dict[str, JobView] = {}
    with broker.store.reading() as look:
        needed = needed_by_open(look) if times else set()
        for time in times:
            since = None if within is None else now - time - within
            ended |= {view.id: view for view in look.ended_between(since, now - time) if view.closed}
    over = [(view.ended_at, view.id, view) for view in ended.values() if view.ended_at and view.id not in needed]
    return [view for _, _, view in sorted(over, key=itemgetter(0, 1))]


def _overdue_of(
    view: JobView, folder: str, said: PolicyDefaults, now: datetime, anyway: Collection[str] = ()
) -> OverdueFiles:
    """The parts of the job's folder that are no longer kept, without the checkpoints ``anyway``."""
    gone = {kind for kind, last in kept_until(view, said).items() if last is not None and last < now}
    left = left_by_attempts(folder) if gone & set(AttemptFiles) else {}
    files = {kind: paths for kind, paths in left.items() if kind in gone and paths}
    late = superfluous(kept(folder)) if "checkpoints" in gone else ()
    return OverdueFiles(view, files, tuple(one for one in late if one.id not in anyway))


def _delete(one: OverdueFiles, folder: str) -> OverdueFiles:
    drop(folder, one.checkpoints)
    drop_files(folder, [path for paths in one.files.values() for path in paths])
    return one


def needed_by_open(look: StoreReading) -> set[str]:
    """The jobs that an open job resumes from or takes results of."""
    return {job for view in look.unclosed() for job in (*_started_from(view), *_taken_from(view))}


def _taken_from(view: JobView) -> list[str]:
    """The jobs whose results this one takes as inputs."""
    before = [one for one in view.job.after if one.inputs]
    tasks = (task_id(array, index) for one in before for array, indices in one.tasks.items() for index in indices)
    return [*(one.job for one in before), *tasks]


def _started_from(view: JobView) -> list[str]:
    """The jobs from whose checkpoints this one, or a task of it that has not begun, resumes."""
    job, array = view.job, view.job.array
    found = [job.resume_from.job] if job.resume_from else []
    if array is not None:
        found += filter(None, map(array.starts_from, array.with_checkpoint))
    return found


def kept_until(view: JobView, said: PolicyDefaults) -> dict[str, datetime | None]:
    """Until when checkpoints, results, logs and snapshots of an ended job are kept (UTC), by the defaults ``said`` of
    the policies; None: until a person deletes them. Empty for a job that has not ended."""
    if view.ended_at is None:
        return {}
    times = {"checkpoints": said.keep_checkpoints, "results": said.keep_results, "logs": said.keep_logs}
    if view.job.snapshot is not None:
        times["snapshots"] = said.keep_snapshots
    return {kind: None if time is None else view.ended_at + time for kind, time in times.items()}
