"""Snapshots of a job's files at submission: its working folder and local file mounts, copied into the run store.

This happens with the submitter's permissions, before any money is held. Afterwards nothing is read from the submitter's
disk.
"""

import hashlib
import os
import posixpath
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from broker.agent.source_tree import tree_path
from broker.app import runs_root
from broker.app.store_identity import store_id
from broker.app.wiring import Broker
from broker.core.actors import Actor
from broker.core.errors import InvalidInput
from broker.core.job.jobs import Job
from broker.core.job.snapshots import FileSnapshot, GitState, TreeCopy, in_workdir, is_local
from broker.engines.snapshots.collect import CollectedTree, check_size, collect
from broker.engines.snapshots.retention import keep_young
from broker.engines.snapshots.upload import ContentPool, Progress, no_progress, store_errors, store_tree


def resolve_paths(job: Job, folder: Path, where: str) -> Job:
    """The job with absolute paths. Relative paths start at ``folder``; ``~`` is the home of this process's user. Raises
    `InvalidInput`, with ``where``, for paths that do not exist and targets outside of the working folder."""
    changes: dict[str, object] = {}
    if job.workdir is not None:
        path = (folder / Path(job.workdir).expanduser()).resolve()
        if not path.is_dir():
            hint = f"correct `workdir:`, leave it out, or make the folder: mkdir -p {shlex.quote(str(path))}"
            raise InvalidInput(f"the workdir {job.workdir} is not a folder: {path}", where=where, hint=hint)
        changes["workdir"] = str(path)
    mounts = {target: _mount(target, source, folder, where) for target, source in job.file_mounts.items()}
    if mounts != job.file_mounts:
        changes["file_mounts"] = mounts
    return job.model_copy(update=changes) if changes else job


def _mount(target: str, source: object, folder: Path, where: str) -> object:
    _refuse_local_bucket(target, source, where)
    if in_workdir(target) and posixpath.normpath(target).startswith(".."):
        raise InvalidInput(
            f"file_mounts: {target} lies outside of the working folder",
            where=where,
            hint="write a place within it, an absolute one, or one that begins with ~/",
        )
    if not isinstance(source, str) or not is_local(source):
        return source
    path = Path(source).expanduser()
    path = path if path.is_absolute() else folder / path
    if not path.exists():
        hint = f"correct the path; it starts at {folder.resolve()}"
        raise InvalidInput(f"file_mounts: {target}: there is no file or folder {path}", where=where, hint=hint)
    return str(path.absolute())


def refuse_local_buckets(job: Job, where: str) -> None:
    """Raises `InvalidInput` for a bucket that an engine would fill from the disk of the machine that it runs on."""
    for target, source in job.file_mounts.items():
        _refuse_local_bucket(target, source, where)


def _refuse_local_bucket(target: str, source: object, where: str) -> None:
    sources = source.get("source") if isinstance(source, dict) else None
    if any(is_local(address) for address in (sources if isinstance(sources, list) else [sources])):
        raise InvalidInput(
            f"file_mounts: {target}: gpubroker does not upload local files into a bucket",
            where=where,
            hint=f"write `{target}: PATH` to copy the files to the node, or upload them and name the bucket's address",
        )


@dataclass(frozen=True, slots=True)
class Survey:
    """The present content of a snapshot. ``trees``: each with its target on the node."""

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
        """What is not copied although no ignore file lists it: as in `CollectedTree`."""
        return tuple(str(tree.root / path) for _, tree in self.trees for path in tree.left_out)


def survey(broker: Broker, job: Job) -> Survey | None:
    """As `survey_files`, with the setting ``max_snapshot``."""
    return survey_files(job, broker.settings.max_snapshot)


def survey_files(job: Job, max_bytes: int) -> Survey | None:
    """The content of a snapshot; None for a job without local files, or with a snapshot. Stores nothing. Raises
    `InvalidInput` for files that cannot be read, or that exceed ``max_bytes`` bytes."""
    sources = list(_tree_sources(job))
    if not sources or job.snapshot is not None:
        return None
    trees = tuple((to, collect(root, name)) for to, root, name in sources)
    check_size([tree for _, tree in trees], max_bytes)
    return Survey(trees, git_state(Path(job.workdir)) if job.workdir else None)


