"""Deletes files of ended jobs: checkpoints on request, and files past the policy's retention."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from broker.app.runs_root import search_root
from broker.app.wiring import Broker
from broker.core.actors import Actor, Role
from broker.core.errors import BrokerError
from broker.core.events.views import JobView
from broker.core.job.arrays import task_id
from broker.core.ports import PolicyDefaults
from broker.engines.runfolder.retention import (
    AttemptFiles,
    StoredCheckpoint,
    attempt_files,
    drop_checkpoints,
    drop_files,
    stored_checkpoints,
    superfluous_checkpoints,
)

if TYPE_CHECKING:
    from broker.store.jobs.reader import StoreReader


_MAX_FAILURES_IN_ROW = 5  # consecutive unreadable folders from which the run store itself counts as unreachable


_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True, slots=True)
class PrunedRunFolders:
    """The checkpoints of one job that were deleted, or would be (``gone``), and those that stay."""

    view: JobView
    gone: tuple[StoredCheckpoint, ...]
    stays: tuple[StoredCheckpoint, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(checkpoint.size for checkpoint in self.gone)


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
    run folder cannot be read or changed, the reason is added to ``trouble`` by job; after `_MAX_FAILURES_IN_ROW` such
    folders in succession, the rest is left, too."""
    runs_url = search_root(broker).rstrip("/")
    with broker.store.reading() as reader:
        needed_ids = {job for view in reader.unclosed() for job in _resumed_jobs(view)}
        ended_views = [view for view in reader.ended_between(None, ended_before) if view.closed]  # tasks of arrays, too
    is_administrator = Role.ADMINISTRATOR in by.roles
    own_views = [
        candidate
        for candidate in ended_views
        if candidate.id not in needed_ids and (is_administrator or candidate.user == by.identity)
    ]
    own_views.sort(key=lambda view: view.submitted_at, reverse=True)

    def prune_job(view: JobView) -> PrunedRunFolders:
        folder = f"{runs_url}/{view.id}"
        stored = stored_checkpoints(folder)
        doomed = stored if newest_too else superfluous_checkpoints(stored)
        if doomed and not dry_run:
            drop_checkpoints(folder, doomed)
        return PrunedRunFolders(view, doomed, tuple(checkpoint for checkpoint in stored if checkpoint not in doomed))

    return [
        candidate
        for candidate in run_for_each_job([(view.id, partial(prune_job, view)) for view in own_views], trouble)
        if candidate.gone
    ]


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
        return sum(sum(sizes.values()) for sizes in self.files.values()) + sum(
            checkpoint.size for checkpoint in self.checkpoints
        )


def overdue(
    broker: Broker, trouble: dict[str, str], *, by: Actor, besides: Iterable[PrunedRunFolders] = ()
) -> list[OverdueFiles]:
    """The files of jobs of ``by`` (an administrator: of all) that the active policy no longer keeps, oldest end first.
    ``besides``: what is deleted anyway, which is left out. Each job's newest checkpoint stays, and everything that an
    open job resumes from or takes as inputs. Deletes nothing. ``trouble`` as `prune`. Raises `InvalidInput` for a
    policy that cannot be read."""
    defaults, now, runs_url = broker.policy().defaults, broker.clock.now(), search_root(broker).rstrip("/")
    already_deleted = {job_files.view.id: {checkpoint.id for checkpoint in job_files.gone} for job_files in besides}
    steps = [
        (
            view.id,
            partial(_overdue_files, view, f"{runs_url}/{view.id}", defaults, now, already_deleted.get(view.id, ())),
        )
        for view in _due_jobs(broker, defaults, now, None)
        if (Role.ADMINISTRATOR in by.roles or view.user == by.identity) and view.id not in trouble
    ]
    return [job_files for job_files in run_for_each_job(steps, trouble) if job_files.count]


def delete_overdue(
    broker: Broker, overdue_files: Iterable[OverdueFiles], trouble: dict[str, str]
) -> list[OverdueFiles]:
    """Delete these files, except those of jobs that an open job needs by now; returns what was deleted. Idempotent.
    ``trouble`` as `prune`."""
    runs_url = search_root(broker).rstrip("/")
    with broker.store.reading() as reader:
        needed_ids = needed_by_open_jobs(reader)
    steps = [
        (job_files.view.id, partial(_delete, job_files, f"{runs_url}/{job_files.view.id}"))
        for job_files in overdue_files
        if job_files.view.id not in needed_ids
    ]
    return run_for_each_job(steps, trouble)


@dataclass(frozen=True, slots=True)
class DeletedFiles:
    """The deleted files, and by job why a run folder was left unchanged."""

    deleted: tuple[OverdueFiles, ...]
    trouble: Mapping[str, str]


