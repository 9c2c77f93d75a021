"""`gpubroker autostart`: a unit that systemd accepts, that only its owner reads, and of which `off` leaves nothing."""

import configparser
import plistlib
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.app.service import autostart
from broker.app.wiring import Broker
from broker.cli.jobs.submit import offer_once
from broker.cli.terminal import Terminal

AWKWARD = {"PATH": "/a b:/bin", "GPUBROKER_STORE": 'sqlite:///x"y\\z%20$HOME'}


@pytest.fixture
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose path has a space, on a machine that systemd manages."""
    home = tmp_path / "my home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(autostart, "_BOOTED", tmp_path)
    monkeypatch.setattr(autostart, "_LINGER", tmp_path)
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name == "systemctl" else which(name))
    return home


def test_on_writes_a_private_unit_and_off_removes_all_of_it(gpubroker: Any, user_home: Path) -> None:
    before = sorted(user_home.rglob("*"))
    done = gpubroker("autostart", "on")
    assert done.code == 0
    assert "enable-linger" in done.out
    unit = user_home / ".config/systemd/user/gpubroker.service"
    assert stat.S_IMODE(unit.stat().st_mode) == 0o600
    assert (unit.parent / "default.target.wants/gpubroker.service").resolve() == unit
    assert gpubroker("autostart", "on").code == 0
    assert gpubroker("autostart", "--json").json["on"] is True
    assert gpubroker("autostart", "off").code == 0
    assert [path for path in sorted(user_home.rglob("*")) if ".config" not in str(path)] == before
    assert not unit.parent.exists()
    assert gpubroker("autostart", "status").out.startswith("off (no background process runs)")


def test_submit_offers_it_once_on_this_machine(user_home: Path) -> None:
    said: list[str] = []
    at_terminal = SimpleNamespace(asks=True, err=SimpleNamespace(is_terminal=True), say=said.append)
    piped = SimpleNamespace(asks=False, err=SimpleNamespace(is_terminal=True), say=said.append)
    broker = SimpleNamespace(settings=SimpleNamespace(home=user_home))
    for terminal in (piped, at_terminal, at_terminal):
        offer_once(cast("Terminal", terminal), cast("Broker", broker))
    assert said == ["To continue jobs after a restart of this machine: `gpubroker autostart on`."]


def test_without_systemd_it_says_what_to_start_at_login(gpubroker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autostart, "_BOOTED", Path("/nowhere"))
    done = gpubroker("autostart", "on")
    assert (done.code, "-m cli reconcile" in done.err) == (2, True)


def parsed(text: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as its documentation says
    parser.read_string(text)
    return parser["Service"]


def test_a_unit_survives_spaces_quotes_and_percent_signs(tmp_path: Path) -> None:
    text = autostart.unit(["/opt/my env/python", "-m", "cli", "a$b%"], AWKWARD, tmp_path).decode()
    service = parsed(text)
    words = [word.replace("$$", "$").replace("%%", "%") for word in shlex.split(service["ExecStart"])]
    assert words == ["/opt/my env/python", "-m", "cli", "a$b%"]
    values = [shlex.split(line.removeprefix("Environment=")) for line in text.splitlines() if line.startswith("Env")]
    assert [value.replace("%%", "%") for (value,) in values] == [f"{name}={value}" for name, value in AWKWARD.items()]
    assert service["KillMode"] == "process", "the jobs of this machine run on when the reconciler ends"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no program systemd-analyze here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    folder = tmp_path / "my env"
    folder.mkdir()
    program = folder / "python"
    program.symlink_to(sys.executable)
    unit = tmp_path / "gpubroker.service"
    unit.write_bytes(autostart.unit([str(program), "-P", "-m", "cli", "reconcile"], AWKWARD, folder))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", unit], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, "gpubroker.service" in done.stderr) == (0, False), done.stderr


def test_the_agent_of_launchd_is_a_property_list(tmp_path: Path) -> None:
    read = plistlib.loads(autostart.plist(["/opt/my env/python", "-m", "cli"], AWKWARD, tmp_path))
    assert read["ProgramArguments"] == ["/opt/my env/python", "-m", "cli"]
    assert (read["EnvironmentVariables"], read["RunAtLoad"], read["AbandonProcessGroup"]) == (AWKWARD, True, True)
