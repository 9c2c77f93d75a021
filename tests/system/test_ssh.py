"""Sessions with OpenSSH's own client and server, on this machine and on a real Slurm: entering, idleness, and the home
folder that goes from one to the next."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from tests.counts import part
from tests.program import GPUBROKER, environment, eventually, run
from tests.slurm_cluster import SlurmCluster

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif(shutil.which("sshd", path="/usr/sbin:/sbin") is None, reason="no sshd (package openssh-server)"),
]
_PATIENCE = 240.0


class Sessions:
    """Sessions of one home, through the program."""

    def __init__(self, home: Path, provider: str, env: Mapping[str, str]) -> None:
        self.home, self.provider, self.env = home, provider, env

    def gpubroker(self, *words: str, status: int = 0) -> str:
        done = run(*words, home=self.home, env=self.env, timeout=_PATIENCE)
        assert done.returncode == status, done
        return done.stdout

    def show(self, name: str) -> dict[str, Any]:
        shown: dict[str, Any] = json.loads(self.gpubroker("status", name, "--json"))
        return shown

    def until(
        self, name: str, what: str, reached: Callable[[dict[str, Any]], bool], patience: float = _PATIENCE
    ) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            shown = self.show(name)
            return shown if reached(shown) else None

        return eventually(look, what, patience)

    def open(self, name: str, *options: str, elsewhere: bool = False) -> None:
        """``elsewhere``: on the other engine."""
        other = {"owned": "slurm", "slurm": "owned"}[self.provider]
        self.gpubroker("dev", "--name", name, "--provider", other if elsewhere else self.provider, "--yes", *options)

    def closed(self, name: str, after: float = 0.0) -> dict[str, Any]:
        """``after``: seconds that it may still be open by right."""
        return self.until(name, f"{name} is closed", lambda shown: bool(shown["closed"]), _PATIENCE + after)


@pytest.fixture(params=[("owned", "slurm")[part(2)]])  # each of them on every second day
def sessions(request: pytest.FixtureRequest, tmp_path: Path, cluster: SlurmCluster) -> Sessions:
    return Sessions(tmp_path / "home", request.param, dict(cluster.environment))


def test_people_enter_and_the_home_folder_is_there_in_the_next_session_on_another_engine(
    sessions: Sessions, tmp_path: Path
) -> None:
    sessions.open("work")
    said = sessions.gpubroker("ssh", "work", "--", 'echo "$HOME" "$GPUBROKER_ATTEMPT"; pwd; echo kept > notes')
    home, number = said.splitlines()[0].split()
    assert (home, number) == (said.splitlines()[1], "1")
    assert home.endswith("/home")
    assert sessions.gpubroker("exec", "work", "--", "cat", "notes") == "kept\n"
    sessions.gpubroker("ssh", "work", "--", "exit 7", status=7)

    _files_of_every_byte_go_both_ways(sessions, tmp_path)
    _nobody_else_comes_in(sessions, tmp_path)

    sessions.gpubroker("cancel", "work")
    closed = sessions.closed("work")
    assert closed["checkpoint"]["step"] == 1
    sessions.gpubroker("ssh", "work", status=2)

    sessions.open("work", elsewhere=True)
    assert sessions.gpubroker("exec", "work", "--", "cat", "notes") == "kept\n"
    places = [one["engine"] for one in sessions.show("work")["attempts"]]
    assert places == [{"owned": "slurm", "slurm": "local"}[sessions.provider]]
    sessions.gpubroker("cancel", "work")
    sessions.closed("work")


def _files_of_every_byte_go_both_ways(sessions: Sessions, tmp_path: Path) -> None:
    """As an editor does it: by the block for ``ssh_config``, with rsync (a command) and scp (the subsystem)."""
    config = tmp_path / "config"
    config.write_text(sessions.gpubroker("ssh", "work", "--config"))
    content = bytes(range(256)) * 4000
    (tmp_path / "there").write_bytes(content)
    for copy in (["rsync", "-e", f"ssh -F {config}"], ["scp", "-q", "-F", str(config)]):
        there, back = f"gpubroker-work:{copy[0]}", tmp_path / copy[0]
        for words in ([*copy, str(tmp_path / "there"), there], [*copy, there, str(back)]):
            subprocess.run(words, check=True, timeout=_PATIENCE, env=environment(sessions.home, **sessions.env))
        assert back.read_bytes() == content


def _nobody_else_comes_in(sessions: Sessions, tmp_path: Path) -> None:
    """The key lies in a private folder; another one, which the server has not been given, is refused."""
    key = sessions.home / "ssh" / "id_ed25519"
    assert not key.stat().st_mode & 0o077
    stranger = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger], check=True)
    block = sessions.gpubroker("ssh", "work", "--config").replace(f'"{key}"', str(stranger))
    config = tmp_path / "stranger-config"
    config.write_text(block)
    words = ["ssh", "-F", str(config), "-o", "BatchMode=yes", "gpubroker-work", "true"]
    done = subprocess.run(
        words,
        check=False,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        env=environment(sessions.home, **sessions.env),
    )
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


def test_jupyter_is_reached_through_ssh_and_by_its_token_alone(sessions: Sessions, tmp_path: Path) -> None:
    if shutil.which("jupyter-server") is None:
        pytest.skip("jupyter_server is not installed")
    sessions.open("book", "--jupyter")
    with subprocess.Popen(
        [*GPUBROKER, "ssh", "book", "--jupyter"],
        stdout=subprocess.PIPE, text=True, env=environment(sessions.home, **sessions.env), cwd=sessions.home.parent,
    ) as tunnel:  # fmt: skip
        assert tunnel.stdout is not None
        address, token = tunnel.stdout.readline().strip().split("?token=")

        def answer(headers: dict[str, str]) -> int | None:
            with suppress(URLError):
                try:
                    with urlopen(Request(f"{address}api/kernels", headers=headers), timeout=10) as found:
                        return int(found.status)
                except HTTPError as error:
                    return error.code
            return None

        assert eventually(lambda: answer({"Authorization": f"token {token}"}), "it answers") == 200
        assert answer({}) == 403
        tunnel.kill()
    assert token not in "".join(sessions.gpubroker("logs", "book"))
    sessions.gpubroker("cancel", "book")
    sessions.closed("book")


def test_one_that_is_left_alone_ends_in_time_and_one_with_an_open_sleep_does_not(sessions: Sessions) -> None:
    began = time.monotonic()
    sessions.gpubroker("jobs", "list")
    seconds = min(max(30, round(15 * (time.monotonic() - began))), 120)  # entering takes three programs, when busy too
    idle = f"{seconds}s"
    sessions.open("busy", "--idle", idle)
    with subprocess.Popen(
        [*GPUBROKER, "ssh", "busy", "--", "echo in; exec sleep 900"],
        stdout=subprocess.PIPE, text=True, env=environment(sessions.home, **sessions.env), cwd=sessions.home.parent,
    ) as visiting:  # fmt: skip
        assert visiting.stdout is not None
        assert visiting.stdout.readline() == "in\n"
        sessions.open("left", "--idle", idle)
        loop = 'echo from the loop > "$HOME/notes"; (while :; do sleep 1; done) >/dev/null 2>&1 & exit 0'
        sessions.gpubroker("exec", "left", "--", "sh", "-c", loop)
        ended = sessions.closed("left", after=seconds)
        assert (ended["state"], ended["attempts"][-1]["cause"]) == ("succeeded", "idle")
        assert ended["checkpoint"]["step"] == 1
        assert sessions.show("busy")["state"] == "running"
        visiting.kill()
    assert sessions.closed("busy", after=seconds)["attempts"][-1]["cause"] == "idle"
