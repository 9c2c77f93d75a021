"""Deleting snapshots that no job needs: which trees these are, by pool.

A job needs its snapshot until it is closed, while an open job resumes from it or takes its results, until the retention
time of snapshots expires, and as long as its run folder has a checkpoint or results, for resuming or understanding it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from broker.agent.store import ObjectFolder
from broker.app.jobs import runs_root
from broker.app.jobs.retention import needed_by_open
from broker.app.jobs.snapshots import pool_of
from broker.app.wiring import Broker
from broker.core.actors import Actor, Role
from broker.core.errors import BrokerError
from broker.core.events.views import JobView
from broker.runfolder.retention import AttemptFiles, kept, left_by_attempts
from broker.snapshots.retention import UnneededFiles, delete_unneeded, old_trees, unneeded
from broker.snapshots.upload import reaching

_CLOCKS = timedelta(hours=1)  # by which the clocks of submitting machines may differ


@dataclass(frozen=True, slots=True)
class UnneededSnapshots:
    """The snapshots of one person's pool that were unneeded at that time (UTC), or were deleted."""

    user: str
    pool: str
    found: UnneededFiles
    at: datetime


def policy_over(broker: Broker) -> Callable[[JobView], bool] | None:
    """A function that tells whether the active policy's retention time for the snapshot of an ended job is over; None
    if the policy has none. Raises `InvalidInput` for a policy that cannot be read."""
    time, now = broker.policy().defaults.keep_snapshots, broker.clock.now()
    if time is None:
        return None
    return lambda view: view.ended_at is not None and view.ended_at + time < now


def unneeded_snapshots(
    broker: Broker, over: Callable[[JobView], bool], trouble: dict[str, str], *, by: Actor | None
) -> list[UnneededSnapshots]:
    """The unneeded snapshots in the pools of ``by`` (an administrator, and None: of all submitters). ``over``: whether
    the retention time for the snapshot of an ended job is over. Deletes nothing. If a pool or a job's folder cannot be
    read, the reason is added to ``trouble``, and what it may need stays."""
    users = {by.identity} if by is not None else set[str]()
    with broker.store.reading() as look:
        if by is None or Role.ADMINISTRATOR in by.roles:
            users |= look.names_in_jobs()["user"]
    looks = _looks(broker, users, trouble)
    jobs = _jobs_of(broker, looks)
    found = []
    for one in looks:
        try:
            waste = _unneeded_in(broker, one, jobs, over, trouble)
        except (BrokerError, OSError) as error:
            trouble[one.pool] = str(error)
            continue
        found += [UnneededSnapshots(one.user, one.pool, waste, one.at)] if waste.size else []
    return found


def delete_snapshots(
    broker: Broker, found: Iterable[UnneededSnapshots], trouble: dict[str, str]
) -> list[UnneededSnapshots]:
    """Delete these snapshots, except what jobs need by now; returns what was deleted. Idempotent; may be interrupted at
    any point. ``trouble`` as `unneeded_snapshots`."""
    deleted = []
    for one in found:
        since = partial(_needed_since, broker, one.pool, one.at - _CLOCKS)
        try:
            with reaching():
                pool = ObjectFolder.open(_url(broker, one.pool))
            gone = delete_unneeded(pool, one.found, one.at, since, broker.store.deleting_snapshots)
        except (BrokerError, OSError) as error:
            trouble[one.pool] = str(error)
            continue
        deleted += [replace(one, found=gone)] if gone.size else []
    return deleted


@dataclass(frozen=True, slots=True)
class _PoolLook:
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


def _looks(broker: Broker, users: Iterable[str], trouble: dict[str, str]) -> list[_PoolLook]:
    found = []
    for user in sorted(users):
        name, now = pool_of(broker, Actor(user)), broker.clock.now()
        try:
            with reaching():
                pool = ObjectFolder.open(_url(broker, name))
            found.append(_PoolLook(user, name, now, old_trees(pool, now)))
        except (BrokerError, OSError) as error:
            trouble[name] = str(error)
    return found


def _jobs_of(broker: Broker, looks: Iterable[_PoolLook]) -> _TreeJobs:
    """The jobs of all old trees, in one pass over the jobs of the store, however many pools there are."""
    jobs, old = _TreeJobs(), {one.pool: one.old for one in looks if one.old}
    if not old:
        return jobs
    with broker.store.reading() as look:
        by_open = needed_by_open(look)
        for use in look.snapshot_uses():
            for pool in use.pools & old.keys():
                for tree in use.trees & old[pool]:
                    if use.closed and use.job not in by_open:
                        jobs.closed[pool, tree].append(use.job)
                    else:
                        jobs.by_open.add((pool, tree))
    return jobs


def _unneeded_in(
    broker: Broker, one: _PoolLook, jobs: _TreeJobs, over: Callable[[JobView], bool], trouble: dict[str, str]
) -> UnneededFiles:
    recent, judged = _needed_since(broker, one.pool, one.at - _CLOCKS), dict[str, bool]()

    def needed(tree: str) -> bool:
        closed = reversed(jobs.closed.get((one.pool, tree), ()))
        return (one.pool, tree) in jobs.by_open or any(_needs(broker, job, over, judged, trouble) for job in closed)

    with reaching():
        pool = ObjectFolder.open(_url(broker, one.pool))
    return unneeded(pool, [tree for tree in one.old - recent if not needed(tree)], one.at)


def _needs(
    broker: Broker, job: str, over: Callable[[JobView], bool], judged: dict[str, bool], trouble: dict[str, str]
) -> bool:
    """Whether a closed job needs its snapshot. ``judged``: earlier answers."""
    if job not in judged:
        with broker.store.reading() as look:
            view = next(iter(look.views([job])), None)
        judged[job] = view is None or not over(view) or _leaves_something(broker, job, trouble)
    return judged[job]


def _leaves_something(broker: Broker, job: str, trouble: dict[str, str]) -> bool:
    """Whether the run folder holds a checkpoint or results; true if it cannot be read."""
    folder = f"{runs_root.chosen(broker).rstrip('/')}/{job}"
    try:
        return bool(kept(folder)) or bool(left_by_attempts(folder).get(AttemptFiles.RESULTS))
    except (BrokerError, OSError) as error:
        trouble[job] = str(error)
        return True


def _needed_since(broker: Broker, pool: str, since: datetime) -> frozenset[str]:
    """The trees of jobs that are open, or were submitted since."""
    with broker.store.reading() as look:
        return look.trees_since(pool, since)


def _url(broker: Broker, pool: str) -> str:
    return f"{runs_root.chosen(broker).rstrip('/')}/{pool}"
