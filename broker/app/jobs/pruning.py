"""All that `gpubroker jobs prune` deletes: checkpoints, what the active policy no longer keeps, and snapshots.

A job needs its snapshot until it is closed, while an open job resumes from it or takes its results, until the retention
time of snapshots expires, and as long as its run folder has a checkpoint or results, for resuming or understanding it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Self

from broker.agent.store import ObjectFolder
from broker.app import runs_root
from broker.app.documents import Moment, Result
from broker.app.jobs.retention import (
    OverdueFiles,
    PrunedRunFolders,
    delete_overdue,
    needed_by_open_jobs,
    overdue,
    prune,
)
from broker.app.jobs.snapshots import pool_name
from broker.app.wiring import Broker
from broker.core.actors import Actor, Role
from broker.core.errors import BrokerError
from broker.core.events.views import JobView
from broker.engines.runfolder.retention import AttemptFiles, StoredCheckpoint, attempt_files, stored_checkpoints
from broker.engines.snapshots.retention import UnneededFiles, delete_unneeded, old_trees, unneeded_files
from broker.engines.snapshots.upload import store_errors

_CLOCK_SKEW = timedelta(hours=1)  # by which the clocks of submitting machines may differ


@dataclass(frozen=True, slots=True)
class UnneededSnapshots:
    """The snapshots of one person's pool that were unneeded at that time (UTC), or were deleted."""

    user: str
    pool: str
    found: UnneededFiles
    at: datetime


def snapshot_expiry_test(broker: Broker) -> Callable[[JobView], bool] | None:
    """A function that tells whether the active policy's retention time for the snapshot of an ended job is over; None
    if the policy has none. Raises `InvalidInput` for a policy that cannot be read."""
    time, now = broker.policy().defaults.keep_snapshots, broker.clock.now()
    if time is None:
        return None
    return lambda view: view.ended_at is not None and view.ended_at + time < now


def unneeded_snapshots(
    broker: Broker, is_over: Callable[[JobView], bool], trouble: dict[str, str], *, by: Actor | None
) -> list[UnneededSnapshots]:
    """The unneeded snapshots in the pools of ``by`` (an administrator, and None: of all submitters). ``is_over``:
    whether the retention time for the snapshot of an ended job is over. Deletes nothing. If a pool or a job's folder
    cannot be read, the reason is added to ``trouble``, and what it may need stays."""
    users = {by.identity} if by is not None else set[str]()
    with broker.store.reading() as reader:
        if by is None or Role.ADMINISTRATOR in by.roles:
            users |= reader.names_in_jobs()["user"]
    pools = _pool_states(broker, users, trouble)
    jobs = _jobs_of_old_trees(broker, pools)
    results = []
    for pool_state in pools:
        try:
            waste = _unneeded_files(broker, pool_state, jobs, is_over, trouble)
        except (BrokerError, OSError) as error:
            trouble[pool_state.pool] = str(error)
            continue
        results += [UnneededSnapshots(pool_state.user, pool_state.pool, waste, pool_state.at)] if waste.size else []
    return results


def delete_snapshots(
    broker: Broker, snapshots: Iterable[UnneededSnapshots], trouble: dict[str, str]
) -> list[UnneededSnapshots]:
    """Delete these snapshots, except what jobs need by now; returns what was deleted. Idempotent; may be interrupted at
    any point. ``trouble`` as `unneeded_snapshots`."""
    deleted = []
    for pool_snapshots in snapshots:
        trees_in_use = partial(_trees_in_use, broker, pool_snapshots.pool, pool_snapshots.at - _CLOCK_SKEW)
        try:
            with store_errors():
                pool = ObjectFolder.open(_url(broker, pool_snapshots.pool))
            deleted_files = delete_unneeded(
                pool, pool_snapshots.found, pool_snapshots.at, trees_in_use, broker.store.deleting_snapshots
            )
        except (BrokerError, OSError) as error:
            trouble[pool_snapshots.pool] = str(error)
            continue
        deleted += [replace(pool_snapshots, found=deleted_files)] if deleted_files.size else []
    return deleted


@dataclass(frozen=True, slots=True)
class _PoolState:
    """A person's pool with the trees that were old at that time (UTC)."""

    user: str
    pool: str
    at: datetime
    old: frozenset[str]


@dataclass(frozen=True, slots=True)
class _TreeJobs:
    """By pool and tree: whether an open job needs it, and the closed jobs that had it, oldest first."""

    by_open: set[tuple[str, str]] = field(default_factory=set)
    closed: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))


def _pool_states(broker: Broker, users: Iterable[str], trouble: dict[str, str]) -> list[_PoolState]:
    states = []
    for user in sorted(users):
        name, now = pool_name(broker, Actor(user)), broker.clock.now()
        try:
            with store_errors():
                pool = ObjectFolder.open(_url(broker, name))
            states.append(_PoolState(user, name, now, old_trees(pool, now)))
        except (BrokerError, OSError) as error:
            trouble[name] = str(error)
    return states


def _jobs_of_old_trees(broker: Broker, pools: Iterable[_PoolState]) -> _TreeJobs:
    """The jobs of all old trees, in one pass over the jobs of the store, however many pools there are."""
    jobs, old = _TreeJobs(), {pool_state.pool: pool_state.old for pool_state in pools if pool_state.old}
    if not old:
        return jobs
    with broker.store.reading() as reader:
        needed_ids = needed_by_open_jobs(reader)
        for use in reader.snapshot_uses():
            for pool in use.pools & old.keys():
                for tree in use.trees & old[pool]:
                    if use.closed and use.job not in needed_ids:
                        jobs.closed[pool, tree].append(use.job)
                    else:
                        jobs.by_open.add((pool, tree))
    return jobs


def _unneeded_files(
    broker: Broker, pool_state: _PoolState, jobs: _TreeJobs, is_over: Callable[[JobView], bool], trouble: dict[str, str]
) -> UnneededFiles:
    trees_in_use, cache = _trees_in_use(broker, pool_state.pool, pool_state.at - _CLOCK_SKEW), dict[str, bool]()

    def is_needed(tree: str) -> bool:
        closed = reversed(jobs.closed.get((pool_state.pool, tree), ()))
        return (pool_state.pool, tree) in jobs.by_open or any(
            _needs_snapshot(broker, job, is_over, cache, trouble) for job in closed
        )

    with store_errors():
        pool = ObjectFolder.open(_url(broker, pool_state.pool))
    return unneeded_files(pool, [tree for tree in pool_state.old - trees_in_use if not is_needed(tree)], pool_state.at)


def _needs_snapshot(
    broker: Broker, job: str, is_over: Callable[[JobView], bool], cache: dict[str, bool], trouble: dict[str, str]
) -> bool:
    """Whether a closed job needs its snapshot. ``cache``: earlier answers."""
    if job not in cache:
        with broker.store.reading() as reader:
            view = next(iter(reader.views([job])), None)
        cache[job] = view is None or not is_over(view) or _has_kept_files(broker, job, trouble)
    return cache[job]


def _has_kept_files(broker: Broker, job: str, trouble: dict[str, str]) -> bool:
    """Whether the run folder holds a checkpoint or results; true if it cannot be read."""
    folder = f"{runs_root.search_root(broker).rstrip('/')}/{job}"
    try:
        return bool(stored_checkpoints(folder)) or bool(attempt_files(folder).get(AttemptFiles.RESULTS))
    except (BrokerError, OSError) as error:
        trouble[job] = str(error)
        return True


def _trees_in_use(broker: Broker, pool: str, since: datetime) -> frozenset[str]:
    """The trees of jobs that are open, or were submitted since."""
    with broker.store.reading() as reader:
        return reader.trees_since(pool, since)


def _url(broker: Broker, pool: str) -> str:
    return f"{runs_root.search_root(broker).rstrip('/')}/{pool}"


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
