"""What of a folder can be taken, and what is said of the rest."""

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.core.errors import InvalidInput
from broker.engines.snapshots.collect import check_size, collect, size_text


def test_links_within_the_folder_stay_links_and_become_relative(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_text("x")
    (tmp_path / "sub" / "up").symlink_to("../a")
    (tmp_path / "absolute").symlink_to(tmp_path / "a")
    (tmp_path / "nowhere").symlink_to("later")
    links = {one.entry.path: one.entry.target for one in collect(tmp_path).entries if one.entry.kind == "link"}
    assert links == {"sub/up": "../a", "absolute": "a", "nowhere": "later"}


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "sub/../../secret"])
def test_links_that_lead_out_are_refused_by_name(tmp_path: Path, target: str) -> None:
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("s")
    (root / "out").symlink_to(target)
    with pytest.raises(InvalidInput, match="points outside the folder") as refused:
        collect(root)
    assert str(root / "out") in str(refused.value)
    assert ".gpubrokerignore" in refused.value.hint


def test_every_entry_that_cannot_be_taken_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    bound = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        bound.bind("sock")
    finally:
        os.chdir(here)
        bound.close()
    with pytest.raises(InvalidInput) as refused:
        collect(tmp_path)
    for told in ("named pipe", "socket"):
        assert told in str(refused.value)
    assert len(refused.value.problems) == 2


@pytest.fixture
def folder_of_a_user() -> Iterator[Path]:
    """A folder of somebody who is not root, because root reads everything; the test acts as this user."""
    user, nobody = os.geteuid(), 65534
    with tempfile.TemporaryDirectory() as folder:
        if user == 0:
            os.chown(folder, nobody, -1)
            os.seteuid(nobody)
        try:
            yield Path(folder)
        finally:
            os.seteuid(user)


def test_what_may_not_be_read_is_named(folder_of_a_user: Path) -> None:
    private, closed = folder_of_a_user / "private", folder_of_a_user / "closed"
    private.write_text("")
    private.chmod(0)
    closed.mkdir(mode=0)
    with pytest.raises(InvalidInput, match="permission denied") as refused:
        collect(folder_of_a_user)
    assert len(refused.value.problems) == 2


def test_a_folder_that_is_too_large_is_refused_with_its_largest_entries(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one").write_bytes(b"x" * 4000)
    (tmp_path / "data" / "two").write_bytes(b"x" * 3000)
    (tmp_path / "small").write_bytes(b"x" * 10)
    found = collect(tmp_path)
    check_size([found], 7010)
    with pytest.raises(InvalidInput) as refused:
        check_size([found], 7009)
    assert "7.01 kB" in str(refused.value)
    assert "data/ (7 kB), small (10 B)" in str(refused.value)
    assert "GPUBROKER_MAX_SNAPSHOT" in refused.value.hint


def test_sizes_for_people() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 12_345_678, 10**13, 5 * 10**15)] == [
        "0 B",
        "999 B",
        "1 kB",
        "12.3 MB",
        "10 TB",
        "5,000 TB",
    ]
