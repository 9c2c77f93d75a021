"""Deleting from a pool: what other trees need stays, in any order of events, and after a deletion that ended early."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from broker.agent.source_tree import content_path, tree_path, unpack
from broker.agent.store import ObjectFolder, StoreTrouble
from broker.core.errors import Malformed, Unreachable
from broker.engines.snapshots.collect import collect
from broker.engines.snapshots.retention import (
    GRACE,
    FilesInUse,
    UnneededFiles,
    delete_unneeded,
    keep_young,
    old_trees,
    unneeded_files,
)
from broker.engines.snapshots.upload import store_tree


@contextmanager
def nobody() -> Iterator[bool]:
    yield True


@pytest.fixture
def pool(tmp_path: Path) -> ObjectFolder:
    return ObjectFolder.open((tmp_path / "pool").as_uri())


@pytest.fixture
def later() -> datetime:
    """When all that was written today is old."""
    return datetime.now(UTC) + 2 * GRACE


def stored(pool: ObjectFolder, folder: Path, **files: str) -> str:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return store_tree(partial(collect, folder), lambda: pool)[0]


def deleted(pool: ObjectFolder, doomed: set[str], now: datetime, since: Callable[[], set[str]] = set) -> UnneededFiles:
    return delete_unneeded(pool, unneeded_files(pool, doomed, now), now, since, nobody)


def test_contents_that_another_tree_names_stay(pool: ObjectFolder, tmp_path: Path, later: datetime) -> None:
    first = stored(pool, tmp_path / "a", both="both", own="12345")
    second = stored(pool, tmp_path / "b", both="both", other="other")
    assert old_trees(pool, later) == {first, second}
    found = unneeded_files(pool, {first}, later)
    assert (set(found.trees), list(found.contents.values())) == ({first}, [5])
    assert found.size == 5 + len(pool.read(tree_path(first)) or b"")
    gone = deleted(pool, {first}, later)
    assert (gone.size, gone.trees) == (found.size, found.trees)
    assert unpack(pool, second, tmp_path / "node") == 9
    assert not pool.exists(tree_path(first))
    assert len(pool.sizes("files")) == 2


def test_what_is_a_day_old_at_most_stays(pool: ObjectFolder, tmp_path: Path, later: datetime) -> None:
    tree = stored(pool, tmp_path / "a", x="x")
    pool.write(content_path("0" * 64), b"its list is not there yet")
    soon = later - GRACE - timedelta(minutes=1)
    assert old_trees(pool, soon - timedelta(minutes=1)) == frozenset()
    assert unneeded_files(pool, {tree}, soon - GRACE).size == 0
    assert list(unneeded_files(pool, set(), later).contents) == [content_path("0" * 64)]

    path = tmp_path / "pool" / tree_path(tree)
    os.utime(path, (0, 0))
    keep_young(pool, [tree], datetime.now(UTC))
    assert tree not in old_trees(pool, datetime.now(UTC))


def test_a_tree_that_came_to_be_needed_stays_whole(pool: ObjectFolder, tmp_path: Path, later: datetime) -> None:
    first, second = stored(pool, tmp_path / "a", x="x", y="y"), stored(pool, tmp_path / "b", z="z")
    found = unneeded_files(pool, {first, second}, later)
    new = stored(pool, tmp_path / "c", z="z", y="y", w="w")  # finds contents there that are about to be deleted
    gone = delete_unneeded(pool, found, later, lambda: {first}, nobody)
    assert set(gone.trees) == {second}
    assert gone.contents == {}
    assert unpack(pool, first, tmp_path / "one") + unpack(pool, new, tmp_path / "two") == 5


def test_nothing_goes_while_files_are_submitted(pool: ObjectFolder, tmp_path: Path, later: datetime) -> None:
    tree = stored(pool, tmp_path / "a", x="x")

    @contextmanager
    def somebody() -> Iterator[bool]:
        yield False

    with pytest.raises(FilesInUse):
        delete_unneeded(pool, unneeded_files(pool, {tree}, later), later, set, somebody)
    assert unpack(pool, tree, tmp_path / "node") == 1


def test_a_list_that_cannot_be_read_keeps_all(pool: ObjectFolder, tmp_path: Path, later: datetime) -> None:
    tree = stored(pool, tmp_path / "a", x="x")
    pool.write(tree_path("0" * 64), b"torn")
    with pytest.raises(Malformed):
        unneeded_files(pool, {tree}, later)


class FailingPool(ObjectFolder):
    """A store that fails after so many deletions."""

    def __init__(self, folder: Path, after: int) -> None:
        super().__init__(ObjectFolder.open(folder.as_uri())._inner)
        self.left = after

    def delete(self, path: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise StoreTrouble("no answer")
        super().delete(path)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_each_list_that_is_there_is_whole(tmp_path: Path, seed: int) -> None:
    """Uploads, deletions that end early, and jobs that come meanwhile, in random order; a mirror keeps the contents."""
    rng, now = random.Random(seed), datetime.now(UTC) + 2 * GRACE
    place = tmp_path / "pool"
    pool, needed = ObjectFolder.open(place.as_uri()), set[str]()

    def submit() -> None:
        files = {f"f{number}": str(number) for number in rng.sample(range(12), 4)}
        needed.add(stored(pool, tmp_path / f"{rng.random()}", **files))

    @contextmanager
    def between() -> Iterator[bool]:
        if rng.random() < 0.5:
            submit()
        yield True

    for _ in range(12):
        submit()
        needed -= {tree for tree in sorted(needed) if rng.random() < 0.5}
        found = unneeded_files(pool, old_trees(pool, now) - needed, now)
        with suppress(Unreachable):
            delete_unneeded(FailingPool(place, rng.randrange(6)), found, now, partial(set, needed), between)
        there = {path.removeprefix("trees/").removesuffix(".json") for path in pool.sizes("trees")}
        assert needed <= there
        for number, tree in enumerate(there):
            unpack(pool, tree, tmp_path / f"{rng.random()}{number}")
    deleted(pool, {*old_trees(pool, now)}, now)
    assert pool.sizes("") == {}, "the next one finds what others left"