def take_snapshot(broker: Broker, job: Job, *, by: Actor, progress: Progress = no_progress) -> Job:
    """The job with a snapshot of its files as they are now; unchanged if it has no local files, or has a snapshot.

    Idempotent: files that are in the run store already are not uploaded again. Raises `InvalidInput` as `survey`, and
    for a folder that keeps changing; `Unreachable` for the run store.
    """
    if job.snapshot is not None:
        return job
    job = resolve_paths(job, Path.cwd(), job.name)  # no change for a job from a file
    if survey(broker, job) is None:
        return job
    with broker.store.reading() as reader:
        runs_root.check_or_claim(broker, reader)
    pool = pool_name(broker, by)
    open_pool = partial(runs_root.open_folder, broker, pool)
    with broker.store.using_snapshots():
        stored_job = store_snapshot(job, pool, open_pool, progress)
        assert stored_job.snapshot is not None
        with store_errors():
            keep_young(open_pool(), [copy.tree for copy in stored_job.snapshot.trees], broker.clock.now())
    return stored_job


def store_snapshot(
    job: Job, name: str, pool: Callable[[], ContentPool], progress: Progress = no_progress
) -> Job:  # fmt: skip
    """The job, whose paths are absolute, with a snapshot in that pool. Raises as `take_snapshot`."""
    copies = []
    for to, root, single in _tree_sources(job):
        tree, contents = store_tree(partial(collect, root, single), pool, progress)
        copies.append(TreeCopy(tree=tree, to=to, source=str(root), files=len(contents.files), size=contents.size))
    git = git_state(Path(job.workdir)) if job.workdir else None
    return job.model_copy(update={"snapshot": FileSnapshot(pool=name, trees=tuple(copies), git=git)})


def has_local_files(job: Job) -> bool:
    """Whether the job names files of its submitter's machine."""
    return next(_tree_sources(job), None) is not None


def pool_name(broker: Broker, by: Actor) -> str:
    """The folder of a person's files next to the run folders. Each person has their own, so that a submission does not
    reveal whether another person has the same file; and each store, as only it knows which jobs need them."""
    owner = f"{store_id(broker.store)} {by.identity}"
    return f"snapshots-{hashlib.sha256(owner.encode()).hexdigest()[:16]}"


def check_snapshot_exists(broker: Broker, job: Job) -> None:
    """Raises `InvalidInput` for a job whose snapshot was deleted meanwhile, `Unreachable`. Call this and record the job
    within one block of `Store.using_snapshots`."""
    if job.snapshot is None:
        return
    with store_errors():
        pool = runs_root.open_folder(broker, job.snapshot.pool)
        missing = [copy.source for copy in job.snapshot.trees if not pool.exists(tree_path(copy.tree))]
    if missing:
        raise InvalidInput(
            f"the files of the earlier submission are no longer kept: {', '.join(missing)}",
            where=job.name,
            hint="submit the job file again, which takes the files as they are now",
        )


def _tree_sources(job: Job) -> Iterator[tuple[str, Path, str | None]]:
    """For each tree: its target on the node, its path here, and the name of the file if it is a single one."""
    if job.workdir is not None:
        yield "", Path(job.workdir), None
    for target, source in job.file_mounts.items():
        if not isinstance(source, str) or not is_local(source):
            continue
        path, to = Path(source), posixpath.normpath(target)
        if path.is_dir():
            yield ("" if to == "." else to), path, None
        elif target.endswith("/"):
            yield to, path, path.name
        else:
            parent = str(PurePosixPath(to).parent)
            yield ("" if parent == "." else parent), path, PurePosixPath(to).name


_GIT_TIMEOUT = 10.0  # seconds; a repository that takes longer, for example on a slow disk, is skipped


def git_state(folder: Path) -> GitState | None:
    """None if the folder is in no repository, or if `git` is missing, slow or fails. Writes nothing."""
    if _git(folder, "rev-parse", "--is-inside-work-tree") != "true":
        return None
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD") or None
    branch = _git(folder, "symbolic-ref", "--short", "--quiet", "HEAD") or None
    changes = _git(folder, "status", "--porcelain", "--", ".")
    return GitState(commit=commit, branch=branch, dirty=bool(changes))


def _git(folder: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # A repository's settings may name any program as its file system monitor; do not run it.
    options = ["--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(folder)]
    try:
        process = run_git(*options, *arguments, environment=environment, timeout=_GIT_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.strip() if process.returncode == 0 else ""


def run_git(*arguments: str, environment: Mapping[str, str], timeout: float) -> subprocess.CompletedProcess[str]:
    """Run `git` without questions. ``arguments`` must hold no text of others that git would read as an option. Raises
    OSError and ``subprocess.TimeoutExpired``."""
    return subprocess.run(  # noqa: S603  # no shell
        ["git", *arguments],  # noqa: S607  # the person's own git
        env={**environment, "GIT_TERMINAL_PROMPT": "0"},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )
