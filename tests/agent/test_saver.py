"""Making checkpoints durable when the store, the disk or the program get in the way. One process, a store in memory."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import MemoryStore

from broker.agent.checkpoints import list_ids, verify
from broker.agent.environment import Scratch
from broker.agent.formats import Intervals, Spec, attempt_path
from broker.agent.journal import AttemptJournal
from broker.agent.rank import RankContext
from broker.agent.saver import Saver, upload_room
from broker.agent.scan import Scanner
from broker.agent.store import ROOM, ObjectFolder, StoreTrouble
from tests.agent.node import eventually

QUICK = Intervals(scan=0.01, mail=0.01, log=0.01, metrics=1.0, notice=0.01, patience=1.0)


def within(seconds: float) -> Callable[[], float]:
    at = time.monotonic() + seconds
    return lambda: at


class FullDisk(ObjectFolder):
    """A store on a disk that is full until somebody makes room."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.full = True
        self.tries = 0
        self.tried_at: list[float] = []

    def upload(self, path: str, pieces: Iterable[bytes], size: int = 0, room: int = ROOM) -> None:
        self.tries += 1
        self.tried_at.append(time.monotonic())
        if self.full:
            raise StoreTrouble(f"cannot upload {path}: No space left on device (os error 28)")
        super().upload(path, pieces, size, room)


class Rig:
    def __init__(self, folder: Path, store: ObjectFolder) -> None:
        scratch = Scratch(folder)
        self.folder, self.store, self.fenced = scratch.checkpoints, store, False
        self.folder.mkdir(parents=True, exist_ok=True)
        self.told_fenced: list[bool] = []
        spec = Spec("j", 1, "j-1", "true", intervals=QUICK)
        self.journal = AttemptJournal(store, attempt_path(1, "journal.json"), spec.clock)
        scanner = Scanner(self.folder, set)
        self.saver = Saver(
            RankContext(store, spec, 0, scratch, self.journal),
            scanner,
            lambda: self.fenced,
            lambda: self.told_fenced.append(True),
        )
        self.saver.start(None)

    def events(self) -> list[dict[str, Any]]:
        self.journal.flush()
        return list((self.store.read_json("attempts/1/journal.json") or {}).get("entries", []))

    def kinds(self) -> list[str]:
        return [entry["kind"] for entry in self.events()]


@pytest.fixture
def disk() -> FullDisk:
    return FullDisk()


@pytest.fixture
def rig(tmp_path: Path, disk: FullDisk) -> Iterator[Rig]:
    made = Rig(tmp_path, disk)
    yield made
    made.saver.abandon()


def test_a_full_disk_is_an_event_and_retried(rig: Rig, disk: FullDisk) -> None:
    disk.full = False
    (rig.folder / "step_1").write_text("one")
    eventually(lambda: rig.kinds() == ["checkpoint_saved"], "the first is saved")
    disk.full = True
    (rig.folder / "step_2").write_text("two")
    eventually(lambda: disk.tries >= 4, "it tries again")
    assert rig.kinds() == ["checkpoint_saved", "checkpoint_trouble"], "said once, however often it was tried"
    assert "No space left on device" in rig.events()[-1]["because"]
    first = list_ids(disk)[0]
    assert verify(disk, first).step == 1, "the last verified one stays"
    disk.full = False
    eventually(lambda: rig.kinds()[-1] == "checkpoint_saved", "there is room again")
    assert rig.events()[-1]["step"] == 2


def test_it_backs_off(rig: Rig, disk: FullDisk) -> None:
    (rig.folder / "step_1").write_text("one")
    eventually(lambda: disk.tries >= 6, "it tries again")
    assert disk.tried_at[5] - disk.tried_at[0] > 0.2, "not in a busy loop"


def test_trouble_says_that_the_agent_retries_only_while_it_does(rig: Rig, disk: FullDisk) -> None:
    disk.full = False
    (rig.folder / "step_1").mkdir()
    (rig.folder / "step_1" / "link").symlink_to("/etc/hostname")
    eventually(lambda: rig.kinds() == ["checkpoint_trouble"], "it is told")
    rig.saver.finish(killed=False, hurry=False, deadline=within(60))
    because = "step_1/link: a link that points outside the folder, to /etc/hostname"
    assert [entry["because"] for entry in rig.events()] == [f"{because}; the agent retries", because]


def test_at_the_end_it_tries_until_the_deadline(rig: Rig, disk: FullDisk) -> None:
    (rig.folder / "step_1").write_text("one")
    rig.saver.finish(killed=False, hurry=False, deadline=lambda: 0.0 if disk.tries > 1 else time.monotonic() + 60)
    assert rig.saver.unsaved == ["step_1"]
    assert disk.tries > 1
    assert rig.saver.last is None


