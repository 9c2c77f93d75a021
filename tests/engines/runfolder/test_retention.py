"""What ended jobs leave in the store, and letting it go."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.agent.checkpoints import FOLDER, Manifest, SavedFile, checkpoint_id, manifest_path, verify
from broker.agent.store import ObjectFolder
from broker.core.errors import Unreachable
from broker.engines.runfolder.retention import (
    StoredCheckpoint,
    drop_checkpoints,
    stored_checkpoints,
    superfluous_checkpoints,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A job's folder with three checkpoints, the newest of them half."""
    url = (tmp_path / "j").as_uri()
    store = ObjectFolder.open(url)
    for step in (1, 2, 3):
        name = checkpoint_id(1, step, f"step_{step}")
        content = b"x" * step * 1000
        store.write(f"{FOLDER}/{name}/rank-0/step_{step}", content)
        where = f"{name}/rank-0/step_{step}"
        file = SavedFile(f"step_{step}", where, len(content), hashlib.sha256(content).hexdigest())
        if step < 3:
            store.write(manifest_path(name), Manifest(name, f"step_{step}", 1, step, NOW, 1, (file,)).to_bytes())
    store.write("attempts/1/exit.json", b"{}")
    return url


def second(folder: str) -> str:
    """The path of the second checkpoint, the newest with a manifest."""
    return f"{FOLDER}/{stored_checkpoints(folder)[1].id}"


def test_all_is_found_with_its_size(folder: str) -> None:
    found = stored_checkpoints(folder)
    assert [(one.finished, one.whole) for one in found] == [(True, True), (True, True), (False, False)]
    assert [one.size // 1000 for one in found] == [1, 2, 3]


def test_all_but_the_newest_whole_one_is_superfluous(folder: str) -> None:
    one, two, three = stored_checkpoints(folder)
    assert superfluous_checkpoints([one, two, three]) == (one, three)
    assert superfluous_checkpoints([three]) == (three,)
    assert superfluous_checkpoints([]) == ()


@pytest.mark.parametrize("damage", ["lost", "cut", "no manifest"])
def test_a_newer_one_that_is_torn_does_not_cost_the_one_that_is_whole(folder: str, damage: str) -> None:
    store, place = ObjectFolder.open(folder), second(folder)
    if damage == "lost":
        store.delete(f"{place}/rank-0/step_2")
    elif damage == "cut":
        store.write(f"{place}/rank-0/step_2", b"x" * 1999)
    else:
        store.write(f"{place}/manifest.json", b'{"id": ')
    one, two, three = found = stored_checkpoints(folder)
    assert (one.whole, two.whole) == (True, False)
    assert superfluous_checkpoints(found) == (two, three)
    drop_checkpoints(folder, superfluous_checkpoints(found))
    newest = verify(store, one.id)
    assert newest.step == 1, "it can be restored"


def test_where_none_is_whole_the_newest_that_was_finished_stays_for_people(folder: str) -> None:
    store = ObjectFolder.open(folder)
    for one in stored_checkpoints(folder):
        store.delete(f"{FOLDER}/{one.id}/rank-0/step_1")
        store.delete(f"{FOLDER}/{one.id}/rank-0/step_2")
    one, two, three = stored_checkpoints(folder)
    assert not any(each.whole for each in (one, two, three))
    assert superfluous_checkpoints((one, two, three)) == (one, three)


def test_what_is_dropped_is_gone_and_nothing_else(folder: str, tmp_path: Path) -> None:
    drop_checkpoints(folder, superfluous_checkpoints(stored_checkpoints(folder)))
    (left,) = stored_checkpoints(folder)
    assert left.whole
    assert [path.name for path in (tmp_path / "j" / FOLDER).iterdir()] == [left.id]
    assert (tmp_path / "j" / "attempts" / "1" / "exit.json").exists()
    drop_checkpoints(folder, [left, left])
    assert stored_checkpoints(folder) == ()


def test_looking_makes_nothing(tmp_path: Path) -> None:
    assert stored_checkpoints((tmp_path / "nobody").as_uri()) == ()
    assert not (tmp_path / "nobody").exists()


def test_a_manifest_goes_first(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[str] = []
    delete = ObjectFolder.delete

    def watched(self: ObjectFolder, path: str) -> None:
        gone.append(path.rpartition("/")[2])
        delete(self, path)

    monkeypatch.setattr(ObjectFolder, "delete", watched)
    drop_checkpoints(folder, [stored_checkpoints(folder)[0]])
    assert gone == ["manifest.json", "step_1"]


def test_a_store_in_trouble_says_so(tmp_path: Path) -> None:
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / FOLDER).write_text("in the way")
    with pytest.raises(Unreachable):
        drop_checkpoints((tmp_path / "j").as_uri(), [StoredCheckpoint("0001-000000000001-000000-x", 1, True, True)])
