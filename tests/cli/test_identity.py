"""Who runs the command line."""

import os
import pwd
from pathlib import Path

import pytest

from broker.cli import identity
from broker.core.actors import EntryPoint, Role

ROOM = Path(__file__).parents[2] / "broker"


def test_the_user_is_the_process_not_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity.process_actor()
    monkeypatch.setenv("LOGNAME", "boss")
    monkeypatch.setenv("USER", "boss")
    assert identity.process_actor() == before
    assert before.identity != os.environ["USER"]
    assert before.origin is EntryPoint.COMMAND_LINE


def test_only_root_is_an_administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert identity.process_actor().roles == {Role.ADMINISTRATOR}
    monkeypatch.setattr(os, "getuid", lambda: 1)
    assert not identity.process_actor().roles


def test_a_user_id_without_a_name_is_a_user_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(number: int) -> pwd.struct_passwd:
        raise KeyError(number)

    monkeypatch.setattr(identity, "getpwuid", nobody)
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert identity.process_actor().identity == "uid-4711"


# The account under which processes and files lie on a machine; not who acts.
_ACCOUNTS_OF_PROCESSES = {
    "agent/__main__.py",
    "agent/claims.py",
    "agent/running_command.py",
    "agent/gpubroker_session.py",
    "agent/source_tree.py",
    "agent/enter.py",
    "app/service/autostart.py",
    "engines/handles.py",
    "engines/slurm_commands.py",
}


@pytest.mark.parametrize("name", ["getuser", "getlogin", "getpwuid", "getuid", "geteuid"])
def test_nothing_below_the_command_line_reads_the_user_of_the_operating_system(name: str) -> None:
    asking = {
        str(path.relative_to(ROOM))
        for path in ROOM.rglob("*.py")
        if "cli" not in path.relative_to(ROOM).parts and f"{name}(" in path.read_text(encoding="utf-8")
    }
    assert asking <= (_ACCOUNTS_OF_PROCESSES if name in ("getuid", "geteuid", "getpwuid") else set())
