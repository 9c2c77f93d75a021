"""Snapshots: a job's working folder and local file mounts as they were at submission."""

from broker.core.records import Record


class GitState(Record):
    """The Git working tree that contained the working folder. ``commit``: full name; None before the first commit.
    ``dirty``: tracked files differed from it, or there were untracked ones."""

    commit: str | None
    branch: str | None = None
    dirty: bool = False

    def __str__(self) -> str:
        name = self.commit[:10] if self.commit else "no commit yet"
        return f"{name}{f' on {self.branch}' if self.branch else ''}{', with changes' if self.dirty else ''}"


class TreeCopy(Record):
    """One folder or file. ``tree``: the SHA-256 of its list of entries in the pool. ``to``: its folder on the node:
    relative to the working folder, absolute or below ``~``; empty for the working folder itself. ``source``: its path
    on the submitter's machine, for display. ``size`` in bytes."""

    tree: str
    to: str = ""
    source: str
    files: int
    size: int


class FileSnapshot(Record):
    """All copies of a job. ``pool``: the submitter's folder next to the run folders that holds them."""

    pool: str
    trees: tuple[TreeCopy, ...]
    git: GitState | None = None

    @property
    def files(self) -> int:
        return sum(tree.files for tree in self.trees)

    @property
    def size(self) -> int:
        """The total size in bytes."""
        return sum(tree.size for tree in self.trees)


def is_local(source: object) -> bool:
    """Whether the source of a file mount is on the submitter's machine; other sources are addresses and buckets."""
    return isinstance(source, str) and "://" not in source


def in_workdir(place: str) -> bool:
    """Whether the target of a file mount is relative and therefore in the job's working folder."""
    return not place.startswith(("/", "~"))