def delete_due(broker: Broker, within: timedelta, retried_last: Collection[str] = ()) -> DeletedFiles:
    """Delete what the active policy no longer keeps, of jobs whose retention time expired ``within`` the time before
    now. A folder that cannot be read or emptied does not stop the others; after `_MAX_FAILURES_IN_ROW` such folders in
    succession, the rest is left to the next call. ``retried_last``: jobs that failed before,
    which are tried after all others,
    so that they do not end every call. Idempotent. Raises `InvalidInput` for a policy that cannot be read."""
    defaults, now, runs_url = broker.policy().defaults, broker.clock.now(), search_root(broker).rstrip("/")
    trouble = dict[str, str]()
    due = sorted(_due_jobs(broker, defaults, now, within), key=lambda view: view.id in retried_last)
    candidates = run_for_each_job(
        [(entry.id, partial(_overdue_files, entry, f"{runs_url}/{entry.id}", defaults, now)) for entry in due], trouble
    )
    with broker.store.reading() as reader:
        needed_ids = needed_by_open_jobs(reader)  # also by jobs submitted while folders were listed
    overdue_files = [entry for entry in candidates if entry.count and entry.view.id not in needed_ids]
    deleted = run_for_each_job(
        [(entry.view.id, partial(_delete, entry, f"{runs_url}/{entry.view.id}")) for entry in overdue_files], trouble
    )
    return DeletedFiles(tuple(deleted), trouble)


def run_for_each_job(steps: Iterable[tuple[str, Callable[[], _ResultT]]], trouble: dict[str, str]) -> list[_ResultT]:
    """The result of the step for each job; reasons of failures are added to ``trouble``. Ends after
    `_MAX_FAILURES_IN_ROW` failures in succession."""
    results, failures_in_row = list[_ResultT](), 0
    for job, step in steps:
        try:
            results.append(step())
            failures_in_row = 0
        except (BrokerError, OSError) as error:  # the folder was damaged, by its agent or another writer
            trouble[job] = str(error)
            failures_in_row += 1
            if failures_in_row == _MAX_FAILURES_IN_ROW:
                break
    return results


def _due_jobs(broker: Broker, defaults: PolicyDefaults, now: datetime, within: timedelta | None) -> list[JobView]:
    """The closed jobs that no open job needs and that have files whose retention time expired ``within`` the time
    before now (None: at any time), oldest end first."""
    times = [
        time for time in (defaults.keep_checkpoints, defaults.keep_results, defaults.keep_logs) if time is not None
    ]
    if within is None:
        times = [min(times)] if times else []
    ended_views: dict[str, JobView] = {}
    with broker.store.reading() as reader:
        needed_ids = needed_by_open_jobs(reader) if times else set()
        for time in times:
            earliest_end = None if within is None else now - time - within
            ended_views |= {view.id: view for view in reader.ended_between(earliest_end, now - time) if view.closed}
    due_views = [
        (view.ended_at, view.id, view) for view in ended_views.values() if view.ended_at and view.id not in needed_ids
    ]
    return [view for _, _, view in sorted(due_views, key=itemgetter(0, 1))]


def _overdue_files(
    view: JobView, folder: str, defaults: PolicyDefaults, now: datetime, already_deleted: Collection[str] = ()
) -> OverdueFiles:
    """The parts of the job's folder that are no longer kept, without the checkpoints ``already_deleted``."""
    expired_kinds = {
        kind
        for kind, expires_at in retention_ends(view, defaults).items()
        if expires_at is not None and expires_at < now
    }
    files_by_kind = attempt_files(folder) if expired_kinds & set(AttemptFiles) else {}
    files = {kind: paths for kind, paths in files_by_kind.items() if kind in expired_kinds and paths}
    surplus = superfluous_checkpoints(stored_checkpoints(folder)) if "checkpoints" in expired_kinds else ()
    return OverdueFiles(
        view, files, tuple(checkpoint for checkpoint in surplus if checkpoint.id not in already_deleted)
    )


def _delete(overdue_files: OverdueFiles, folder: str) -> OverdueFiles:
    drop_checkpoints(folder, overdue_files.checkpoints)
    drop_files(folder, [path for paths in overdue_files.files.values() for path in paths])
    return overdue_files


def needed_by_open_jobs(reader: StoreReader) -> set[str]:
    """The jobs that an open job resumes from or takes results of."""
    return {job for view in reader.unclosed() for job in (*_resumed_jobs(view), *_input_jobs(view))}


def _input_jobs(view: JobView) -> list[str]:
    predecessors = [predecessor for predecessor in view.job.after if predecessor.inputs]
    tasks = (
        task_id(array, index)
        for predecessor in predecessors
        for array, indices in predecessor.tasks.items()
        for index in indices
    )
    return [*(predecessor.job for predecessor in predecessors), *tasks]


def _resumed_jobs(view: JobView) -> list[str]:
    """The jobs from whose checkpoints this one, or a task of it that has not begun, resumes."""
    job, array = view.job, view.job.array
    job_ids = [job.resume_from.job] if job.resume_from else []
    if array is not None:
        job_ids += filter(None, map(array.resume_task, array.with_checkpoint))
    return job_ids


def retention_ends(view: JobView, defaults: PolicyDefaults) -> dict[str, datetime | None]:
    """Until when checkpoints, results, logs and snapshots of an ended job are kept (UTC), by the defaults ``defaults``
    of the policies; None: until a person deletes them. Empty for a job that has not ended."""
    if view.ended_at is None:
        return {}
    times = {"checkpoints": defaults.keep_checkpoints, "results": defaults.keep_results, "logs": defaults.keep_logs}
    if view.job.snapshot is not None:
        times["snapshots"] = defaults.keep_snapshots
    return {kind: None if time is None else view.ended_at + time for kind, time in times.items()}
