"""The submitter's files as they were at submission: what a job keeps of its working folder and local file mounts."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class GitState(BaseModel):
    """The Git working tree that the working folder lay in. ``commit``: full name; None before the first commit.
    ``dirty``: whether tracked files differed from it, or untracked ones lay there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    commit: str | None
    branch: str | None = None
    dirty: bool = False

    def __str__(self) -> str:
        name = self.commit[:10] if self.commit else "no commit yet"
        return f"{name}{f' on {self.branch}' if self.branch else ''}{', with changes' if self.dirty else ''}"


class TreeCopy(BaseModel):
    """One folder or file. ``tree``: its list of entries in the pool, by SHA-256. ``to``: its folder on the node,
    relative to the working folder, absolute or below ``~``; empty for the working folder itself. ``source``: where it
    lay on the submitter's machine, for people only. ``size`` in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tree: str
    to: str = ""
    source: str
    files: int
    size: int


class FileSnapshot(BaseModel):
    """All of them. ``pool``: the folder beside the run folders that holds them, the submitter's own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pool: str
    trees: tuple[TreeCopy, ...]
    git: GitState | None = None

    @property
    def files(self) -> int:
        return sum(tree.files for tree in self.trees)

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(tree.size for tree in self.trees)


def is_local(source: object) -> bool:
    """Whether the source of a file mount lies on the submitter's machine; the others are addresses and buckets."""
    return isinstance(source, str) and "://" not in source


def in_workdir(place: str) -> bool:
    """Whether the place of a file mount is relative, thus in the job's working folder."""
    return not place.startswith(("/", "~"))