def test_the_end_may_come_nearer_while_it_tries(rig: Rig, disk: FullDisk) -> None:
    (rig.folder / "step_1").write_text("one")
    eventually(lambda: disk.tries >= 1, "it tries")
    began, hour = time.monotonic(), 3600.0
    limits = iter([hour, hour])  # to wait until the end that it was told first would take longer than a test may
    rig.saver.finish(killed=False, hurry=False, deadline=lambda: began + next(limits, 0.0))
    assert rig.saver.unsaved == ["step_1"]


def test_in_a_hurry_the_newest_is_enough(rig: Rig, disk: FullDisk) -> None:
    for step in (1, 2, 3):
        (rig.folder / f"step_{step}").write_text("x")
    eventually(lambda: disk.tries >= 1, "it tries")
    disk.full = False
    rig.saver.finish(killed=False, hurry=True, deadline=within(240))
    assert rig.saver.last is not None
    assert rig.saver.last.step == 3
    assert rig.saver.unsaved == []


def test_fenced_it_writes_no_manifest(rig: Rig, disk: FullDisk) -> None:
    rig.fenced, disk.full = True, False
    (rig.folder / "step_1").write_text("one")
    eventually(lambda: rig.told_fenced, "it notices")
    assert not [path for path in disk.sizes("checkpoints") if path.endswith("manifest.json")]
    assert rig.kinds() == []


def test_files_that_were_uploaded_are_not_uploaded_again(tmp_path: Path) -> None:
    class SecondFails(FullDisk):
        def upload(self, path: str, pieces: Iterable[bytes], size: int = 0, room: int = ROOM) -> None:
            self.tries += 1
            self.full = path.endswith("b") and self.tries < 4
            self.paths = [*getattr(self, "paths", []), path.rpartition("/")[2]]
            super().upload(path, pieces, size, room)

    store = SecondFails()
    (tmp_path / "out").mkdir()
    rig = Rig(tmp_path / "out", store)
    (rig.folder / ".d").mkdir()
    for name in "ab":
        (rig.folder / ".d" / name).write_text(name)
    (rig.folder / ".d").rename(rig.folder / "step_1")
    eventually(lambda: "checkpoint_saved" in rig.kinds(), "it is saved")
    rig.saver.abandon()
    assert store.paths.count("a") == 1
    assert store.paths.count("b") > 1


def test_what_changes_while_it_is_read_is_not_taken(tmp_path: Path) -> None:
    """The program writes on, in place, while the file is uploaded."""

    class Meddling(ObjectFolder):
        meddled = False

        def upload(self, path: str, pieces: Iterable[bytes], size: int = 0, room: int = ROOM) -> None:
            def watched() -> Iterator[bytes]:
                for piece in pieces:
                    yield piece
                    if not self.meddled:
                        self.meddled = True
                        (tmp_path / "checkpoints" / "step_1").write_text("something longer")

            super().upload(path, watched(), size, room)

    store = Meddling(MemoryStore())
    rig = Rig(tmp_path, store)
    (rig.folder / "step_1").write_text("something")
    eventually(lambda: rig.kinds() == ["checkpoint_saved"], "it is saved at last")
    rig.saver.abandon()
    only = verify(store, list_ids(store)[0])
    assert only.size == len("something longer")


def test_what_goes_away_meanwhile_is_forgotten(tmp_path: Path) -> None:
    class SlowStore(ObjectFolder):
        def upload(self, path: str, pieces: Iterable[bytes], size: int = 0, room: int = ROOM) -> None:
            (tmp_path / "checkpoints" / "step_1").unlink(missing_ok=True)
            super().upload(path, pieces, size, room)

    store = SlowStore(MemoryStore())
    rig = Rig(tmp_path, store)
    (rig.folder / "step_1").write_text("pruned by the program")
    eventually(lambda: not (rig.folder / "step_1").exists(), "it begins to upload")
    rig.saver.finish(killed=False, hurry=False, deadline=within(240))
    assert rig.kinds() == []
    assert store.sizes("checkpoints") == {}


def test_the_same_entry_saved_anew_is_a_newer_checkpoint(rig: Rig, disk: FullDisk) -> None:
    disk.full = False
    for content in ("one", "two"):
        (rig.folder / "step_1").write_text(content)
        count = 1 if content == "one" else 2
        eventually(lambda: rig.kinds().count("checkpoint_saved") == count, "it is saved")  # noqa: B023  # called at once
    ids = [entry["checkpoint"] for entry in rig.events()]
    assert len(set(ids)) == 2
    assert ids == sorted(ids), "in the order of saving"


@given(st.integers(0, 1 << 50))
def test_of_a_large_checkpoint_no_more_than_a_few_thousandths_are_in_memory(size: int) -> None:
    assert upload_room(size) <= min(ROOM, size / 256)
    assert upload_room(16 << 30) == ROOM, "which goes up as fast as it can"
