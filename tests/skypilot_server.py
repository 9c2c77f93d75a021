"""SkyPilot's own API server on this machine, in a home of its own and on free ports. Nothing of SkyPilot is patched.
Needs the extra `skypilot`.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.slurm_cluster import free_ports


@dataclass
class SkyServer:
    """A running server.

    ``environment``: the variables, including HOME, that a client needs to use this server and no other.
    """

    folder: Path
    environment: Mapping[str, str]
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, *command: str, **more: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as said:
            environment = {**os.environ, **self.environment, **more}
            process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
        self.daemons.append(process)

    def start_api(self, port: int, metrics_port: int) -> None:
        """Start the API server, and wait until it answers."""
        ports = [f"--port={port}", f"--metrics-port={metrics_port}"]
        self.start("skypilot", sys.executable, "-m", "sky.server.server", *ports, IS_SKYPILOT_SERVER="true")

        def up() -> bool:
            assert self.daemons[-1].poll() is None, f"SkyPilot's API server ended: {self.last_words()}"
            return _answers(port)

        _eventually(up, "SkyPilot's API server answers", self)

    def end(self) -> None:
        """Kill every daemon with all its child processes."""
        for daemon in reversed(self.daemons):
            _kill_all(daemon)

    def sky(self, *command: str) -> str:
        """Run a command of SkyPilot; returns its output."""
        done = subprocess.run(
            [Path(sys.executable).with_name("sky"), *command],
            env={**os.environ, **self.environment, "NO_COLOR": "1", "COLUMNS": "200"},
            capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, f"sky {command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done.stdout

    def last_words(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in self.folder.glob("*.out"))


def api_ports() -> tuple[int, int]:
    """Free ports for an API server and for its metrics.

    The server takes a third one, for its queue, computed from the first (sky/server/requests/queues/mp_queue.py of
    SkyPilot 0.14).
    """
    while True:
        port, metrics_port = free_ports(2)
        with socket.socket() as queue, suppress(OSError):
            queue.bind(("127.0.0.1", 50000 + (11 + port - 46580) % 10000))
            return port, metrics_port


def address(port: int) -> dict[str, str]:
    """The variables with which a client finds a server on this machine at that port."""
    return {
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        "SKYPILOT_API_SERVER_LOCAL_PORT": str(port),
        "SKYPILOT_API_SERVER_ENDPOINT": f"http://127.0.0.1:{port}",
    }


def package_index() -> dict[str, str]:
    """The package index of this user's pip, as variables for another user's pip and uv; empty if it is the default."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True, text=True, check=False
    )
    url = os.environ.get("PIP_INDEX_URL") or said.stdout.strip()
    return {"PIP_INDEX_URL": url, "UV_DEFAULT_INDEX": url} if url else {}


def _answers(port: int) -> bool:
    import httpx

    try:
        return httpx.get(f"http://127.0.0.1:{port}/api/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _kill_all(daemon: subprocess.Popen[bytes]) -> None:
    """Kill a daemon and all processes in its session."""
    with suppress(psutil.Error):
        for child in psutil.Process(daemon.pid).children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
    with suppress(ProcessLookupError):
        daemon.send_signal(signal.SIGKILL)
    daemon.wait(240)


def _eventually(look: Callable[[], bool], what: str, server: SkyServer) -> None:
    deadline = time.monotonic() + 90
    while not look():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within 90 s\n{server.last_words()}")
        time.sleep(0.2)
