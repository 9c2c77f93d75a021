"""The agent as one file: the same bytes everywhere, and it runs on a Python that knows nothing of gpubroker."""

import io
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import obstore

from broker.engines.runfolder.agent_bundle import OBSTORE, agent_archive, write_agent


def test_the_same_agent_is_the_same_bytes() -> None:
    first = agent_archive()
    agent_archive.cache_clear()
    assert agent_archive() == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        names = archive.namelist()
        assert {entry.date_time[0] for entry in archive.infolist()} == {1980}
    assert "broker/agent/supervise.py" in names
    assert not [name for name in names if "__pycache__" in name or not name.endswith(".py")]


def test_it_is_written_once_and_read_by_nobody_else(tmp_path: Path) -> None:
    folder = tmp_path / "engines"
    place = write_agent(folder)
    written = place.stat().st_mtime_ns
    assert write_agent(folder) == place
    assert place.stat().st_mtime_ns == written
    assert [path.name for path in folder.iterdir()] == [place.name]
    assert folder.stat().st_mode & 0o077 == 0


def test_it_runs_with_obstore_beside_it(tmp_path: Path) -> None:
    place = write_agent(tmp_path)
    (tmp_path / "lib").mkdir()
    shutil.copytree(Path(obstore.__file__).parent, tmp_path / "lib" / "obstore")
    program = [sys.executable, "-I", "-S", str(place), "--help"]  # without site-packages, ours included
    done = subprocess.run(program, cwd="/", capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "--folder" in done.stdout


def test_every_python_of_the_agent_has_an_obstore() -> None:
    versions = [version for version, _ in OBSTORE]
    assert versions == sorted(versions, reverse=True)
    assert versions[-1] == (3, 9)
