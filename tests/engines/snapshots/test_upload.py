"""From a folder to a tree in the store, and back into a folder."""

import os
import stat
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from broker.agent.download import GaveUp
from broker.agent.entries import stays_inside
from broker.agent.source_tree import TreeEntry, TreeUnusable, tree_bytes, tree_id, tree_path, unpack
from broker.agent.store import ObjectFolder
from broker.core.errors import InvalidInput
from broker.engines.snapshots.collect import CollectedTree, collect
from broker.engines.snapshots.upload import store_tree


class Watched(ObjectFolder):
    """A store on disk that notes what is written."""

    def __init__(self, folder: Path, on_write: Callable[[], None] = lambda: None) -> None:
        super().__init__(ObjectFolder.open(folder.as_uri())._inner)
        self.written: list[str] = []
        self.on_write = on_write

    def write(self, path: str, data: bytes) -> None:
        self.on_write()
        super().write(path, data)
        self.written.append(path)

    def upload(self, path: str, pieces: Iterable[bytes], size: int = 0, room: int = 0) -> None:
        super().upload(path, pieces, size, room)
        self.written.append(path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "src" / "empty").mkdir(parents=True)
    (root / "train.py").write_text("print('hello')\n")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o750)
    (root / "src" / "same.py").write_text("print('hello')\n")
    (root / "src" / "link").symlink_to("../train.py")
    (root / "large.bin").write_bytes(os.urandom(9 << 20))
    (root / "read-only").write_text("r")
    (root / "read-only").chmod(0o444)
    return root


@pytest.fixture
def pool(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "pool")


def taken(root: Path, pool: ObjectFolder) -> str:
    return store_tree(partial(collect, root), lambda: pool)[0]


def listing(root: Path) -> dict[str, tuple[int, bytes | str | None]]:
    found: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(root.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (mode, content)
    return found


def test_a_folder_comes_back_as_it_was(project: Path, pool: Watched, tmp_path: Path) -> None:
    tree = taken(project, pool)
    before = listing(project)
    assert unpack(pool, tree, tmp_path / "out") == collect(project).size
    assert listing(tmp_path / "out") == before


def test_the_same_content_is_uploaded_once_and_an_unchanged_folder_not_at_all(project: Path, pool: Watched) -> None:
    tree = taken(project, pool)
    assert len(pool.written) == 4 + 1
    assert pool.written[-1] == tree_path(tree)
    pool.written.clear()
    assert taken(project, pool) == tree
    assert pool.written == []
    (project / "train.py").write_text("print('changed')\n")
    changed = taken(project, pool)
    assert changed != tree
    assert len(pool.written) == 1 + 1


def test_where_the_folder_lies_does_not_matter(project: Path, pool: Watched, tmp_path: Path) -> None:
    tree = taken(project, pool)
    project.rename(tmp_path / "renamed")
    assert taken(tmp_path / "renamed", pool) == tree


def test_one_file(project: Path, pool: Watched, tmp_path: Path) -> None:
    tree, _ = store_tree(partial(collect, project / "train.py", "other.py"), lambda: pool)
    unpack(pool, tree, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["other.py"]


def test_a_file_that_changes_once_is_taken_as_it_is_afterwards(project: Path, tmp_path: Path) -> None:
    def change() -> None:
        store.on_write = lambda: None
        (project / "large.bin").write_bytes(b"z" * (9 << 20))

    store = Watched(tmp_path / "pool", change)
    unpack(store, taken(project, store), tmp_path / "out")
    assert (tmp_path / "out" / "large.bin").read_bytes() == b"z" * (9 << 20)


def test_a_folder_that_goes_on_changing_is_refused_by_the_name_of_the_file(project: Path, pool: Watched) -> None:
    def look() -> CollectedTree:
        found = collect(project)
        with (project / "train.py").open("a") as file:
            file.write("#")
        return found

    with pytest.raises(InvalidInput, match=r"train\.py changed while it was read") as refused:
        store_tree(look, lambda: pool)
    assert ".gpubrokerignore" in refused.value.hint
    assert not [path for path in pool.written if path.startswith("trees/")]


def test_a_file_that_vanishes_meanwhile_is_left_out(project: Path, pool: Watched, tmp_path: Path) -> None:
    def look() -> CollectedTree:
        found = collect(project)
        (project / "run.sh").unlink(missing_ok=True)
        return found

    unpack(pool, store_tree(look, lambda: pool)[0], tmp_path / "out")
    assert not (tmp_path / "out" / "run.sh").exists()


def test_progress_ends_at_the_whole(project: Path, pool: Watched) -> None:
    told: list[tuple[int, int]] = []
    store_tree(partial(collect, project), lambda: pool, lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] > 0


def test_a_damaged_content_is_not_unpacked(project: Path, pool: Watched, tmp_path: Path) -> None:
    tree = taken(project, pool)
    damaged = next(path for path in pool.written if path.startswith("files/"))
    pool.write(damaged, b"something else")
    with pytest.raises(TreeUnusable, match="bytes instead of"):
        unpack(pool, tree, tmp_path / "out")
    pool.delete(damaged)
    with pytest.raises(TreeUnusable, match="no longer in the run store"):
        unpack(pool, tree, tmp_path / "out")
    with pytest.raises(TreeUnusable, match="no longer"):
        unpack(pool, "0" * 64, tmp_path / "out")


def test_unpacking_ends_when_it_is_told_to(project: Path, pool: Watched, tmp_path: Path) -> None:
    tree = taken(project, pool)
    with pytest.raises(GaveUp):
        unpack(pool, tree, tmp_path / "out", lambda: True)


@pytest.mark.parametrize(
    "entry",
    [
        TreeEntry("../x", sha256="0" * 64),
        TreeEntry("/x", sha256="0" * 64),
        TreeEntry("a/../../x", "folder"),
        TreeEntry("link", "link", target="/etc"),
        TreeEntry("a/link", "link", target="../../x"),
        TreeEntry("x", "device"),
    ],
)
def test_a_list_that_leads_out_of_the_folder_is_not_unpacked(entry: TreeEntry, pool: Watched, tmp_path: Path) -> None:
    data = tree_bytes([entry])
    pool.write(tree_path(tree_id(data)), data)
    with pytest.raises(TreeUnusable):
        unpack(pool, tree_id(data), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_stays_inside() -> None:
    assert all(stays_inside(path) for path in ("a", "a/b", "a/../b", "."))
    assert not any(stays_inside(path) for path in ("", "/a", "..", "../a", "a/../../b"))
    assert stays_inside("../a", "sub/link")
    assert not stays_inside("../a", "link")
