"""A job's files at submission: its working folder and local file mounts, from the submitter's disk into the run store.

All of it happens as the submitter and before any money is held. Afterwards nothing is read from the submitter's disk.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from broker.agent.store import ObjectFolder
from broker.app.jobs import runs_root
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.job.jobs import Job
from broker.core.job.snapshots import FileSnapshot, GitState, TreeCopy, in_workdir, is_local
from broker.snapshots.collect import CollectedTree, check_size, collect
from broker.snapshots.git import git_state
from broker.snapshots.upload import Progress, no_progress, store_tree


def resolved(job: Job, folder: Path, where: str) -> Job:
    """The job with the paths of its files in full. Relative ones are relative to ``folder``, ``~`` is this process's
    home. Raises `InvalidInput`, with ``where``, for paths that do not exist and places outside of the working folder.
    """
    changes: dict[str, object] = {}
    if job.workdir is not None:
        path = (folder / Path(job.workdir).expanduser()).resolve()
        if not path.is_dir():
            raise InvalidInput(f"the workdir {job.workdir} is not a folder: {path}", where=where)
        changes["workdir"] = str(path)
    mounts = {place: _mount(place, source, folder, where) for place, source in job.file_mounts.items()}
    if mounts != job.file_mounts:
        changes["file_mounts"] = mounts
    return job.model_copy(update=changes) if changes else job


def _mount(place: str, source: object, folder: Path, where: str) -> object:
    if isinstance(source, dict) and any(is_local(one) for one in _sources(source)):
        raise InvalidInput(
            f"file_mounts: {place}: a bucket cannot be filled from this machine's disk",
            where=where,
            hint=f"write `{place}: PATH` to bring the files along, or upload them and name the bucket's address",
        )
    if in_workdir(place) and posixpath.normpath(place).startswith(".."):
        raise InvalidInput(
            f"file_mounts: {place} lies outside of the working folder",
            where=where,
            hint="write a place within it, an absolute one, or one that begins with ~/",
        )
    if not isinstance(source, str) or not is_local(source):
        return source
    path = Path(source).expanduser()
    path = path if path.is_absolute() else folder / path
    if not path.exists():
        raise InvalidInput(f"file_mounts: {place}: there is no file or folder {path}", where=where)
    return str(path.absolute())


def _sources(bucket: dict[str, object]) -> list[object]:
    source = bucket.get("source")
    return source if isinstance(source, list) else [source]


@dataclass(frozen=True, slots=True)
class Survey:
    """What a snapshot of the job's files would take now, and where each tree goes on the node."""

    trees: tuple[tuple[str, CollectedTree], ...]
    git: GitState | None

    @property
    def files(self) -> int:
        return sum(len(tree.files) for _, tree in self.trees)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(tree.size for _, tree in self.trees)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Virtual environments, which are left out because they work nowhere else."""
        return tuple(str(tree.root / path) for _, tree in self.trees for path in tree.left_out)


def survey(broker: Broker, job: Job) -> Survey | None:
    """None for a job that brings no files, or that has its snapshot already. Stores nothing.

    Raises `InvalidInput` for files that cannot be taken, or are larger than the setting ``max_snapshot``.
    """
    places = list(_places(job))
    if not places or job.snapshot is not None:
        return None
    trees = tuple((to, collect(root, name)) for to, root, name in places)
    check_size([tree for _, tree in trees], broker.settings.max_snapshot)
    return Survey(trees, git_state(Path(job.workdir)) if job.workdir else None)


def with_snapshot(broker: Broker, job: Job, *, by: Actor, progress: Progress = no_progress) -> Job:
    """The job with a snapshot of its files as they are now; the same job where it brings none, or has one.

    May be repeated: what is in the run store already is not uploaded again. Raises `InvalidInput` as `survey` does, and
    for a folder that goes on changing; `Unreachable` for the run store.
    """
    if job.snapshot is not None:
        return job
    job = resolved(job, Path.cwd(), job.name)  # of a file they are in full already
    if survey(broker, job) is None:
        return job
    with broker.store.reading() as look:
        runs_root.agree(broker, look)
    pool = pool_of(by)
    url = f"{runs_root.root(broker).rstrip('/')}/{pool}"
    copies = []
    for to, root, name in _places(job):
        tree, found = store_tree(partial(collect, root, name), partial(ObjectFolder.open, url), progress)
        copies.append(TreeCopy(tree=tree, to=to, source=str(root), files=len(found.files), size=found.size))
    git = git_state(Path(job.workdir)) if job.workdir else None
    return job.model_copy(update={"snapshot": FileSnapshot(pool=pool, trees=tuple(copies), git=git)})


def pool_of(by: Actor) -> str:
    """The folder of a person's files beside the run folders. Each has an own one: nobody learns by a submission
    whether somebody else has a file."""
    return f"snapshots-{hashlib.sha256(by.identity.encode()).hexdigest()[:16]}"


def _places(job: Job) -> Iterator[tuple[str, Path, str | None]]:
    """Where a tree goes on the node, where it lies here, and the name of a single file in it."""
    if job.workdir is not None:
        yield "", Path(job.workdir), None
    for place, source in job.file_mounts.items():
        if not isinstance(source, str) or not is_local(source):
            continue
        path, to = Path(source), posixpath.normpath(place)
        if path.is_dir():
            yield ("" if to == "." else to), path, None
        elif place.endswith("/"):
            yield to, path, path.name
        else:
            parent = str(PurePosixPath(to).parent)
            yield ("" if parent == "." else parent), path, PurePosixPath(to).name
