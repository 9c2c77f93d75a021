"""What ended jobs leave in the store, and letting it go."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.core.errors import Unreachable
from broker.launch import retention
from broker.launch.agent.checkpoints import FOLDER, Manifest, checkpoint_id, manifest_path
from broker.launch.agent.store import Store
from broker.launch.retention import Kept, drop, kept, superfluous

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A job's folder with three checkpoints, the newest of them half."""
    url = (tmp_path / "j").as_uri()
    store = Store.open(url)
    for step in (1, 2, 3):
        name = checkpoint_id(1, step, f"step_{step}")
        store.write(f"{FOLDER}/{name}/rank-0/step_{step}", b"x" * step * 1000)
        if step < 3:
            store.write(manifest_path(name), Manifest(name, f"step_{step}", 1, step, NOW, 1, ()).to_bytes())
    store.write("attempts/1/exit.json", b"{}")
    return url


def test_all_is_found_with_its_size(folder: str) -> None:
    found = kept(folder)
    assert [one.whole for one in found] == [True, True, False]
    assert [one.size // 1000 for one in found] == [1, 2, 3]


def test_all_but_the_newest_whole_one_is_superfluous(folder: str) -> None:
    one, two, three = kept(folder)
    assert superfluous([one, two, three]) == (one, three)
    assert superfluous([three]) == (three,)
    assert superfluous([]) == ()


def test_what_is_dropped_is_gone_and_nothing_else(folder: str, tmp_path: Path) -> None:
    drop(folder, superfluous(kept(folder)))
    (left,) = kept(folder)
    assert left.whole
    assert [path.name for path in (tmp_path / "j" / FOLDER).iterdir()] == [left.id]
    assert (tmp_path / "j" / "attempts" / "1" / "exit.json").exists()
    drop(folder, [left, left])
    assert kept(folder) == ()


def test_looking_makes_nothing(tmp_path: Path) -> None:
    assert kept((tmp_path / "nobody").as_uri()) == ()
    assert not (tmp_path / "nobody").exists()


def test_a_manifest_goes_first(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[str] = []
    delete = Store.delete

    def watched(self: Store, path: str) -> None:
        gone.append(path.rpartition("/")[2])
        delete(self, path)

    monkeypatch.setattr(retention.Store, "delete", watched)
    drop(folder, [kept(folder)[0]])
    assert gone == ["manifest.json", "step_1"]


def test_a_store_in_trouble_says_so(tmp_path: Path) -> None:
    (tmp_path / "j").mkdir()
    (tmp_path / "j" / FOLDER).write_text("in the way")
    with pytest.raises(Unreachable):
        drop((tmp_path / "j").as_uri(), [Kept("0001-000000000001-000000-x", 1, True)])
