"""The home folder of a session: what is saved of it, and that the next session has it."""

import os
import signal
import socket
from pathlib import Path

import pytest

from broker.agent import gpubroker_session as session
from broker.agent.formats import SessionSpec
from tests.agent.node import Node

COMMAND = 'exec "$GPUBROKER_PYTHON" -m gpubroker_session'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    (made / "src").mkdir(parents=True)
    (made / "src" / "run.sh").write_text("#!/bin/sh\n")
    (made / "src" / "run.sh").chmod(0o755)
    (made / "link").symlink_to("src/run.sh")
    (made / "dangling").symlink_to("nowhere")
    (made / ".cache").mkdir()
    (made / ".cache" / "large").write_text("x")
    return made


def test_links_modes_and_empty_folders_come_back_and_caches_and_sockets_do_not(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, again = tmp_path / "kept", tmp_path / "again"
    (home / "empty").mkdir()
    kept.mkdir()
    again.mkdir()
    monkeypatch.chdir(home)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("agent.sock")
        session.save(home, kept, 7)
    assert [one.name for one in kept.iterdir()] == ["home-7.tar"]
    assert session.restore(kept, again) == 7
    assert {str(one.relative_to(again)) for one in again.rglob("*")} == {
        "src", "src/run.sh", "link", "dangling", "empty",
    }  # fmt: skip
    assert os.access(again / "src" / "run.sh", os.X_OK)
    assert (again / "link").readlink() == Path("src/run.sh")


def test_the_newest_one_is_restored(home: Path, tmp_path: Path) -> None:
    kept, again = tmp_path / "kept", tmp_path / "again"
    kept.mkdir()
    for number in (2, 10, 9):
        (home / "number").write_text(str(number))
        session.save(home, kept, number)
    assert session.restore(kept, again) == 10
    assert (again / "number").read_text() == "10"
    (tmp_path / "nothing").mkdir()
    assert session.restore(tmp_path / "nothing", again) == 0


def test_what_changes_a_home(home: Path) -> None:
    before = session.folder_state(home)
    (home / ".cache" / "large").write_text("another")
    assert session.folder_state(home) == before
    (home / "src" / "run.sh").chmod(0o700)
    assert session.folder_state(home) != before


@pytest.fixture
def open_session(node: Node) -> Node:
    node.spec(COMMAND, session=SessionSpec(idle=None))
    node.start()
    node.until_said("the session is open")
    return node


@pytest.mark.system
def test_it_is_saved_on_a_stop_and_there_in_the_next_attempt(open_session: Node) -> None:
    node = open_session
    (node.scratch() / "home" / "notes").write_text("kept")
    node.processes[0].send_signal(signal.SIGTERM)
    node.processes[0].wait(240)
    assert node.saved() == [1]
    node.spec(COMMAND, 2, session=SessionSpec(idle=None))
    node.start(2)
    node.until_said("the home folder was restored from the last save (number 1)", 2)
    node.until_said("the session is open", 2)
    assert (node.scratch(1) / "home" / "notes").read_text() == "kept"
    node.processes[1].send_signal(signal.SIGTERM)
    node.processes[1].wait(240)
    assert node.saved(2) == [], "nothing has changed"


@pytest.mark.system
def test_a_session_that_nobody_uses_ends_and_its_home_is_saved(node: Node) -> None:
    loop = 'echo from the loop > "$HOME/notes"; (while :; do sleep 0.2; done) & '
    node.spec(loop + COMMAND, session=SessionSpec(idle=2), intervals={"session": 0.2})
    assert node.start().wait(240) == 143
    assert node.ending().cause == "idle"
    assert "no sign of use" in node.ending().evidence
    assert node.saved() == [1]


def test_jupyter_is_refused_by_name_where_there_is_none(node: Node, tmp_path: Path) -> None:
    node.spec(COMMAND, session=SessionSpec(idle=None, jupyter=True), envs={"PATH": "/usr/bin:/bin"})
    assert node.start().wait(240) == 127
    assert any("there is no jupyter on the PATH" in line for line in node.output())
