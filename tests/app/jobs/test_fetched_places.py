"""Where fetched files are written: below the target folder, whatever a job or a server calls them."""

import hashlib
from pathlib import Path

import pytest

from broker.app.jobs.job_files import RemoteFile, fetch_files
from broker.core.errors import Malformed

DATA = b"result"
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.mark.parametrize("path", ["../above", "a/../../above", "/above", "", ".", "a\0b"])
def test_a_path_that_leads_out_of_the_folder_is_refused_before_anything_is_written(tmp_path: Path, path: str) -> None:
    files = [_file("fine", SHA256), _file(path, SHA256)]
    with pytest.raises(Malformed, match="not a place in the target folder"):
        fetch_files(files, tmp_path / "to")
    assert not list(tmp_path.iterdir())


def test_a_hash_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="is not a SHA-256"):
        fetch_files([_file("fine", "../../x")], tmp_path / "to")


def test_folders_and_odd_names_below_it_are_fine(tmp_path: Path) -> None:
    names = ["a/b", "..c", "line\nbreak"]
    fetch_files([_file(name, SHA256) for name in names], tmp_path)
    assert [(tmp_path / name).read_bytes() for name in names] == [DATA] * 3


def _file(path: str, sha256: str) -> RemoteFile:
    return RemoteFile(path, len(DATA), sha256, lambda start: iter([DATA[start:]]))
